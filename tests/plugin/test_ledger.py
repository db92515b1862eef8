"""The ledger and the checkpoints of a run: what is kept, what is restored, what is refused."""

import csv
import json
from functools import partial

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_diffal import ActiveLearning, ScoreSelector
from lightning_diffal.selectors import LocalMaxSelector
from tests.plugin.toy_model import Clouds, Data, Net, learner, quiet


def run(tmp_path, data=None, trainer=None, callbacks=(), **options):
    active = learner(**options)
    history = active.fit(quiet(tmp_path, active, *callbacks, **trainer or {}), Net(), datamodule=data or Data())
    return active, history


def ledger_of(tmp_path):
    return tmp_path / "active_learning" / "rounds.jsonl"


def lines_of(tmp_path):
    return [json.loads(line) for line in ledger_of(tmp_path).read_text().splitlines()]


def test_a_line_for_each_round_with_all_that_happened(tmp_path):
    run(tmp_path)
    lines = lines_of(tmp_path)
    assert [line["round"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line["labeled"] for line in lines] == [0, 9, 17, 25, 33]
    assert [line["last"] for line in lines] == [None, None, None, None, "budget"]
    assert len({line["dataset"] for line in lines}) == 1
    for line in lines[1:]:
        assert line["selector"].startswith("DiffusionSelector(mini_batch=1, neighbors=5, steps=2")
        assert line["seeds"]["run"] == 0
        assert {"loss", "val_acc"} <= line["metrics"].keys()
        assert line["seconds"]["fit"] > 0
        assert line["steps"] > 0
    for line in lines[1:-1]:
        assert len(line["indices"]) == len(line["labels"]) == len(line["scores"]) == len(line["reached"]) == 8
        assert line["seconds"].keys() == {"fit", "embedding", "graph", "query"}
    assert len({line["seeds"]["round"] for line in lines}) == 5


def test_selection_csv_lists_every_label_for_people(tmp_path):
    run(tmp_path)
    with (tmp_path / "active_learning" / "selection.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["index", "round", "score", "reached", "label"]
    expected = [
        (index, line["round"], y)
        for line in lines_of(tmp_path)
        for index, y in zip(line["indices"], line["labels"], strict=True)
    ]
    assert [(int(row["index"]), int(row["round"]), int(row["label"])) for row in rows] == expected
    assert {row["reached"] for row in rows[9:]} <= {"True", "False"}
    assert all(row["score"] == "" for row in rows[:9]), "the first were drawn by lot"


def cut(tmp_path, lines, tail=b""):
    """Leave so many whole lines of a ledger, and the beginning of another."""
    whole = ledger_of(tmp_path).read_bytes().splitlines(keepends=True)
    ledger_of(tmp_path).write_bytes(b"".join(whole[:lines]) + tail)


@pytest.mark.parametrize("torn", [b"", b'{"round": 3, "indi', b"\x00\x00\x00"])
def test_a_torn_last_line_is_skipped_and_the_run_continues_as_before(tmp_path, torn):
    run(tmp_path)
    before = [(line["indices"], line["labels"]) for line in lines_of(tmp_path)]
    cut(tmp_path, 3, torn)
    if torn:
        with pytest.warns(UserWarning, match="last line is torn"):
            _, history = run(tmp_path)
    else:
        _, history = run(tmp_path)
    assert history.labels == [9, 17, 25, 33]
    assert [(line["indices"], line["labels"]) for line in lines_of(tmp_path)] == before


class Others(Clouds):
    def __init__(self):
        super().__init__()
        self.x = self.x + 1


def spoil(change):
    def spoiled(tmp_path):
        # As versions without checksums wrote them: only the contents can give a change away.
        lines = [
            {name: line[name] for name in line if name not in ("format", "checksum")} for line in lines_of(tmp_path)
        ]
        change(lines)
        ledger_of(tmp_path).write_text("".join(json.dumps(line) + "\n" for line in lines))

    return spoiled


class LeastNorm(ScoreSelector):
    """As a user would write it: its repr holds an address."""

    needs = frozenset({"embeddings"})

    def score(self, snapshot, timer):
        return snapshot.points.norm(dim=1)


@pytest.mark.parametrize(
    "make",
    [
        LeastNorm,
        lambda: LocalMaxSelector(of=LeastNorm(), neighbors=5),
        lambda: partial(LeastNorm.__call__, LeastNorm()),
    ],
    ids=["class", "wrapped", "partial"],
)
def test_a_run_with_a_selector_of_ones_own_continues_in_another_process(make, tmp_path):
    selectors = [make(), make()]
    assert repr(selectors[0]) != repr(selectors[1]), "as in another process"
    for selector, budget in zip(selectors, (17, 25), strict=True):
        active = ActiveLearning(query_size=8, budget=budget, initial=9, selector=selector)
        history = active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    assert history.labels[-1] == 25
    assert "0x" not in lines_of(tmp_path)[0]["selector"]


@pytest.mark.parametrize(
    ("options", "spoiled", "message"),
    [
        ({"data": Data(Others())}, None, r"line 1: this run was made on another dataset \(fingerprint 120-"),
        ({"data": Data(Clouds(119))}, None, r"another dataset .* now 119-"),
        ({"seed": 1}, None, r"ledger of another run, with seed=0 where seed=1 is given"),
        ({"neighbors": 6}, None, r"ledger of another run, with selector=.DiffusionSelector.*neighbors=5"),
        ({"initial": 8}, None, r"ledger of another run, with initial='9' where initial='8' is given"),
        (
            {},
            spoil(lambda lines: lines[1]["indices"].__setitem__(0, 120)),
            "line 2: index 120 is out of range: .*120 points",
        ),
        ({}, spoil(lambda lines: lines[1]["indices"].__setitem__(0, -1)), "line 2: index -1 is out of range"),
        (
            {},
            spoil(lambda lines: lines[1]["indices"].__setitem__(0, lines[0]["indices"][0])),
            "line 2: .*has a label already",
        ),
        ({}, spoil(lambda lines: lines[1]["labels"].pop()), "line 2: 8 points and 7 labels"),
        ({}, spoil(lambda lines: lines.pop(1)), "line 2: round 2 where round 1 was expected"),
        ({}, spoil(lambda lines: lines[1].pop("indices")), "line 2: a line of a ledger needs indices"),
        ({}, lambda tmp_path: ledger_of(tmp_path).write_text("{]\n"), "line 1: this is not JSON"),
        ({}, lambda tmp_path: ledger_of(tmp_path).write_text("[]\n"), "line 1: a JSON object is needed"),
    ],
)
def test_what_does_not_belong_to_this_run_is_refused_with_the_reason(tmp_path, options, spoiled, message):
    run(tmp_path)
    cut(tmp_path, 4)
    if spoiled is not None:
        spoiled(tmp_path)
    kept = ledger_of(tmp_path).read_bytes()
    with pytest.raises(ValueError, match=message):
        run(tmp_path, **options)
    assert ledger_of(tmp_path).read_bytes() == kept, "and nothing is lost"


def test_two_processes_cannot_write_to_one_ledger(tmp_path):
    active = learner()

    class Meanwhile(Net):
        def on_train_end(self):
            super().on_train_end()
            if len(self.diary) == 2:
                with ledger_of(tmp_path).open("a") as file:
                    file.write("{}\n")

    with pytest.raises(RuntimeError, match="another process writes to it"):
        active.fit(quiet(tmp_path, active), Meanwhile(), datamodule=Data())


def test_a_split_that_is_drawn_in_set_up_is_the_same_in_every_round(tmp_path):
    class Split(Data):
        def setup(self, stage):
            self.split, _ = torch.utils.data.random_split(Clouds(), [100, 20])

        def train_dataloader(self):
            return torch.utils.data.DataLoader(self.split, batch_size=8, shuffle=True)

    _, history = run(tmp_path, Split())
    assert history.labels == [9, 17, 25, 33]
    active, model = learner(folder=tmp_path / "hand"), Net()
    quiet(tmp_path, active).fit(model, datamodule=Split())
    with pytest.raises(ValueError, match=r"another dataset .* Was the data split again\? A generator with"):
        quiet(tmp_path, active).fit(model, datamodule=Split())


# Checkpoints


# The Trainers below have no ModelCheckpoint, and Lightning says so.
without_its_callback = pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")


def checkpoints(tmp_path):
    return ModelCheckpoint(dirpath=tmp_path / "saved", save_last=True)


def test_the_state_is_in_lightnings_checkpoints_and_loads_with_weights_only(tmp_path):
    active, _ = run(tmp_path, trainer={"enable_checkpointing": True}, callbacks=[checkpoints(tmp_path)], budget=17)
    last = sorted((tmp_path / "saved").glob("last*.ckpt"), key=lambda path: path.stat().st_mtime)[-1]
    saved = torch.load(last, weights_only=True)["callbacks"][active.state_key]
    assert [record["round"] for record in saved["records"]] == [0, 1]
    assert saved["records"][1]["indices"] == lines_of(tmp_path)[1]["indices"]


@without_its_callback
def test_a_checkpoint_never_takes_the_run_back(tmp_path):
    run(tmp_path, trainer={"enable_checkpointing": True}, callbacks=[checkpoints(tmp_path)], budget=25)
    first = min((tmp_path / "saved").glob("last*.ckpt"), key=lambda path: path.stat().st_mtime)
    active, model = learner(), Net()
    quiet(tmp_path, active, max_epochs=3).fit(model, datamodule=Data(), ckpt_path=first, weights_only=True)
    assert len(active.state.pool.labeled) == 33, "25 from the ledger, 8 asked now"
    assert [len(epoch) for epoch in model.diary[0]["drawn"]] == [25]


@without_its_callback
def test_a_checkpoint_brings_the_labels_back_when_the_folder_is_lost(tmp_path):
    run(tmp_path, trainer={"enable_checkpointing": True}, callbacks=[checkpoints(tmp_path)], budget=25)
    before = lines_of(tmp_path)
    newest = max((tmp_path / "saved").glob("last*.ckpt"), key=lambda path: path.stat().st_mtime)
    ledger_of(tmp_path).unlink()
    active = learner()
    quiet(tmp_path, active, max_epochs=3).fit(Net(), datamodule=Data(), ckpt_path=newest)
    assert [line["indices"] for line in lines_of(tmp_path)[:3]] == [line["indices"] for line in before[:3]]
    other = learner(folder=tmp_path / "other")
    with pytest.raises(ValueError, match=r"checkpoint does not belong to the run in .*another dataset"):
        quiet(tmp_path, other, max_epochs=3).fit(Net(), datamodule=Data(Others()), ckpt_path=newest)


def test_a_function_is_recorded_by_its_name(tmp_path):
    def lowest(snapshot, size):
        return snapshot.unlabeled[:size]

    for budget in (17, 25):
        active = ActiveLearning(query_size=8, budget=budget, initial=9, selector=lowest)
        active.fit(quiet(tmp_path, active), Net(), datamodule=Data())
    assert lines_of(tmp_path)[-1]["selector"].endswith("lowest")
