"""Real processes over gloo, started once for all tests of a file."""

import multiprocessing
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

from lightning_diffal.distributed import Ranks
from tests.free_port import free_port

TIMEOUT_SECONDS = 120  # of a machine that does much else


class ProcessGroup:
    """Runs `function(ranks, *arguments)` on every rank of a group and returns the result of each."""

    def __init__(self, world):
        self.world = world
        address = f"tcp://127.0.0.1:{free_port()}"
        fork = multiprocessing.get_context("fork")
        pipes = [fork.Pipe() for _ in range(world)]
        self.pipes = [parent for parent, _ in pipes]
        self.processes = [
            fork.Process(target=serve, args=(rank, world, address, child), daemon=True)
            for rank, (_, child) in enumerate(pipes)
        ]
        for process in self.processes:
            process.start()

    def __call__(self, function, *arguments):
        for pipe in self.pipes:
            pipe.send((function, arguments))
        deadline, results = time.monotonic() + TIMEOUT_SECONDS, []
        for rank, pipe in enumerate(self.pipes):
            if not pipe.poll(max(0, deadline - time.monotonic())):
                self.stop()
                raise TimeoutError(f"rank {rank} did not answer within {TIMEOUT_SECONDS} s")
            results.append(pipe.recv())
        failed = [error for error, _ in results if error]
        if failed:
            raise AssertionError("\n".join(failed))
        return [result for _, result in results]

    def stop(self):
        for process in self.processes:
            process.kill()
            process.join()


def serve(rank, world, address, pipe):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=address, rank=rank, world_size=world, timeout=timedelta(seconds=TIMEOUT_SECONDS / 2)
    )
    while True:
        function, arguments = pipe.recv()
        try:
            pipe.send((None, function(Ranks.of_group(), *arguments)))
        except BaseException:
            pipe.send((traceback.format_exc(), None))
