"""Time and memory of a query are said before the work, where they are large."""

import logging

import pytest
import torch

from lightning_diffal import UNLABELED, Snapshot
from lightning_diffal.plugin.expected_cost import (
    BatchTimer,
    duration,
    expected_seconds,
    extrapolate,
    memory_needed,
    say_cost_of_choice,
    say_cost_of_embedding,
)
from lightning_diffal.plugin.memory import available_memory
from lightning_diffal.plugin.model.embedding import Embedded
from lightning_diffal.selectors import DiffusionSelector
from lightning_diffal.selectors.base import as_selector


def snapshot_of(n, labels=100):
    generator = torch.Generator().manual_seed(0)
    known = torch.full((n,), UNLABELED)
    known[:labels] = torch.arange(labels) % 3
    return Snapshot(labels=known, num_classes=3, embeddings=torch.randn(n, 4, generator=generator))


def lines(caplog):
    return [record.getMessage() for record in caplog.records if "Active learning" in record.getMessage()]


def test_powers_of_the_pool_are_continued():
    # graph: 10⁻⁶ n^1.5 seconds; each choice 10⁻⁴ √n.
    def trial(n, asked):
        return n, asked, {"graph": 1e-6 * n**1.5, "query": asked * 1e-4 * n**0.5}

    expected = extrapolate(trial(2_000, 3), trial(8_000, 7), 1_000_000, 500, world=2)
    assert expected["graph"] == pytest.approx(1e-6 * 1e6**1.5 / 2)
    assert expected["query"] == pytest.approx(500 * 1e-4 * 1e6**0.5)


def test_no_stage_is_taken_to_grow_faster_than_all_pairs_or_slower_than_the_pool():
    def trial(n, seconds):
        return n, 1, {"graph": seconds}

    assert extrapolate(trial(10, 1.0), trial(100, 10_000.0), 1_000, 1, 1)["graph"] == pytest.approx(10_000 * 100)
    assert extrapolate(trial(10, 1.0), trial(100, 1.0), 1_000, 1, 1)["graph"] == pytest.approx(10)


def test_a_trial_has_the_selectors_stages_and_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    expected = expected_seconds(DiffusionSelector(neighbors=5), snapshot_of(17_000), 40)
    assert set(expected) == {"graph", "query"}
    assert all(seconds > 0 for seconds in expected.values())
    assert torch.equal(state, torch.get_rng_state())


def test_the_last_round_says_what_the_next_one_takes(caplog):
    selector, snapshot = DiffusionSelector(), snapshot_of(200)
    with caplog.at_level(logging.INFO):
        say_cost_of_choice(selector, snapshot, 20, {"fit": 900.0, "embedding": 900.0, "graph": 100.0, "query": 200.0})
        say_cost_of_choice(selector, snapshot, 20, {"fit": 900.0, "graph": 10.0, "query": 1.0})
        say_cost_of_choice(selector, snapshot, 20, {})
    assert lines(caplog) == [
        "Active learning: choosing 20 of 200 points takes about 5 min (graph 2 min, query 3 min)."
    ], "neither short ones nor small pools are worth a line"


def test_a_selector_of_the_users_is_not_tried():
    calls = []
    selector = as_selector(lambda snapshot, size: calls.append(size))
    say_cost_of_choice(selector, snapshot_of(200_000), 20, {})
    assert not calls


def embedded_of(d, c):
    return Embedded(torch.zeros(4, d), torch.zeros(4, c), None, c)


def test_a_long_pass_over_the_pool_is_said_before_the_first_fit(caplog):
    timer = BatchTimer()
    timer.moments = [0.0, 5.0, 5.5, 6.0]  # the first gap is a slow one
    with caplog.at_level(logging.INFO):
        say_cost_of_embedding(64_000, 64, 2, embedded_of(20, 3), timer, None)
        say_cost_of_embedding(640, 64, 1, embedded_of(20, 3), timer, None)
    (line,) = lines(caplog)
    assert "each round passes 64,000 points through the model, about 4 min" in line  # 500 batches of half a second
    assert "GiB of memory" in line


@pytest.mark.skipif(available_memory() is None, reason="the system does not say how much memory is free")
def test_a_pool_that_does_not_fit_is_warned_of():
    with pytest.warns(UserWarning, match=r"needs about [\d.]+ GiB of memory, and [\d.]+ GiB are free. candidates="):
        say_cost_of_embedding(10**10, 64, 1, embedded_of(512, 100), BatchTimer(), 15)


def test_memory_is_that_of_embeddings_logits_and_the_search():
    small, large = (memory_needed(n, embedded_of(512, 100), 15) for n in (100_000, 1_000_000))
    assert small == 100_000 * (4 * 512 + 4 * 100 + 60 * 20 + 20 * 512) + 300 * 2**20
    assert large == 1_000_000 * (2 * 512 + 4 * 100 + 60 * 20 + 20 * 512) + 300 * 2**20, "in half precision"


def test_durations():
    assert [duration(seconds) for seconds in (5.4, 89.0, 300.0, 7200.0)] == ["5 s", "89 s", "5 min", "2.0 h"]
