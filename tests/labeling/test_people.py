"""A run that people answer: it asks, ends, goes on at the question; items need no labels."""

import json
import threading
import time
from contextlib import suppress
from typing import ClassVar

import lightning as L  # noqa: N812, as Lightning's own documentation does
import pytest
import torch
from torch.utils.data import DataLoader

from lightning_diffal import ActiveLearning, People
from lightning_diffal.labeling.query_files import read_questions
from lightning_diffal.labeling.question import Answer
from lightning_diffal.labeling.store import open_query, store_answers
from lightning_diffal.selectors import MarginSelector, RandomSelector
from tests.labeling.unlabeled_pictures import CLASSES, Net, Pictures, fit, learner, make_pictures, trainer_for
from tests.plugin.rank_processes import run_ranks
from tests.plugin.toy_model import Clouds, Data, quiet
from tests.plugin.toy_model import Net as CloudNet

TRUTH = [CLASSES[index % 3] for index in range(60)]


@pytest.fixture
def place(tmp_path):
    make_pictures(tmp_path / "pictures")
    return tmp_path


def lines_of(folder):
    return [json.loads(line) for line in (folder / "run" / "rounds.jsonl").read_text().splitlines()]


def answer_all(folder, **others):
    query = open_query(folder / "run")
    answers = [Answer(index=question.index, label=TRUTH[question.index]) for question in query.remaining]
    assert store_answers(folder / "run", answers, "ada").refused == []
    return query


class Counting(Net):
    """Notes the labels of each fit, but not of the trial batch before the first question."""

    fits: ClassVar = []

    def is_trial(self):
        return not any(isinstance(callback, ActiveLearning) for callback in self.trainer.callbacks)

    def on_train_start(self):
        if not self.is_trial():
            self.fits.append({})

    def training_step(self, batch, batch_idx):
        for x, y in zip(*batch, strict=True) if not self.is_trial() else ():
            self.fits[-1][round(float(x.sum()), 3)] = int(y)
        return super().training_step(batch, batch_idx)


def key_of(dataset, index):
    return round(float(dataset[index].sum()), 3)


def test_from_no_label_at_all_to_the_third_round(place):
    dataset = Pictures(place / "pictures")
    Counting.fits = []

    def go_on():
        active = learner(place, budget=18)
        loader = DataLoader(dataset, batch_size=4, shuffle=True)
        return active, active.fit(trainer_for(place, active, 2), Counting(), loader)

    active, history = go_on()
    assert (history.waiting.round, len(history.waiting.indices), Counting.fits) == (0, 6, [])
    assert [question.reason for question in open_query(place / "run").questions] == ["first"] * 6
    known = {}
    for fits in (1, 2):
        asked = active.history.waiting.indices
        outcome = active.answer({index: TRUTH[index] if index % 2 else index % 3 for index in asked}, "ada")
        assert len(outcome.stored) == 6
        known |= {key_of(dataset, index): index % 3 for index in asked}
        active, history = go_on()
        assert history.labels == [6, 12][:fits]
        assert Counting.fits[-1] == known, "the labels that people gave, and no others"
        query = open_query(place / "run")
        assert history.waiting.round == query.round == fits
        for question in query.questions:
            assert question.reason in ("explore", "refine")
            assert question.prediction in CLASSES
            assert 1 / 3 <= question.probability <= 1
            assert len(question.neighbors) == 6
            assert all(neighbor.label == TRUTH[neighbor.index] for neighbor in question.neighbors)
            assert question.file(place / "run").read_bytes().startswith(b"\x89PNG")
    active.answer(dict.fromkeys(active.history.waiting.indices, "bright"))
    active, history = go_on()
    assert (history.labels, history.waiting) == ([6, 12, 18], None)
    assert len(Counting.fits) == 3, "no round was fitted twice"
    kinds = [line["kind"] for line in lines_of(place)]
    assert kinds == ["asked", "answered"] * 3 + ["round"]


