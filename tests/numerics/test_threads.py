"""Parts of a search on several threads: every part done once, the same graph, torch's settings restored."""

import threading

import pytest
import torch

from lightning_diffal import build_graph
from lightning_diffal.numerics.threads import run_parallel

CPU = torch.device("cpu")


@pytest.fixture(params=[1, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_every_part_is_done_once_and_progress_is_reported_in_order(threads):
    done, drawn = [], []

    def bar(parts):
        for part in parts:
            yield part
            drawn.append(part)

    run_parallel(done.append, range(0, 50, 7), CPU, bar)
    assert sorted(done) == drawn == list(range(0, 50, 7))


def test_parts_run_at_the_same_time():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    meeting = threading.Barrier(3, timeout=20)  # breaks unless all three come
    try:
        run_parallel(lambda part: meeting.wait(), range(3), CPU)
    finally:
        torch.set_num_threads(before)


def test_an_error_is_raised_and_the_number_of_threads_restored(threads):
    def fails(part):
        raise RuntimeError(f"part {part}")

    with pytest.raises(RuntimeError, match="part 0"):
        run_parallel(fails, range(9), CPU)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("points", [900, 13_000])  # brute force, and pruned
def test_the_graph_is_the_same_with_any_number_of_threads(points):
    embeddings = torch.randn(points, 8, generator=torch.Generator().manual_seed(0))
    embeddings += 6 * embeddings[:, :1].sign()
    before = torch.get_num_threads()
    graphs = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            graphs.append(build_graph(embeddings, 6, backend="torch"))
    finally:
        torch.set_num_threads(before)
    for graph in graphs[1:]:
        assert torch.equal(graph.col, graphs[0].col)
        assert torch.equal(graph.weight, graphs[0].weight)


def test_the_graph_is_the_same_inside_inference_mode(threads):
    embeddings = torch.randn(13_000, 8, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        inside = build_graph(embeddings, 6, backend="torch")
    assert torch.equal(inside.col, build_graph(embeddings, 6, backend="torch").col)
