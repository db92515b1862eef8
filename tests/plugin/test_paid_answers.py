"""What an oracle may answer, what is kept of it, and whose points it was about."""

import itertools
import json

import numpy as np
import pytest
import torch

from lightning_diffal import ActiveLearning
from lightning_diffal.selectors.random import RandomSelector
from tests.plugin.toy_model import Clouds, Data, Net, learner, quiet

TRUTH = Clouds().targets.tolist()
FIRST = 10


def fit(folder, oracle, data=None, initial=FIRST, budget=FIRST, **options):
    active = ActiveLearning(
        5, budget, selector=RandomSelector(), initial=initial, oracle=oracle, **{"num_classes": 3} | options
    )
    trainer = quiet(folder, active, max_epochs=1, limit_val_batches=0)
    return active.fit(trainer, Net(), datamodule=data or Data())


def answers_of(folder):
    path = folder / "active_learning" / "answers.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {index: label for line in lines for index, label in zip(line["indices"], line["labels"], strict=True)}


def ledger_of(folder):
    return [json.loads(line) for line in (folder / "active_learning" / "rounds.jsonl").read_text().splitlines()]


def revealed(folder):
    return dict(pair for line in ledger_of(folder) for pair in zip(line["indices"], line["labels"], strict=True))


class Honest:
    """Answers right and counts what it is paid for."""

    def __init__(self):
        self.asked = []

    def __call__(self, indices):
        self.asked += indices
        return [TRUTH[index] for index in indices]


# What an answer may look like


@pytest.mark.parametrize(
    "shape",
    [
        list,
        tuple,
        torch.tensor,
        np.array,
        lambda labels: torch.tensor(labels)[:, None],
        lambda labels: np.array(labels, dtype=np.uint8),
        lambda labels: [float(label) for label in labels],
        lambda labels: [torch.tensor([label]) for label in labels],
        iter,
        lambda labels: (label for label in labels),
    ],
    ids=["list", "tuple", "tensor", "array", "column", "uint8", "floats", "tensors", "iterator", "generator"],
)
def test_answers_in_any_usual_shape_are_taken(tmp_path, shape):
    fit(tmp_path, lambda indices: shape([TRUTH[index] for index in indices]))
    assert len(revealed(tmp_path)) == FIRST
    assert all(TRUTH[index] == label for index, label in revealed(tmp_path).items())


def test_a_dictionary_is_read_by_index_and_not_by_order(tmp_path):
    fit(tmp_path, lambda indices: {index: TRUTH[index] for index in reversed(indices)})
    assert len(revealed(tmp_path)) == FIRST
    assert all(TRUTH[index] == label for index, label in revealed(tmp_path).items())


# What is refused, by name, and what is kept then


def one_wrong(value):
    """Right but for the fourth answer."""

    def oracle(indices):
        labels = [TRUTH[index] for index in indices]
        return [*labels[:3], value, *labels[4:]]

    return oracle


WRONG = [
    (77, "77"),
    (3, "3"),
    (-1, "-1"),
    (2**70, "1180591620717411303424"),
    (2**63, "9223372036854775808"),
    (3.7, "3.7"),
    (float("inf"), "inf"),
    (float("nan"), "nan"),
    (None, "None"),
    ("cat", "cat"),
    ("1", "1"),
    ([1, 2], "list"),
    (torch.ones(2), "shape"),
    (1 + 0j, "complex"),
]


@pytest.mark.parametrize(("value", "named"), WRONG, ids=[named for _, named in WRONG])
def test_a_wrong_answer_is_named_and_the_others_are_kept(tmp_path, value, named):
    with pytest.raises((ValueError, TypeError), match=r"oracle") as refused:
        fit(tmp_path, one_wrong(value))
    assert named in str(refused.value)
    kept = answers_of(tmp_path)
    assert len(kept) == FIRST - 1, "nine were paid for and are kept"
    assert all(TRUTH[index] == label for index, label in kept.items())
    honest = Honest()
    fit(tmp_path, honest)
    assert len(honest.asked) == 1, "and the run goes on"
    assert str(honest.asked[0]) in str(refused.value), "the point was named, too"
    assert all(TRUTH[index] == label for index, label in revealed(tmp_path).items())


@pytest.mark.parametrize(
    ("oracle", "named"),
    [
        (lambda indices: None, "None"),
        (lambda indices: 5, "5"),
        (lambda indices: [0] * (len(indices) - 1), "9"),
        (lambda indices: [0] * (len(indices) + 1), "11"),
        (lambda indices: [], "0"),
        (lambda indices: {}, "0"),
        (set, "set"),
        (lambda indices: "0" * len(indices), "str"),
        (lambda indices: torch.zeros(len(indices), 3), "shape"),
        (lambda indices: torch.tensor(0), "Tensor"),
        (lambda indices: itertools.repeat(0), "10"),
    ],
    ids=["None", "number", "few", "many", "none", "empty dict", "set", "str", "logits", "scalar", "endless"],
)
def test_answers_that_cannot_belong_to_the_points_are_refused_and_none_is_believed(tmp_path, oracle, named):
    with pytest.raises((ValueError, TypeError), match=r"oracle") as refused:
        fit(tmp_path, oracle)
    assert named in str(refused.value)
    assert answers_of(tmp_path) == {}
    honest = Honest()
    fit(tmp_path, honest)
    assert len(honest.asked) == FIRST


