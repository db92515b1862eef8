"""What one run of a study came to: a small JSON file, written once and whole. Reports read these and nothing else."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from lightning_diffal.pool.files import flush_folder


@dataclass(frozen=True, kw_only=True)
class Round:
    """A fit, and the query after it."""

    labels: int
    """Labels the fit was trained on."""
    accuracy: float
    """On the test set, after the fit."""
    asked: list[int]
    """The points asked after the fit, as indices into the pool; empty after the last fit."""
    reached: list[bool | None]
    """Of each of them, whether a label had reached it: False explores, True refines, None where no graph was asked."""
    unreached: int | None
    """Unlabeled points no label had reached before the query."""
    seconds: dict[str, float]
    """What the fit and the stages of the query took: "fit", "embedding", "graph", "query"."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One study with one selector and one seed, from the first labels to the last fit."""

    study: str
    selector: str
    """The name it was asked for by, as "diffusion"."""
    seed: int
    settings: dict[str, Any]
    """All that decides the outcome beside the seed: the study's numbers, and the selector with its parameters."""
    initial: list[int]
    """The first labels, as indices into the pool."""
    rounds: list[Round]
    points: dict[str, list[float]] = field(default_factory=dict)
    """Of pools in the plane, the coordinates of every point that was labeled, by its index."""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where this result belongs, under the folder of all results."""
        return result_path(self.study, self.selector, self.seed, self.settings)

    def write(self, folder: Path) -> Path:
        """The file is there whole, or it is not there."""
        path = folder / self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.draft")
        with draft.open("w") as file:
            json.dump(asdict(self), file, allow_nan=False, separators=(",", ":"))
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        flush_folder(path.parent)
        return path

    @staticmethod
    def read(path: Path) -> "Result":
        try:
            content = json.loads(path.read_text())
            rounds = [Round(**known(Round, row)) for row in content.pop("rounds")]
            return Result(rounds=rounds, **known(Result, content))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: this is not a result of `lightning-diffal run` ({error}).") from error


def result_path(study: str, selector: str, seed: int, settings: dict[str, Any]) -> Path:
    """Other settings, another file: STUDY/SELECTOR-SEED-KEY.json."""
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    return Path(study) / f"{selector}-{seed}-{key}.json"


def known(kind: type, content: dict[str, Any]) -> dict[str, Any]:
    """The fields of a kind, whatever a later version has added."""
    names = {part.name for part in fields(kind)}
    return {name: value for name, value in content.items() if name in names}


def read_results(folder: Path) -> list[Result]:
    """All results under a folder, in the order of their paths."""
    return [Result.read(path) for path in sorted(folder.glob("*/*.json"))]
