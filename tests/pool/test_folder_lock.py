"""One process owns a run folder, and nobody who is dead does."""

import gc
import json
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import time

import pytest

from lightning_diffal.pool.folder.folder_lock import NAME, FolderInUseError, FolderLock, Owner, is_locked

HOLD = """
import sys, time
from pathlib import Path
from lightning_diffal.pool.folder.folder_lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that owns the folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def attempt(folder, results, over=None):
    lock = FolderLock(folder)
    try:
        lock.acquire()
        results.put(True)
        if over is not None:
            over.wait(60)
    except FolderInUseError:
        results.put(False)


def test_a_second_process_is_refused_with_pid_host_and_since(tmp_path, holder):
    with pytest.raises(FolderInUseError, match=r"run' is in use by another process: process") as refused:
        FolderLock(tmp_path / "run").acquire()
    assert f"process {holder.pid} on {socket.gethostname()}, since 20" in str(refused.value)
    assert is_locked(tmp_path / "run")
    assert Owner.read(tmp_path / "run").pid == holder.pid


def test_the_kernel_frees_the_folder_of_a_killed_process_whose_content_stays(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert Owner.read(tmp_path / "run").pid == holder.pid, "the stale content is still there"
    assert not is_locked(tmp_path / "run")
    lock = FolderLock(tmp_path / "run")
    lock.acquire()
    assert Owner.read(tmp_path / "run").pid == os.getpid()
    lock.release()


def test_children_of_a_killed_owner_do_not_keep_its_folder(tmp_path):
    """As workers of a DataLoader, which live on for seconds. This one lives until the test kills it."""
    context = multiprocessing.get_context("fork")
    ready = context.Queue()

    def own_and_fork():
        lock = FolderLock(tmp_path / "run")
        lock.acquire()
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        ready.put(child)
        time.sleep(60)

    owner = context.Process(target=own_and_fork)
    owner.start()
    child = ready.get()
    owner.kill()
    owner.join()
    lock = FolderLock(tmp_path / "run")
    lock.acquire()
    lock.release()
    os.kill(child, signal.SIGKILL)


def test_of_many_at_once_one_gets_it(tmp_path):
    context = multiprocessing.get_context("fork")
    for attempt_number in range(5):
        results, over = context.Queue(), context.Event()
        folder = tmp_path / str(attempt_number)
        processes = [context.Process(target=attempt, args=(folder, results, over)) for _ in range(4)]
        for process in processes:
            process.start()
        assert sorted(results.get(timeout=60) for _ in processes) == [False] * 3 + [True]
        over.set()
        for process in processes:
            process.join()


def test_nothing_is_left_of_a_lock_that_was_released(tmp_path):
    lock = FolderLock(tmp_path / "run")
    lock.acquire()
    assert is_locked(tmp_path / "run")
    lock.release()
    assert not is_locked(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_files_of_the_run_stay_when_the_lock_goes(tmp_path):
    lock = FolderLock(tmp_path / "run")
    lock.acquire()
    (tmp_path / "run" / "rounds.jsonl").write_text("{}\n")
    lock.release()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["rounds.jsonl"]


def test_two_owners_in_one_process_exclude_each_other_also_through_a_link(tmp_path):
    lock = FolderLock(tmp_path / "run")
    lock.acquire()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for folder in (tmp_path / "run", tmp_path / "link"):
        with pytest.raises(FolderInUseError, match="in use by another callback of this process"):
            FolderLock(folder).acquire()
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=attempt, args=(tmp_path / "run", results))
    child.start()
    assert results.get(timeout=60) is False, "the refusals have not released it"
    child.join()
    del lock
    gc.collect()
    other = FolderLock(tmp_path / "run")
    other.acquire()
    other.release()


def use(lock, results):
    lock.acquire()
    lock.release()
    results.put(is_locked(lock.folder))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_that_the_owner_starts_use_its_folder_and_do_not_free_it(tmp_path, method):
    lock = FolderLock(tmp_path / "run")
    lock.acquire()
    context = multiprocessing.get_context(method)
    results = context.Queue()
    rank = context.Process(target=use, args=(lock, results))
    rank.start()
    assert results.get(timeout=60) is True
    rank.join()
    assert is_locked(tmp_path / "run")
    lock.release()


def test_a_copy_that_was_made_before_the_lock_was_held_owns_nothing(tmp_path):
    lock = FolderLock(tmp_path / "run")
    copy = pickle.loads(pickle.dumps(lock))
    lock.acquire()
    with pytest.raises(FolderInUseError):
        copy.acquire()
    lock.release()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": null}', b"\xff"])
def test_a_damaged_lock_file_is_no_lock(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    assert Owner.read(tmp_path) is None
    lock = FolderLock(tmp_path)
    lock.acquire()
    assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
    lock.release()


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        FolderLock(tmp_path / "file").acquire()