def test_a_dictionary_with_gaps_and_strangers_keeps_what_was_asked(tmp_path):
    def partly(indices):
        return {index: TRUTH[index] for index in indices[:7]} | {119: 0, 118: 1, "x": 2}

    with pytest.raises(ValueError, match=r"oracle.*no answer") as refused:
        fit(tmp_path, partly, initial=list(range(FIRST)))
    assert "119" in str(refused.value)
    assert "7" in str(refused.value)
    assert answers_of(tmp_path) == {index: TRUTH[index] for index in range(7)}


def test_a_generator_that_fails_at_its_tenth_answer_keeps_nine(tmp_path):
    def tiring(indices):
        for index in indices[:9]:
            yield TRUTH[index]
        raise ConnectionError("the service is down")

    with pytest.raises(ConnectionError, match="the service is down"):
        fit(tmp_path, tiring)
    assert len(answers_of(tmp_path)) == 9
    honest = Honest()
    fit(tmp_path, honest)
    assert len(honest.asked) == 1
    assert all(TRUTH[index] == label for index, label in revealed(tmp_path).items())


def test_each_answer_of_a_generator_is_on_the_disk_before_the_next_is_asked_for(tmp_path):
    seen = []

    def one_by_one(indices):
        for index in indices:
            seen.append(len(answers_of(tmp_path)))
            yield TRUTH[index]

    fit(tmp_path, one_by_one)
    assert seen == list(range(FIRST))


def test_the_width_of_the_classifier_is_known_before_the_first_question(tmp_path):
    active = learner(oracle=lambda indices: [77] * len(indices))
    with pytest.raises(ValueError, match=r"77.*3 classes"):
        active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    assert answers_of(tmp_path) == {}


# Whose points they are


class Shuffled(Clouds):
    def __init__(self):
        super().__init__()
        order = torch.randperm(len(self.x), generator=torch.Generator().manual_seed(1))
        self.x, self.targets = self.x[order], self.targets[order]


def killed_after_the_answers(folder):
    """The answers are on the disk and the ledger is not."""
    honest = Honest()
    fit(folder, honest)
    (folder / "active_learning" / "rounds.jsonl").unlink()
    (folder / "active_learning" / "selection.csv").unlink()


def test_answers_about_other_rows_are_refused(tmp_path):
    killed_after_the_answers(tmp_path)
    with pytest.raises(ValueError, match=r"answers\.jsonl, line 1: .*another dataset"):
        fit(tmp_path, Honest(), Data(Shuffled()))
    honest = Honest()
    fit(tmp_path, honest)
    assert honest.asked == [], "and with the right data nothing is paid for again"


def rewrite(path, change):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(change(line)) + "\n" for line in lines))


OLD = ("indices", "labels")


@pytest.mark.parametrize(
    "change",
    [
        lambda line: {name: line[name] for name in OLD},
        lambda line: {name: line[name] for name in reversed(OLD)},
        lambda line: {"by": "Ada"} | {name: line[name] for name in OLD},
    ],
    ids=["as it was", "other order", "extra field"],
)
@pytest.mark.filterwarnings("ignore:.*answers.jsonl")
def test_answers_of_older_versions_are_read_by_their_names(tmp_path, change):
    killed_after_the_answers(tmp_path)
    rewrite(tmp_path / "active_learning" / "answers.jsonl", change)
    honest = Honest()
    fit(tmp_path, honest)
    assert honest.asked == []
    assert all(TRUTH[index] == label for index, label in revealed(tmp_path).items())


@pytest.mark.parametrize("label", [77, 2**70, 3.7, None, "cat", -1])
@pytest.mark.filterwarnings("ignore:.*answers.jsonl")
def test_a_bad_answer_that_an_older_version_stored_is_reported_with_a_remedy_that_works(tmp_path, label):
    from lightning_diffal.studies.cli import main

    killed_after_the_answers(tmp_path)
    path = tmp_path / "active_learning" / "answers.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    old = [{name: line[name] for name in OLD} for line in lines]
    point = old[0]["indices"][0]
    old[0]["labels"][0] = label
    path.write_text("".join(json.dumps(line) + "\n" for line in old))
    with pytest.raises(ValueError, match=r"answers\.jsonl, line 1: .*lightning-diffal correct"):
        fit(tmp_path, Honest())
    assert main(["correct", str(tmp_path / "active_learning"), str(point), str(TRUTH[point])]) == 0
    honest = Honest()
    fit(tmp_path, honest)
    assert honest.asked == []
    assert revealed(tmp_path)[point] == TRUTH[point]


def test_what_was_paid_and_could_not_be_used_is_kept_for_people(tmp_path):
    with pytest.raises(ValueError, match="oracle"):
        fit(tmp_path, lambda indices: [0] * (len(indices) - 1))
    kept = json.loads((tmp_path / "active_learning" / "answers.rejected.jsonl").read_text())
    assert kept["answers"] == repr([0] * (FIRST - 1))
    assert len(kept["indices"]) == FIRST
