"""Malformed arguments, at random and seeded: a call works, or says in words which argument is wrong."""

import os
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from lightning_diffal import (
    ActiveLearning,
    DiffusionActiveLearning,
    NeighborGraph,
    PerClass,
    Snapshot,
    batch_query,
    build_graph,
    diffuse,
)
from lightning_diffal.pool.label_pool import LabelPool
from lightning_diffal.selectors import (
    BADGESelector,
    BAITSelector,
    CoresetSelector,
    CoverageSelector,
    DiffusionSelector,
    DirichletSelector,
    EntropySelector,
    MarginSelector,
    PoissonSelector,
    RandomSelector,
    TypiClustSelector,
    UHerdingSelector,
)

CALLS = 20_000 if os.environ.get("SLOW") else 1000  # of each kind
IN_WORDS = (ValueError, TypeError, MisconfigurationException)


class Strange:
    """Nothing that anyone expects."""

    def __repr__(self):
        return "<strange>"


def float8(*shape):
    return torch.zeros(shape).to(torch.float8_e4m3fn)


def garbage(chance):
    """One of many values that are not what was asked for, or only look like it."""
    n = chance.choice([0, 1, 2, 11, 12, 13])
    makers = [
        lambda: None,
        lambda: chance.choice([True, False]),
        lambda: chance.choice([0, 1, -1, 2, 7, 2**31, 2**63, 2**70, -(2**70)]),
        lambda: chance.choice([0.0, 0.5, -1.5, 3.7, float("inf"), float("nan"), 1e308]),
        lambda: chance.choice(["", "random", "α", "0", "x" * 100, b"bytes"]),
        lambda: 1 + 2j,
        lambda: [],
        lambda: [0] * n,
        lambda: [[0.5] * 3] * n,
        lambda: (1, "a", None),
        lambda: {"a": 1},
        lambda: {1, 2},
        lambda: np.zeros(n),
        lambda: np.zeros((n, 3)),
        lambda: np.arange(n),
        lambda: np.float64(0.5),
        lambda: np.int64(3),
        lambda: torch.zeros(n),
        lambda: torch.zeros(n, 3),
        lambda: torch.zeros(n, 3, 2),
        lambda: torch.tensor(0),
        lambda: torch.tensor(1.5),
        lambda: torch.arange(n),
        lambda: torch.full((n,), -1),
        lambda: torch.full((n,), 2**40),
        lambda: torch.full((n, 3), float("nan")),
        lambda: torch.full((n,), float("inf")),
        lambda: torch.zeros(n, dtype=torch.bool),
        lambda: torch.zeros(n, dtype=torch.uint8),
        lambda: torch.zeros(n, dtype=torch.complex64),
        lambda: torch.zeros(n, 3, dtype=torch.float16),
        lambda: torch.zeros(n, 3).to_sparse(),
        lambda: torch.arange(n).to_sparse(),
        lambda: torch.eye(12).to_sparse_csr(),
        lambda: float8(n, 3),
        lambda: float8(n),
        lambda: torch.zeros(n, 3, requires_grad=True),
        lambda: torch.zeros(n, device="meta"),
        lambda: torch.quantize_per_tensor(torch.zeros(n, 3), 0.1, 0, torch.quint8),
        Strange,
        lambda: Strange,
        lambda: Path("nowhere"),
        lambda: len,
        lambda: iter([1, 2]),
        torch.Generator,
        lambda: torch.nn.Linear(2, 2),
    ]
    return chance.choice(makers)()


EMBEDDINGS = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, -1, -1, -1, -1, -1, -1, -1, -1, 0])
GRAPH = build_graph(EMBEDDINGS, 3)
SOFT = torch.full((12, 3), 1 / 3)
SNAPSHOT = Snapshot(labels=LABELS, num_classes=3, embeddings=EMBEDDINGS, logits=EMBEDDINGS.clone())
SELECTORS = [
    BADGESelector(),
    BAITSelector(),
    CoresetSelector(),
    CoverageSelector(),
    DiffusionSelector(),
    DirichletSelector(),
    EntropySelector(),
    MarginSelector(),
    PoissonSelector(),
    RandomSelector(),
    TypiClustSelector(),
    UHerdingSelector(),
]


def call_selector(number, snapshot, size, answer=None, generator=None, timer=None):
    return SELECTORS[number](snapshot, size, answer=answer, generator=generator, timer=timer)


def reveal(size, indices, labels):
    pool = LabelPool(size)
    pool.reveal(indices, labels)
    return pool


