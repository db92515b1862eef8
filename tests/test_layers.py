"""The rooms of the house: who may import whom, and what a user may import."""

import ast
import subprocess
import sys
from pathlib import Path

import lightning_diffal

PACKAGE = Path(lightning_diffal.__file__).parent
# Whom the files of a room may import, beside themselves and the modules at the top, which belong to all.
ROOMS = {
    "numerics": [],
    "graph": ["numerics"],
    "diffusion": ["numerics", "graph"],
    "selectors": ["numerics", "graph", "diffusion"],
    "pool": [],
    "plugin": ["numerics", "graph", "diffusion", "selectors", "pool"],
    "studies": ["numerics", "graph", "diffusion", "selectors", "pool", "plugin"],  # and nothing imports them
}
TOP = {"arguments", "distributed", "labels", "progress"}
PUBLIC = {
    "BADGESelector",
    "BALDSelector",
    "CoresetSelector",
    "DiffusionSelector",
    "DirichletSelector",
    "EntropySelector",
    "History",
    "LabelPool",
    "LocalMaxSelector",
    "MarginSelector",
    "NeighborGraph",
    "PerClass",
    "PoissonSelector",
    "ProbCoverSelector",
    "Query",
    "RandomSelector",
    "Ranks",
    "ScoreSelector",
    "Selector",
    "Snapshot",
    "StochasticPasses",
    "TypiClustSelector",
    "UNLABELED",
    "UncertaintySelector",
    "batch_query",
    "build_graph",
    "diffuse",
    "take_lowest",
}


def modules_loaded_by(code):
    script = f"{code}\nimport sys; print(*sorted(name.split('.')[0] for name in sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )


def test_the_core_never_imports_lightning():
    forbidden = {"lightning", "pytorch_lightning", "torchmetrics", "torch_cluster", "faiss", "sklearn", "scipy"}
    code = "import torch, lightning_diffal; lightning_diffal.build_graph(torch.randn(40, 20), 2)"
    assert not modules_loaded_by(code) & forbidden
    assert "lightning" in modules_loaded_by("import lightning"), "the check can fail"


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
    names = {name for name in vars(lightning_diffal) if not name.startswith("_")}
    others = {"jaxtyping", "Any", "TYPE_CHECKING", "import_module"}  # the first puts itself there under pytest
    assert names - PUBLIC <= set(ROOMS) | TOP | others
    assert names >= PUBLIC


def test_public_names_that_need_lightning_come_when_they_are_asked_for():
    assert "lightning" in modules_loaded_by("import lightning_diffal\nlightning_diffal.DiffusionActiveLearning")
    assert {"ActiveLearning", "DiffusionActiveLearning", "LabeledSampler"} <= set(dir(lightning_diffal))
