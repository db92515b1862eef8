"""The rooms of the house: who may import whom, and what a user may import."""

import ast
import subprocess
import sys
from pathlib import Path

import lightning_diffal

PACKAGE = Path(lightning_diffal.__file__).parent
# Each room may import itself and the rooms before it; the modules at the top belong to all.
ROOMS = ["graph", "diffusion", "selectors"]
TOP = {"arguments", "labels", "watch"}
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
    for place, room in enumerate(ROOMS):
        allowed = {f"lightning_diffal.{name}" for name in ROOMS[: place + 1]} | {f"lightning_diffal.{n}" for n in TOP}
        files = list((PACKAGE / room).glob("*.py"))
        assert files
        for file in files:
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module.startswith("lightning_diffal"):
                    assert ".".join(node.module.split(".")[:2]) in allowed, f"{file}: {node.module}"


def test_public_names():
    names = {name for name in vars(lightning_diffal) if not name.startswith("_")}
    rooms = {*ROOMS, "pool", "plugin"}
    besides = names - PUBLIC - rooms - TOP
    assert besides <= {"jaxtyping", "TYPE_CHECKING", "Any"}, "jaxtyping puts itself there under pytest"
    assert names >= PUBLIC