# Each kind of call with arguments that are right; of these, one or two are replaced.
KINDS = {
    "NeighborGraph": (NeighborGraph, {"crow": GRAPH.crow, "col": GRAPH.col, "weight": GRAPH.weight}),
    "LabelPool": (reveal, {"size": 12, "indices": [1, 2], "labels": [0, 1]}),
    "Snapshot": (
        Snapshot,
        {"labels": LABELS, "num_classes": 3, "embeddings": EMBEDDINGS, "logits": EMBEDDINGS, "stochastic": None}
        | {"queries_before": 0},
    ),
    "selector": (call_selector, {"snapshot": SNAPSHOT, "size": 3, "answer": None, "generator": None, "timer": None}),
    "build_graph": (
        build_graph,
        {"embeddings": EMBEDDINGS, "neighbors": 3, "backend": "torch", "symmetric": False, "progress": iter},
    ),
    "diffuse": (diffuse, {"graph": GRAPH, "labels": LABELS, "num_classes": 3, "steps": 2, "soft_labels": SOFT}),
    "batch_query": (
        batch_query,
        {"graph": GRAPH, "labels": LABELS, "num_classes": 3, "size": 3, "mini_batch": 1, "steps": 2}
        | {"answer": None, "soft_labels": SOFT, "shrink_below": 0.1, "progress": iter},
    ),
    "DiffusionSelector": (
        DiffusionSelector,
        {"mini_batch": 1, "neighbors": 3, "steps": 2, "soft_start": False, "shrink_below": None, "backend": "auto"},
    ),
    "ActiveLearning": (
        ActiveLearning,
        {"query_size": 2, "budget": 9, "selector": RandomSelector(), "initial": 3, "layer": None, "forward": None}
        | {"pool": None, "pool_batch_size": None, "oracle": None, "num_classes": None, "stop_when": None}
        | {"warm_start": False, "other_data": [], "same_data": [], "folder": None, "weights_only": True, "seed": 0},
    ),
    "DiffusionActiveLearning": (
        DiffusionActiveLearning,
        {"query_size": 2, "budget": 9, "initial": PerClass(1), "neighbors": None, "steps": None, "soft_start": False}
        | {"backend": "auto", "seed": 0, "folder": None, "shrink_below": None, "mini_batch": 1},
    ),
    "PerClass": (PerClass, {"count": 1}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_malformed_calls_work_or_name_the_argument(kind):
    function, right = KINDS[kind]
    chance = random.Random(f"{kind} 0")
    raw, worked = [], 0
    for _ in range(CALLS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, about sparse and quantized tensors
            names = chance.sample(sorted(right), k=min(chance.choice([1, 1, 2]), len(right)))
            wrong = {name: garbage(chance) for name in names}
        if any(takes_for_ever(kind, name, value) for name, value in wrong.items()):
            continue
        arguments = {**right, **wrong}
        if kind == "selector":
            arguments["number"] = chance.randrange(len(SELECTORS))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                function(**arguments)
            worked += 1
        except Exception as error:
            in_words = isinstance(error, IN_WORDS) and any(name in str(error) for name in [*right, "index", "label"])
            # A function that was passed may fail in words of its own.
            if not in_words and not any(map(callable, wrong.values())):
                raw.append((described(wrong), type(error).__name__, str(error)[:150]))
    assert not raw, f"{len(raw)} of {CALLS} calls ended in a raw error, as " + "\n".join(map(str, raw[:12]))
    assert worked < CALLS, "some are wrong"


def takes_for_ever(kind, name, value):
    """Whether this is no mistake, but more than fits into memory or into a minute."""
    counts = {"steps", "num_classes"} | ({"size"} if kind == "LabelPool" else set())
    return name in counts and isinstance(value, int) and value > 1000


def described(wrong):
    return {
        name: f"{type(value).__name__} {getattr(value, 'dtype', '')} {getattr(value, 'shape', value)!r:.40}"
        for name, value in wrong.items()
    }


def test_right_calls_work():
    for function, right in KINDS.values():
        function(**({"number": 0} if function is call_selector else {}), **right)


@pytest.mark.parametrize("weight", [float("inf"), float("nan"), 0.0, -1.0])
def test_a_weight_that_is_not_a_positive_finite_number_is_refused(weight):
    with pytest.raises(ValueError, match=r"weight.*positive"):
        NeighborGraph(GRAPH.crow, GRAPH.col, torch.full_like(GRAPH.weight, weight))


@pytest.mark.parametrize("folder", [5, 2.5, ["a"], b"a", True])
def test_a_folder_that_is_not_a_path_is_refused_by_name(folder):
    with pytest.raises(ValueError, match=r"ActiveLearning\(folder="):
        ActiveLearning(2, 9, selector=RandomSelector(), folder=folder)


@pytest.mark.parametrize("call", [diffuse, batch_query])
@pytest.mark.parametrize("graph", [None, torch.eye(12), torch.eye(12).to_sparse(), "graph", [[0.0] * 12] * 12])
def test_what_is_not_a_graph_is_refused_by_name(call, graph):
    with pytest.raises((ValueError, TypeError), match=rf"{call.__name__}\(graph=.*NeighborGraph"):
        call(graph, LABELS, 3, **({"steps": 2} if call is diffuse else {"size": 2}))
