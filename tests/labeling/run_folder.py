"""The folder of a run that asks people, written without a model."""

from lightning_diffal.labeling.query_files import query_name, write_questions
from lightning_diffal.labeling.question import Question
from lightning_diffal.pool.label_pool import LabelPool
from lightning_diffal.pool.ledger import Ledger
from lightning_diffal.pool.record import Answered, Record

CLASSES = ["cat", "dog", "eel"]
SIZE = 100


def question_of(round_number, indices, labeled=0, **options):
    unknown = [None] * len(indices)
    return Record(
        round=round_number,
        labeled=labeled,
        indices=list(indices),
        labels=[*unknown],
        scores=[*unknown],
        reached=[*unknown],
        selector="Random()",
        seeds={"run": 0, "round": round_number},
        initial="3",
        dataset=f"{SIZE}-0123456789abcdef",
        asked_at="2026-01-01T00:00:00+00:00",
        classes=CLASSES,
        **options,
    )


def waiting_run(folder, rounds=((3, 1, 4), (10, 11, 12, 13)), new_classes=False):
    """A run whose last round waits for answers; all rounds before were answered "dog"."""
    ledger, pool = Ledger(folder), LabelPool(SIZE)
    for number, indices in enumerate(rounds):
        ledger.append(question_of(number, indices, len(pool.labeled), new_classes=new_classes), pool)
        write_questions(folder, query_name(number), [Question(index=index, text=f"item {index}") for index in indices])
        if number < len(rounds) - 1:
            said = {"labels": [1] * len(indices), "who": ["ada"] * len(indices), "when": ["2026"] * len(indices)}
            ledger.append(Answered(round=number, indices=list(indices), **said), pool)
    return folder