def test_a_run_without_answers_ends_at_once_and_trains_nothing(place):
    fit(place)
    before = (place / "run" / "rounds.jsonl").read_bytes()
    active, model = learner(place), Counting()
    model.fits = []
    trainer = trainer_for(place, active)
    trainer.fit(model, DataLoader(Pictures(place / "pictures"), batch_size=4))
    assert (model.fits, trainer.global_step) == ([], 0)
    assert active.history.waiting.round == 0
    assert (place / "run" / "rounds.jsonl").read_bytes() == before
    answer_all(place)
    trainer = trainer_for(place, active, 1)
    trainer.fit(model, DataLoader(Pictures(place / "pictures"), batch_size=4))
    assert len(model.fits[0]) == 6
    assert active.history.waiting.round == 1


def test_points_that_were_skipped_are_never_asked_again_and_never_trained_on(place):
    options = {"wait_for": "any", "query_size": 8, "budget": 60, "initial": 6, "epochs": 1}
    skipped = set()
    for _ in range(3):
        history = fit(place, **options)
        asked = history.waiting.indices
        assert not skipped & set(asked)
        said = {index: None if number % 3 == 0 else TRUTH[index] for number, index in enumerate(asked[:5])}
        skipped |= {index for index, label in said.items() if label is None}
        learner(place, **{name: options[name] for name in ("wait_for", "query_size", "budget", "initial")}).answer(said)
    records = fit(place, **options).records
    labeled = {
        index
        for record in records
        for index, label in zip(record.indices, record.labels, strict=True)
        if label is not None
    }
    assert not labeled & skipped
    answered_late = [line for line in lines_of(place) if line["kind"] == "answered" and not line["indices"]]
    assert not answered_late


def test_a_script_that_waits_goes_on_when_the_answers_come(place, monkeypatch):
    monkeypatch.setattr("lightning_diffal.plugin.waiting.POLL_SECONDS", 0.02)

    def people():
        while len(answered) < 2:
            time.sleep(0.02)
            query = None
            with suppress(ValueError):  # there is no question yet
                query = open_query(place / "run")
            if query is not None and query.remaining and query.round not in answered:
                answered.append(answer_all(place).round)

    answered = []
    thread = threading.Thread(target=people, daemon=True)
    thread.start()
    history = fit(place, wait=True, budget=12, epochs=1)
    assert (history.labels, history.waiting, answered) == ([6, 12], None, [0, 1])
    thread.join(5)


def test_a_classifier_that_is_too_narrow_for_a_new_class_is_named(place):
    options = {"allow_new_classes": True, "epochs": 1}
    fit(place, **options)
    query = answer_all(place)
    store_answers(place / "run", [Answer(index=query.questions[0].index, label="plaid")])
    with pytest.raises(Exception, match=r"label 3 .*classifier has 3 outputs.*at least 4 outputs"):
        fit(place, **options)
    assert open_query(place / "run") is None, "the answers are in the ledger, for a wider model"


def test_the_first_query_may_be_of_the_untrained_model(place):
    history = fit(place, initial=0)
    assert history.waiting.round == 0
    questions = open_query(place / "run").questions
    assert questions[0].reason == "explore"
    assert {question.prediction for question in questions} <= set(CLASSES)


def test_labels_of_people_replace_those_of_the_dataset(tmp_path):
    people = People(["a", "b", "c"])
    active = ActiveLearning(4, 8, selector=MarginSelector(), initial=4, oracle=people, folder=tmp_path / "run")
    seen = []

    class Watched(CloudNet):
        def training_step(self, batch, batch_idx):
            seen.extend(batch[1].tolist())
            return super().training_step(batch, batch_idx)

    active.fit(quiet(tmp_path, active, max_epochs=1, limit_val_batches=0), Watched(), datamodule=Data())
    active.answer(dict.fromkeys(active.history.waiting.indices, "b"))
    seen.clear()
    active.fit(quiet(tmp_path, active, max_epochs=1, limit_val_batches=0), Watched(), datamodule=Data())
    assert seen == [1] * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": ["a"]}, "at least two different names"),
        ({"classes": ["a", "a"]}, "at least two different names"),
        ({"classes": "ab"}, "a list of at least two"),
        ({"classes": ["a", " b"]}, "without spaces"),
        ({"classes": ["a", "b"], "wait_for": "some"}, "'all' or 'any'"),
        ({"classes": ["a", "b"], "render": 3}, "a function is needed"),
        ({"classes": ["a", "b"], "allow_new_classes": 1}, "True or False"),
    ],
)
def test_people_are_described_rightly(arguments, message):
    with pytest.raises(ValueError, match=message):
        People(**arguments)


