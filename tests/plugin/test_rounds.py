"""Rounds on real Trainers: every one trains, on what is labeled and nothing else, and starts over."""

import json
from collections.abc import Sequence

import lightning as L  # noqa: N812
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from lightning_diffal import ActiveLearning, PerClass
from tests.forked_script import run_script
from tests.plugin.toy_model import Clouds, Data, Net, learner, quiet


def lines_of(tmp_path):
    text = (tmp_path / "active_learning" / "rounds.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_every_round_trains_on_all_that_is_labeled_and_on_nothing_else(tmp_path):
    active, model, data = learner(), Net(), Data()
    history = active.fit(quiet(tmp_path, active), model, datamodule=data)
    assert history.labels == [9, 17, 25, 33]
    known = []
    for fit, line in zip(model.diary, lines_of(tmp_path), strict=False):
        known += line["indices"]
        assert fit["steps"] >= 2
        for epoch in fit["drawn"]:
            assert sorted(epoch) == sorted(known)
    assert len(model.diary) == 4
    truth = Clouds().targets
    assert all(truth[line["indices"]].tolist() == line["labels"] for line in lines_of(tmp_path))


def test_every_round_starts_over(tmp_path):
    stopping = EarlyStopping("val_acc", mode="max", patience=2)
    best = ModelCheckpoint(monitor="val_acc", mode="max", dirpath=tmp_path / "best")
    active, model = learner(), Net()
    seen = []

    class Record(L.Callback):
        def on_train_start(self, trainer, pl_module):
            seen.append((stopping.wait_count, stopping.stopped_epoch, best.best_model_score, dict(best.best_k_models)))

    trainer = quiet(tmp_path, active, stopping, best, Record(), max_epochs=12, enable_checkpointing=True)
    active.fit(trainer, model, datamodule=Data())
    assert len(model.diary) == len(seen) == 4
    for fit in model.diary:
        assert (fit["epoch"], fit["step"], fit["momenta"], fit["lr"]) == (0, 0, 0, 0.01)
        assert torch.equal(fit["weights"], model.diary[0]["weights"])
    assert seen == [(0, 0, None, {})] * 4
    assert all(len(fit["drawn"]) > 2 for fit in model.diary), "a stale EarlyStopping would end after one epoch"


def test_every_round_saves_its_checkpoints(tmp_path):
    # The same number of steps in every round: ModelCheckpoint skips a step that it saved last.
    saving = ModelCheckpoint(dirpath=tmp_path / "saved", save_top_k=-1)
    active = learner()
    trainer = quiet(tmp_path, active, saving, max_epochs=-1, max_steps=4, enable_checkpointing=True)
    active.fit(trainer, Net(), datamodule=Data())
    last = [path for path in (tmp_path / "saved").rglob("*.ckpt") if "step=4" in path.name]
    assert len(last) == 4


def test_a_warm_start_keeps_the_weights_and_nothing_else(tmp_path):
    active, model = learner(warm_start=True), Net()
    ends = []

    class Record(L.Callback):
        def on_train_end(self, trainer, pl_module):
            ends.append(torch.cat([p.detach().flatten().clone() for p in pl_module.parameters()]))

    active.fit(quiet(tmp_path, active, Record()), model, datamodule=Data())
    starts = [fit["weights"] for fit in model.diary]
    assert all(torch.equal(end, start) for end, start in zip(ends, starts[1:], strict=False))
    assert [(fit["epoch"], fit["step"], fit["momenta"]) for fit in model.diary] == [(0, 0, 0)] * 4


def test_a_warm_start_without_the_weights_before_is_refused(tmp_path):
    active = learner(warm_start=True, budget=17)
    active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    (tmp_path / "active_learning" / "trained-2.ckpt").unlink()
    active, model = learner(warm_start=True), Net()
    with pytest.raises(MisconfigurationException, match=r"warm_start=True: .*trained-2.ckpt is not there.* round 3"):
        active.fit(quiet(tmp_path, active), model, datamodule=Data())
    assert not model.diary
    active = learner(warm_start=False)
    assert active.fit(quiet(tmp_path, active), model, datamodule=Data()).labels[-1] == 33


def test_a_function_may_make_the_trainers(tmp_path):
    active, model, made = learner(), Net(), []

    def make():
        made.append(quiet(tmp_path, active))
        return made[-1]

    assert active.fit(make, model, datamodule=Data()).labels == [9, 17, 25, 33]
    assert len(made) == 4
    assert all(torch.equal(fit["weights"], model.diary[0]["weights"]) for fit in model.diary)


def test_one_round_by_hand(tmp_path):
    active, model, data = learner(), Net(), Data()
    for count in (9, 17, 25, 33):
        quiet(tmp_path, active).fit(model, datamodule=data)
        assert [len(epoch) for epoch in model.diary[-1]["drawn"]] == [count] * 2
    assert len(active.history) == 4
    assert sum(len(line["indices"]) for line in lines_of(tmp_path)) == 33, "the budget holds by hand too"


def test_a_fit_that_trains_nothing_is_an_error_and_asks_nothing(tmp_path):
    active, model = learner(), Net()
    trainer = quiet(tmp_path, active)
    trainer.fit(model, datamodule=Data())
    with pytest.raises(MisconfigurationException, match=r"trained no step .*max_epochs=2.*active.fit"):
        trainer.fit(model, datamodule=Data())
    assert len(lines_of(tmp_path)) == 2
    idle = learner(folder=tmp_path / "idle")
    with pytest.raises(MisconfigurationException, match="limit_train_batches=0"):
        idle.fit(quiet(tmp_path, idle, limit_train_batches=0), Net(), datamodule=Data())


def test_the_last_query_nobody_would_train_on_is_not_made(tmp_path):
    truth, asked = Clouds().targets, []

    def oracle(indices):
        asked.append(indices)
        return truth[indices]

    active = learner(oracle=oracle)
    history = active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    assert [len(indices) for indices in asked] == [9, 8, 8, 8]
    assert history[-1]["asked"] == 0


def test_an_uneven_budget_is_spent_to_the_last_label(tmp_path):
    active = learner(budget=20)
    assert active.fit(quiet(tmp_path, active), Net(), datamodule=Data()).labels == [9, 17, 20]


def test_the_run_ends_when_the_pool_is_empty(tmp_path):
    active = learner(budget=1000, query_size=10)
    history = active.fit(quiet(tmp_path, active), Net(), datamodule=Data(Clouds(30)))
    assert history.labels == [9, 19, 29, 30]
    assert lines_of(tmp_path)[-1]["last"] == "pool"


def test_the_run_ends_when_the_user_says_so(tmp_path):
    active = learner(stop_when=lambda history: history[-1]["labels"] >= 17 and history.metric("val_acc")[-1] >= 0)
    assert active.fit(quiet(tmp_path, active), Net(), datamodule=Data()).labels == [9, 17]
    assert [len(line["indices"]) for line in lines_of(tmp_path)] == [9, 8, 0]


# The first labels


def first_labels(tmp_path, **options):
    active = learner(budget=60, **options)
    quiet(tmp_path, active).fit(Net(), datamodule=Data())
    return active.state.ledger.records[0]


def test_a_count_is_drawn_by_seed(tmp_path):
    drawn = [first_labels(tmp_path / str(place), initial=9, seed=seed) for place, seed in enumerate([1, 1, 2])]
    assert len(set(drawn[0].indices)) == 9
    assert drawn[0].indices == drawn[1].indices != drawn[2].indices


def test_a_count_per_class(tmp_path):
    assert sorted(first_labels(tmp_path, initial=PerClass(4)).labels) == [0] * 4 + [1] * 4 + [2] * 4


def test_indices(tmp_path):
    assert first_labels(tmp_path, initial=[3, 99, 7]).indices == [3, 99, 7]


def test_by_default_as_many_as_a_query(tmp_path):
    assert len(first_labels(tmp_path, initial=None).indices) == 8


def test_none_starts_with_a_query_of_the_untrained_model(tmp_path):
    record = first_labels(tmp_path, initial=0)
    assert len(record.indices) == 8
    assert record.unreached == 120
    assert set(record.reached) <= {True, False}


# Other oracles


def test_what_an_oracle_says_is_what_is_trained_on(tmp_path):
    class Diary(Net):
        def training_step(self, batch, batch_idx):
            self.diary[-1]["labels"].update({tuple(x.tolist()): int(y) for x, y in zip(*batch, strict=True)})
            return super().training_step(batch, batch_idx)

    model, clouds = Diary(classes=5), Clouds()
    active = learner(oracle=lambda indices: [index % 5 for index in indices])
    active.fit(quiet(tmp_path, active), model, datamodule=Data(clouds))
    trained = {tuple(clouds.x[index].tolist()): index % 5 for line in lines_of(tmp_path) for index in line["indices"]}
    assert model.diary[-1]["labels"] == trained
    assert len(trained) == 33


def test_an_immediate_oracle_is_asked_after_each_mini_batch(tmp_path):
    truth = Clouds().targets

    class Service:
        immediate, asked = True, []

        def __call__(self, indices):
            self.asked.append(len(indices))
            return truth[indices].tolist()

    service = Service()
    active = learner(oracle=service, budget=17, mini_batch=4)
    active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    assert service.asked == [9, 4, 4]


def test_an_answer_that_was_paid_for_is_never_asked_again(tmp_path):
    truth, asked, ledger = Clouds().targets, [], tmp_path / "active_learning" / "rounds.jsonl"

    def oracle(indices):
        asked.extend(indices)
        return truth[indices]

    def oracle_of_a_round_that_cannot_be_written(indices):
        if len(asked) == 17:
            ledger.write_text(ledger.read_text() + "{}\n")  # another process has changed the ledger
        return oracle(indices)

    active = learner(oracle=oracle_of_a_round_that_cannot_be_written)
    with pytest.raises(RuntimeError, match="another process writes to it"):
        active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    assert len(asked) == 25
    ledger.write_text(ledger.read_text().removesuffix("{}\n"))
    assert sum(len(line.get("labels", ())) for line in lines_of(tmp_path)) == 17
    active = learner(oracle=oracle)
    active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    assert len(asked) == len(set(asked)) == 33


class Secret(Sequence):
    """Labels that note who was read."""

    def __init__(self, labels):
        self.labels, self.read = labels, set()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        self.read.add(int(index))
        return self.labels[index]


def test_a_label_that_was_not_asked_for_is_never_read(tmp_path):
    class Guarded(Clouds):
        def __init__(self):
            super().__init__()
            self.own, self.targets = self.targets, Secret(self.targets)

        def __getitem__(self, index):
            if self.recording:
                self.drawn.append(int(index))
            return self.x[index], self.own[index]

    data, active = Data(Guarded()), learner()
    active.fit(quiet(tmp_path, active), Net(), datamodule=data)
    assert data.dataset.targets.read == set(active.state.pool.labeled.tolist())


# Stopping and going on


class Fragile(Net):
    """Fails in the second round, in the user's own code."""

    fails = True

    def training_step(self, batch, batch_idx):
        if self.fails and len(self.diary) == 2:
            raise RuntimeError("the user's own bug")
        return super().training_step(batch, batch_idx)


def test_an_exception_loses_nothing_that_was_revealed(tmp_path):
    whole = learner(folder=tmp_path / "whole")
    whole.fit(quiet(tmp_path, whole), Net(), datamodule=Data())
    active, data = learner(), Data()
    with pytest.raises(RuntimeError, match="own bug"):
        active.fit(quiet(tmp_path, active), Fragile(), datamodule=data)
    assert "train_dataloader" not in vars(data), "the DataModule is as it was"
    assert len(lines_of(tmp_path)) == 2
    active = learner()
    history = active.fit(quiet(tmp_path, active), Net(), datamodule=data)
    assert history.labels == [9, 17, 25, 33]
    ours = [record.indices for record in active.state.ledger.records]
    assert ours == [record.indices for record in whole.state.ledger.records]


def test_a_run_that_is_over_gives_its_history_and_weights_at_once(tmp_path):
    active, model = learner(), Net()
    active.fit(quiet(tmp_path, active), model, datamodule=Data())
    again, fresh = learner(), Net()
    history = again.fit(quiet(tmp_path, again), fresh, datamodule=Data())
    assert history.labels == [9, 17, 25, 33]
    assert fresh.diary == []
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True))


