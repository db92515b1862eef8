"""The rooms of the house: who may import whom, and what a user may import."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import lightning_diffal

PACKAGE = Path(lightning_diffal.__file__).parent
# Whom the files of a room may import, beside themselves and the modules at the top, which belong to all.
ROOMS = {
    "numerics": [],
    "graph": ["numerics"],
    "diffusion": ["numerics", "graph"],
    "selectors": ["numerics", "graph", "diffusion"],
    "pool": [],
    "labeling": ["pool"],
    "plugin": ["numerics", "graph", "diffusion", "selectors", "pool", "labeling"],
    "report": ["pool", "labeling"],
    # Nothing imports them.
    "studies": ["numerics", "graph", "diffusion", "selectors", "pool", "labeling", "plugin", "report"],
}
TOP = {"arguments", "distributed", "labels", "progress"}
PUBLIC = {
    "ActiveLearning",
    "DiffusionActiveLearning",
    "History",
    "LabeledSampler",
    "LearnFromGraph",
    "NeighborGraph",
    "People",
    "PerClass",
    "Query",
    "ScoreSelector",
    "Selector",
    "Snapshot",
    "UNLABELED",
    "batch_query",
    "build_graph",
    "diffuse",
}
NEED_LIGHTNING = {"ActiveLearning", "DiffusionActiveLearning", "LabeledSampler"}


STEPS = {
    "a selector": "import lightning_diffal; lightning_diffal.Selector",
    "a graph": "import torch; lightning_diffal.build_graph(torch.randn(40, 20), 2)",
    "the callback": "lightning_diffal.DiffusionActiveLearning",
}


@pytest.fixture(scope="module")
def loaded():
    """The packages that a fresh interpreter has imported after each step, one after another."""
    note = "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    script = "import json, sys\n" + "".join(f"{code}\n{note}\n" for code in STEPS.values())
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return dict(zip(STEPS, (set(json.loads(line)) for line in ended.stdout.splitlines()), strict=True))


def test_the_core_never_imports_lightning(loaded):
    forbidden = {"lightning", "pytorch_lightning", "torchmetrics", "torch_cluster", "faiss", "sklearn", "scipy"}
    assert not loaded["a graph"] & forbidden
    assert forbidden & loaded["the callback"], "the check can fail"


def test_rooms_import_in_one_direction():
    for room, others in ROOMS.items():
        allowed = {f"lightning_diffal.{name}" for name in [room, *others, *TOP]}
        files = list((PACKAGE / room).glob("**/*.py"))
        assert files
        for file in files:
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module.startswith("lightning_diffal"):
                    assert ".".join(node.module.split(".")[:2]) in allowed, f"{file}: {node.module}"


def test_public_names():
    assert set(lightning_diffal.__all__) == PUBLIC
    names = {name for name in vars(lightning_diffal) if not name.startswith("_")}
    others = {"jaxtyping", "Any", "TYPE_CHECKING", "import_module"}  # the first puts itself there under pytest
    assert names - PUBLIC <= set(ROOMS) | TOP | others
    assert names >= PUBLIC - NEED_LIGHTNING - {"People"}
    assert set(dir(lightning_diffal)) >= PUBLIC


def test_a_star_import_gives_all_public_names():
    given = {}
    exec("from lightning_diffal import *", given)
    assert set(given) - {"__builtins__"} == PUBLIC
    assert all(given.values())
    exec("from lightning_diffal.selectors import *", given := {})
    assert set(given) - {"__builtins__"} == set(lightning_diffal.selectors.__all__)


def test_every_selector_is_imported_from_the_room_of_selectors():
    found = set()
    for file in (PACKAGE / "selectors").glob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("Selector"):
                found.add(node.name)
    inner = {"BatchSelector", "CallableSelector", "PointSelector", "ProbabilitySelector"}
    assert found - inner == {name for name in lightning_diffal.selectors.__all__ if name.endswith("Selector")}


def test_public_names_that_need_lightning_are_imported_at_their_first_use(loaded):
    assert "lightning" not in loaded["a selector"]
    assert "lightning" in loaded["the callback"]