def test_an_oracle_that_fails_does_not_cost_the_round_that_was_trained(tmp_path):
    truth, fits, asked = Clouds().targets.tolist(), [], []

    class Watched(CloudNet):
        def on_train_start(self):
            super().on_train_start()
            fits.append(len(self.trainer.train_dataloader.dataset))

    def run(oracle):
        active = ActiveLearning(4, 12, selector=MarginSelector(), initial=4, oracle=oracle, folder=tmp_path / "run")
        trainer = quiet(tmp_path, active, max_epochs=1, limit_val_batches=0)
        return active.fit(trainer, Watched(), datamodule=Data())

    def fails_later(indices):
        asked.append(indices)
        if len(asked) == 2:
            raise ConnectionError("nobody answers")
        return [truth[index] for index in indices]

    with pytest.raises(ConnectionError, match="nobody answers"):
        run(fails_later)
    assert fits[-1] == 4
    assert lines_of(tmp_path)[-1]["kind"] == "asked"
    before = len(fits)
    history = run(lambda indices: asked.append(indices) or [truth[index] for index in indices])
    assert asked[2] == asked[1], "it goes on at the question"
    assert fits[before:] == [8, 12], "and the first fit is not repeated"
    assert history.labels == [4, 8, 12]
    assert {line["kind"] for line in lines_of(tmp_path)} == {"round"}


@pytest.mark.filterwarnings("ignore")
def test_every_rank_hears_what_is_waited_for(place):
    def rank():
        active = learner(place)
        trainer = L.Trainer(
            max_epochs=1, callbacks=[active], default_root_dir=place, accelerator="cpu", logger=False, devices=2,
            strategy="ddp", enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        history = active.fit(trainer, Net(), DataLoader(Pictures(place / "pictures"), batch_size=4))
        note = f"{history.waiting.round} {len(history.waiting.indices)}"
        (place / f"rank{torch.distributed.get_rank()}.txt").write_text(note)

    for number in (0, 1):
        assert run_ranks(place, rank) == [None, None]
        assert [(place / f"rank{rank}.txt").read_text() for rank in (0, 1)] == [f"{number} 6"] * 2
        answer_all(place)


def test_with_features_the_guess_of_the_graph_and_the_neighbors_are_by_them(tmp_path):
    class Noise(torch.nn.Module):
        def forward(self, x):
            return (1e4 * x[:, :1]).sin().expand(-1, 16)

    class Lost(CloudNet):
        """Its embedding says nothing."""

        def __init__(self):
            super().__init__()
            self.backbone = Noise()

    truth = Clouds().targets
    features = torch.cat([torch.nn.functional.one_hot(truth, 3), 0.01 * Clouds().x], dim=1)
    for _ in range(2):
        active = ActiveLearning(
            10, 40, initial=30, selector=RandomSelector(), features=features, oracle=People(["a", "b", "c"])
        )
        asked = active.fit(quiet(tmp_path, active, max_epochs=1, limit_val_batches=0), Lost(), datamodule=Data())
        active.answer({index: int(truth[index]) for index in asked.waiting.indices})
    questions = read_questions(tmp_path / "active_learning", "query_001")
    assert len(questions) == 10
    for question in questions:
        name = "abc"[int(truth[question.index])]
        assert question.diffused == name
        assert {neighbor.label for neighbor in question.neighbors} == {name}