def test_one_callback_may_serve_two_runs(tmp_path):
    active = learner(budget=25)
    for name, data in {"one": Data(), "two": Data(Clouds(90))}.items():
        assert active.fit(quiet(tmp_path / name, active), Net(), datamodule=data).labels == [9, 17, 25]
    first, second = (lines_of(tmp_path / name) for name in ("one", "two"))
    assert first[0]["dataset"] != second[0]["dataset"]


def test_a_larger_budget_goes_on_where_the_run_had_ended(tmp_path):
    active = learner()
    active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    more = learner(budget=41)
    history = more.fit(quiet(tmp_path, more), Net(), datamodule=Data())
    assert history.labels == [9, 17, 25, 33, 33, 41]


SCRIPT = """
import os, signal, time
from pathlib import Path
from tests.plugin.toy_model import Data, Net, learner, quiet
class Slow(Net):
    def training_step(self, batch, batch_idx):
        if len(self.diary) == 2 and batch_idx == 1:
            os.kill(os.getpid(), signal.{signal})
            time.sleep(.5)
        return super().training_step(batch, batch_idx)
active = learner()
active.fit(quiet(Path({path!r}), active, max_epochs=3), Slow(), datamodule=Data())
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signals_stop_the_run_and_lose_nothing(tmp_path, name):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(signal=name, path=str(tmp_path)))
    ended = run_script(script)
    assert len(lines_of(tmp_path)) == 2, ended.stderr
    active = learner()
    assert active.fit(quiet(tmp_path, active, max_epochs=3), Net(), datamodule=Data()).labels == [9, 17, 25, 33]


# Any selector


def test_any_selector_and_nothing_computed_that_it_does_not_need(tmp_path):
    def highest(snapshot, size):
        assert snapshot.embeddings is None
        assert snapshot.logits is None
        return snapshot.unlabeled.flip(0)[:size]

    highest.needs = frozenset()
    active = ActiveLearning(query_size=8, budget=17, initial=9, selector=highest)
    history = active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    assert history.labels == [9, 17]
    assert "embedding s" not in history[0]
    assert min(lines_of(tmp_path)[1]["indices"]) >= 120 - 17


def test_a_selector_sees_what_models_predicted_of_the_points_asked_before(tmp_path):
    seen = []

    def surest(snapshot, size):
        seen.append((snapshot.earlier, snapshot.logits.argmax(dim=1)))
        return snapshot.unlabeled[snapshot.logits[snapshot.unlabeled].amax(dim=1).argsort(descending=True)][:size]

    surest.needs = frozenset({"logits"})
    active = ActiveLearning(query_size=8, budget=33, initial=9, selector=surest)
    history = active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    assert history.labels == [9, 17, 25, 33]
    asked = [line["indices"] for line in lines_of(tmp_path)[1:4]]
    rows, predicted = [], []
    for indices, (earlier, prediction) in zip(asked, seen, strict=True):
        assert (earlier.rows.tolist(), earlier.predicted.tolist()) == (rows, predicted)
        rows, predicted = rows + indices, predicted + prediction[indices].tolist()


def test_a_selector_cannot_ask_for_labels_it_does_not_choose(tmp_path):
    def peeks(snapshot, size, *, answer):
        answer(snapshot.unlabeled[:1])
        return snapshot.unlabeled[-size:]

    active = ActiveLearning(query_size=8, budget=17, initial=9, selector=peeks)
    with pytest.raises(ValueError, match=r"asked for the label of point .* and did not choose it"):
        active.fit(quiet(tmp_path, active), Net(), datamodule=Data())

    def greedy(snapshot, size, *, answer):
        answer(snapshot.unlabeled[: size + 1])

    active = ActiveLearning(query_size=8, budget=17, initial=9, selector=greedy, folder=tmp_path / "greedy")
    with pytest.raises(ValueError, match="more than the 8 labels of this query"):
        active.fit(quiet(tmp_path, active), Net(), datamodule=Data())


def test_the_users_random_numbers_are_not_touched_by_a_query(tmp_path):
    states = []

    class Record(L.Callback):
        def on_train_end(self, trainer, pl_module):
            states.append(torch.get_rng_state())

        def teardown(self, trainer, pl_module, stage):
            states.append(torch.get_rng_state())

    active = learner(budget=17)
    quiet(tmp_path, active, Record()).fit(Net(), datamodule=Data())
    assert torch.equal(*states)
