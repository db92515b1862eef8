"""Users' own checkpoints: a fixed name such as best.ckpt is the newest round's, earlier rounds have folders."""

import json
from pathlib import Path
from typing import Any, Final

from fsspec.core import url_to_fs  # type: ignore[import-untyped]

from lightning_diffal.pool.folder.files import write_atomically

INDEX: Final = "model_checkpoints.json"
SUFFIX: Final = ".ckpt"
INTERRUPTED: Final = "interrupted"


def move_earlier_checkpoints(trainer: Any, folder: Path, round_number: int) -> None:
    """Before a round trains: move what ModelCheckpoint wrote in the round before to `round_NNN` beside it.

    Else ModelCheckpoint would find the name taken and write best-v1.ckpt. What an interrupted attempt at this round
    left goes to `interrupted`, in place of what was there. Files from before the run stay where they are. Which are
    whose is kept in `model_checkpoints.json` of the run's folder, so that it is known after a kill, too.
    """
    if trainer.is_global_zero:
        path = folder / INDEX
        index: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        paths = {str(getattr(callback, "dirpath", None) or "") for callback in trainer.checkpoint_callbacks} - {""}
        for dirpath in sorted(paths):
            others = index[dirpath]["others"] if dirpath in index else names_in(dirpath)
            if dirpath in index:
                earlier = index[dirpath]["round"]
                target = f"round_{earlier:03}" if earlier < round_number else INTERRUPTED
                move(dirpath, sorted(set(names_in(dirpath)) - set(others)), target)
            index[dirpath] = {"round": round_number, "others": others}
        if paths:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, lambda temporary: temporary.write_text(json.dumps(index, indent=1)))
    trainer.strategy.barrier()


def names_in(dirpath: str) -> list[str]:
    """The checkpoints in a folder: files, links, or folders where weights are sharded."""
    files, root = url_to_fs(dirpath)
    if not files.isdir(root):
        return []
    names = [str(path).rstrip("/").rsplit("/", 1)[-1] for path in files.ls(root, detail=False)]
    return sorted(name for name in names if name.endswith(SUFFIX))


def move(dirpath: str, names: list[str], target: str) -> None:
    """Move checkpoints to a folder beside them, on whatever file system Lightning writes to."""
    if not names:
        return
    files, root = url_to_fs(dirpath)
    if target == INTERRUPTED and files.isdir(f"{root}/{target}"):
        files.rm(f"{root}/{target}", recursive=True)
    files.makedirs(f"{root}/{target}", exist_ok=True)
    for name in names:
        files.mv(f"{root}/{name}", f"{root}/{target}/{name}", recursive=True)
