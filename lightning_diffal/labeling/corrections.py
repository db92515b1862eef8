"""Answers about points that have a label: corrections, written to the ledger as soon as nobody else owns it."""

from pathlib import Path

from lightning_diffal.labeling.annotations import Annotations
from lightning_diffal.labeling.collect import Numbering, corrections_in
from lightning_diffal.labeling.store import names_of_classes
from lightning_diffal.pool.folder.check import read_run
from lightning_diffal.pool.folder.folder_lock import FolderInUseError
from lightning_diffal.pool.folder.repair import owned
from lightning_diffal.pool.ledger import Ledger
from lightning_diffal.pool.record import Correction


def apply_corrections(folder: Path) -> list[Correction] | None:
    """Write to the ledger what people have said anew about labeled points. The next fit trains on it.

    Returns None if a run owns the folder: it does the same itself when it goes on.
    """
    try:
        with owned(folder):
            files = read_run(folder)
            if files.ledger_problems:
                return []
            ledger = Ledger(folder)
            assert ledger.file is not None
            ledger.file.read()
            ledger.entries = list(files.entries)
            numbering = Numbering(names_of_classes(files) or [])
            found = corrections_in(files.entries, Annotations(folder).latest, numbering)
            for correction in found:
                ledger.correct(correction)
            return found
    except FolderInUseError:
        return None
