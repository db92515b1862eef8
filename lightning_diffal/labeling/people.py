"""People as an oracle: the run asks, exits, and continues once the answers are in."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning_diffal.arguments import check_count, check_flag, skip_type_check
from lightning_diffal.labeling.annotations import Annotations
from lightning_diffal.labeling.collect import WAIT_FOR, WaitFor, agreed_classes, new_entries, waiting_for
from lightning_diffal.labeling.pictures import VIEWABLE, item_path, show_item
from lightning_diffal.labeling.query_files import write_questions
from lightning_diffal.labeling.question import Answer, Item, Outcome, Question, Refusal
from lightning_diffal.labeling.store import store_answers
from lightning_diffal.pool.dataset.classes import to_class
from lightning_diffal.pool.dataset.items import LabelField, MapStyle
from lightning_diffal.pool.folder.files import make_folder, write_atomically
from lightning_diffal.pool.history import Waiting
from lightning_diffal.pool.randomness import temporary_seed
from lightning_diffal.pool.record import Entry


class People:
    """`oracle=People(classes=["cat", "dog"])`: people answer, in minutes or days, perhaps on another machine.

    After a fit the folder of the run holds `query_003.csv` and `query_003.json` (to import into Label Studio), and
    `active.fit` returns a history that says what it waits for. People answer with `lightning-diffal label DIR` (a
    browser page), with `lightning-diffal answers DIR FILE` (the CSV with its label column filled in, or an export of
    Label Studio), or with `active.answer({index: label})`. Start the same script again to continue with the next fit.

    Args:
        classes: Names of the classes, in order: the first is class 0 of the model. They may be added to later.
        wait_for: "all" continues when every point has an answer, "any" as soon as one has a label. Points without an
            answer may be chosen again, and a late answer is used in the next fit.
        render: `(item) -> path, text or image`, for items that are neither text nor pictures.
        allow_new_classes: Whether people may name classes that are not among `classes`; they get the next numbers. The
            model needs enough outputs.
        neighbors: Labeled points that are shown beside a question, on request.
        url: `(path) -> address`, under which Label Studio finds the file of an item.
    """

    immediate = False

    @skip_type_check
    def __init__(
        self,
        classes: Sequence[str],
        *,
        wait_for: WaitFor = "all",
        render: Callable[[Any], Any] | None = None,
        allow_new_classes: bool = False,
        neighbors: int = 6,
        url: Callable[[str], str] | None = None,
    ) -> None:
        names = list(classes) if isinstance(classes, (list, tuple)) else []
        if not all(isinstance(name, str) and name.strip() == name != "" for name in names) or len(set(names)) < max(
            2 - bool(allow_new_classes), len(names)
        ):
            raise ValueError(
                f"People(classes={classes!r:.200}): a list of at least two different names is needed, without spaces "
                "around them."
            )
        if wait_for not in WAIT_FOR:
            raise ValueError(f"People(wait_for={wait_for!r:.60}): 'all' or 'any' is needed.")
        for name, function in (("render", render), ("url", url)):
            if function is not None and not callable(function):
                raise ValueError(f"People({name}={function!r:.60}): a function is needed, or None.")
        check_flag("People", "allow_new_classes", allow_new_classes)
        check_count("People", "neighbors", neighbors)
        self.classes: list[str] = names
        self.wait_for: WaitFor = wait_for
        self.render = render
        self.allow_new_classes, self.neighbors, self.url = allow_new_classes, neighbors, url

    def __repr__(self) -> str:
        return f"People(classes={self.classes}, wait_for={self.wait_for!r})"

    def __call__(self, indices: Sequence[int]) -> list[int]:
        """People do not answer at once: their answers are collected from the folder of the run."""
        raise TypeError("People answer through files and cannot be called. Pass the object itself: oracle=People(...).")

    def name_of(self, number: int) -> str:
        return self.classes[number] if number < len(self.classes) else str(number)

    def update_classes(self, entries: Sequence[Entry]) -> None:
        """Add the names that people have added."""
        self.classes[:] = agreed_classes(self.classes, entries)

    # On rank 0 alone

    def waiting(self, folder: Path, entries: Sequence[Entry]) -> Waiting | None:
        """What the run waits for; None if it may go on."""
        return waiting_for(folder, entries, Annotations(folder).latest, self.wait_for)

    def collect(self, folder: Path, entries: Sequence[Entry], budget: int) -> list[Entry]:
        """The lines that the ledger lacks, of answers that have come since."""
        if not entries:
            return []
        classes = agreed_classes(self.classes, entries)
        return new_entries(entries, Annotations(folder).latest, self.wait_for, budget, classes)

    def answer(self, folder: Path, answers: Mapping[int, Any], who: str) -> Outcome:
        """Answers given in Python: names or numbers of classes by index; None skips a point."""
        good: list[Answer] = []
        refused: list[Refusal] = []
        for index, label in answers.items():
            try:
                point, name = operator.index(index), label if label is None else self.class_of(label)
            except (TypeError, ValueError) as error:
                refused.append(Refusal(reason=f"{index!r:.40}: {label!r:.40}: {error}"))
            else:
                good.append(Answer(index=point, label=name, verdict="skip" if name is None else "label"))
        outcome = store_answers(folder, good, who)
        return replace(outcome, refused=[*refused, *outcome.refused])

    def class_of(self, label: Any) -> str:
        """The name of a class that is given by name or number."""
        if isinstance(label, str):
            return label
        number = to_class(label)
        if not 0 <= number < len(self.classes):
            raise ValueError(f"there are {len(self.classes)} classes, counted from 0.")
        return self.classes[number]

    def write(self, folder: Path, name: str, questions: Sequence[Question]) -> list[Path]:
        """The files of a question. They are complete before the ledger says that it was asked."""
        make_folder(folder)
        return write_questions(folder, name, questions, self.url)

    def show(self, folder: Path, name: str, dataset: MapStyle, index: int, label_field: LabelField) -> Item:
        """What people see of a point. Pictures that have no file are written into the folder `name`."""
        path = item_path(dataset, index) if self.render is None else None
        if path is not None and path.suffix.lower() in VIEWABLE:
            return Item(index=index, path=str(path))
        with temporary_seed(0):  # an item may be augmented at random
            shown = show_item(dataset[index], label_field, self.render)
        if isinstance(shown, str):
            return Item(index=index, text=shown, path=None if path is None else str(path))
        if isinstance(shown, Path):
            return Item(index=index, path=str(shown.absolute()))
        make_folder(folder / name)
        relative = f"{name}/{index}.png"
        write_atomically(folder / relative, lambda temporary: temporary.write_bytes(shown))
        return Item(index=index, path=relative)
