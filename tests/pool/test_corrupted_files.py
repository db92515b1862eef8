"""Every field of every file of a run, damaged in every way: found, with file, line and reason; repaired where safe."""

import json
import os
import shutil

import pytest

from lightning_diffal import ActiveLearning
from lightning_diffal.pool.folder.check import check_run
from lightning_diffal.pool.folder.repair import correct_labels, repair_run
from lightning_diffal.selectors.random import RandomSelector
from tests.plugin.toy_model import Clouds, Data, Net, quiet

TRUTH = Clouds().targets.tolist()


def fit(folder, oracle=None, budget=18):
    active = ActiveLearning(4, budget, selector=RandomSelector(), initial=6, oracle=oracle, folder=folder)
    active.fit(quiet(folder.parent, active, max_epochs=1, limit_val_batches=0), Net(), datamodule=Data())
    return active


def honest(indices):
    return [TRUTH[index] for index in indices]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A run of three rounds whose labels were paid for."""
    folder = tmp_path_factory.mktemp("sound") / "run"
    fit(folder, honest)
    return folder


@pytest.fixture
def run(sound, tmp_path):
    """A copy of it to be damaged."""
    return shutil.copytree(sound, tmp_path / "run")


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def rewrite(path, lines):
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))


def old(line):
    """A line as versions without checksums wrote it: only the contents can give a change away."""
    return {name: value for name, value in line.items() if name not in ("format", "checksum", "kind")}


def problems(folder):
    return [str(problem) for problem in check_run(folder)]


def test_a_sound_run_has_no_problem(run):
    assert problems(run) == []


# Checksums: any change of any field of any line


def changed(value):
    if isinstance(value, bool) or value is None:
        return 1 if value is None else not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list):
        return [changed(value[0]), *value[1:]] if value else [1]
    return {**value, "x": 1}


def fields_of_files():
    ledger = (
        "round labeled indices labels scores reached selector seeds initial dataset metrics seconds steps unreached"
    )
    for name in [*ledger.split(), "last", "format", "checksum", "kind"]:
        yield "rounds.jsonl", name
    for name in ("indices", "labels", "dataset", "format", "checksum"):
        yield "answers.jsonl", name


@pytest.mark.parametrize(("file", "name"), list(fields_of_files()))
@pytest.mark.parametrize("how", ["changed", "removed"])
def test_a_field_that_was_changed_or_removed_is_found(run, file, name, how):
    lines = lines_of(run / file)
    assert name in lines[1], f"{name} is a field of {file}"
    if how == "changed":
        lines[1][name] = changed(lines[1][name])
    else:
        del lines[1][name]
    rewrite(run / file, lines)
    found = problems(run)
    assert found, "it is found"
    assert f"{file}, line 2: " in found[0]


@pytest.mark.parametrize("file", ["rounds.jsonl", "answers.jsonl"])
def test_any_single_flipped_bit_is_found(run, file):
    """A bit of a digit, a bracket, a name: each of some places, seeded."""
    whole = (run / file).read_bytes()
    step = 1 if os.environ.get("SLOW") else 37
    for place in range(0, len(whole) - 1, step):
        spoiled = bytearray(whole)
        spoiled[place] ^= 1 << (place % 7)
        (run / file).write_bytes(spoiled)
        assert problems(run), f"bit {place % 7} of byte {place}, {chr(whole[place])!r} became {chr(spoiled[place])!r}"


def test_a_run_is_not_resumed_from_a_damaged_line(run):
    lines = lines_of(run / "rounds.jsonl")
    lines[1]["labels"][0] = 2 - lines[1]["labels"][0]
    lines[1]["labels"][1] = (lines[1]["labels"][1] + 1) % 3
    rewrite(run / "rounds.jsonl", lines)
    with pytest.raises(ValueError, match=r"rounds\.jsonl, line 2: .*checksum"):
        fit(run, honest, budget=22)
    rewrite(run / "rounds.jsonl", lines)


# Contents of lines without a checksum, as older versions wrote them


def put(name, value):
    def change(line):
        line[name] = value

    return change


def put_in(name, place, value):
    def change(line):
        line[name][place] = value

    return change


def deep(depth=100_000):
    return '{"round": ' + "[" * depth + "]" * depth + "}\n"


CONTENTS = [
    ("rounds.jsonl", put_in("labels", 0, 3.7), "labels"),
    ("rounds.jsonl", put_in("labels", 0, "1"), "labels"),
    ("rounds.jsonl", put_in("labels", 0, None), "labels"),
    ("rounds.jsonl", put_in("labels", 0, True), "labels"),
    ("rounds.jsonl", put_in("labels", 0, -1), "labels|class"),
    ("rounds.jsonl", put_in("labels", 0, 2**70), "labels"),
    ("rounds.jsonl", put("labels", {"a": 1}), "labels"),
    ("rounds.jsonl", put("labels", [1]), "labels"),
    ("rounds.jsonl", put_in("indices", 0, 3.0), "indices"),
    ("rounds.jsonl", put_in("indices", 0, 3.5), "indices"),
    ("rounds.jsonl", put_in("indices", 0, -1), "index -1|indices"),
    ("rounds.jsonl", put_in("indices", 0, 120), "index 120"),
    ("rounds.jsonl", put_in("indices", 0, 2**70), "ind"),
    ("rounds.jsonl", put("indices", None), "indices"),
    ("rounds.jsonl", lambda line: line["scores"].pop(), "scores"),
    ("rounds.jsonl", put("scores", None), "scores"),
    ("rounds.jsonl", put_in("scores", 0, "low"), "scores"),
    ("rounds.jsonl", lambda line: line["reached"].pop(), "reached"),
    ("rounds.jsonl", put_in("reached", 0, 1), "reached"),
    ("rounds.jsonl", put("seeds", None), "seeds"),
    ("rounds.jsonl", put("seeds", {}), "seeds"),
    ("rounds.jsonl", put("seeds", {"run": "0", "round": 1}), "seeds"),
    ("rounds.jsonl", put("last", "galaxy"), "last.*galaxy"),
    ("rounds.jsonl", put("last", 1), "last"),
    ("rounds.jsonl", put("round", "1"), "round"),
    ("rounds.jsonl", put("round", 1.0), "round"),
    ("rounds.jsonl", put("round", 7), "round 7"),
    ("rounds.jsonl", put("labeled", 5), "labeled"),
    ("rounds.jsonl", put("labeled", None), "labeled"),
    ("rounds.jsonl", put("selector", None), "selector"),
    ("rounds.jsonl", put("selector", "Other()"), "selector"),
    ("rounds.jsonl", put("initial", 6), "initial"),
    ("rounds.jsonl", put("dataset", "120-ffff"), "dataset"),
    ("rounds.jsonl", put("dataset", 120), "dataset"),
    ("rounds.jsonl", put("metrics", []), "metrics"),
    ("rounds.jsonl", put("metrics", {"loss": "low"}), "metrics"),
    ("rounds.jsonl", put("seconds", {"fit": None}), "seconds"),
    ("rounds.jsonl", put("steps", "many"), "steps"),
    ("rounds.jsonl", put("unreached", 0.5), "unreached"),
    ("answers.jsonl", put_in("labels", 0, 3.7), "labels"),
    ("answers.jsonl", put_in("labels", 0, 2**70), "labels"),
    ("answers.jsonl", put_in("labels", 0, None), "labels"),
    ("answers.jsonl", put_in("labels", 0, -1), "labels"),
    ("answers.jsonl", put("labels", "abc"), "labels"),
    ("answers.jsonl", put("labels", [1]), "labels"),
    ("answers.jsonl", put_in("indices", 0, 1.5), "indices"),
    ("answers.jsonl", put_in("indices", 0, 120), "index 120|indices"),
    ("answers.jsonl", put_in("indices", 0, "a"), "indices"),
    ("answers.jsonl", put("dataset", "120-ffff"), "dataset"),
    ("answers.jsonl", lambda line: line.pop("indices"), "indices"),
    ("answers.jsonl", lambda line: line.pop("labels"), "labels"),
]


@pytest.mark.parametrize(("file", "change", "reason"), CONTENTS)
def test_contents_that_cannot_be_are_found_without_a_checksum(run, file, change, reason):
    lines = [old(line) for line in lines_of(run / file)]
    rewrite(run / file, lines)
    assert problems(run) == [], "old files are still read"
    change(lines[1])
    rewrite(run / file, lines)
    import re

    found = problems(run)
    assert found
    assert f"{file}, line 2: " in found[0]
    assert re.search(reason, found[0])


BROKEN_LINES = [
    ("{]\n", "JSON"),
    ("[]\n", "object"),
    ("\n", "JSON"),
    ("null\n", "object"),
    ('{"round": NaN}\n', "NaN"),
    ('{"round": 1, "round": 2}\n', "twice"),
    ("\x00\x00\n", "JSON"),
    ("\udcff\n", "JSON"),
    (deep(), "deep"),
]


@pytest.mark.parametrize("file", ["rounds.jsonl", "answers.jsonl"])
@pytest.mark.parametrize(
    ("line", "reason"), BROKEN_LINES, ids=[reason + str(n) for n, (_, reason) in enumerate(BROKEN_LINES)]
)
def test_lines_that_are_no_json_objects_are_found(run, file, line, reason):
    whole = (run / file).read_text().splitlines(keepends=True)
    whole[1] = line
    (run / file).write_bytes("".join(whole).encode(errors="surrogateescape"))
    found = problems(run)
    assert f"{file}, line 2: " in found[0]
    assert reason in found[0]


def test_a_ledger_and_answers_that_disagree_are_found(run):
    lines = [old(line) for line in lines_of(run / "answers.jsonl")]
    lines[0]["labels"][0] = (lines[0]["labels"][0] + 1) % 3
    rewrite(run / "answers.jsonl", lines)
    assert "answers.jsonl, line 1: " in problems(run)[0]
    assert f"point {lines[0]['indices'][0]}" in problems(run)[0]


def sealed(line, version):
    from lightning_diffal.pool.folder.line_format import seal

    return seal({**old(line), "news": 1}, version=version)


def test_newer_minor_versions_are_read_and_newer_majors_refused(run):
    lines = lines_of(run / "rounds.jsonl")
    major, minor = map(int, lines[0]["format"].split("."))
    rewrite(run / "rounds.jsonl", [sealed(line, f"{major}.{minor + 7}") for line in lines])
    assert problems(run) == []
    fit(run, honest, budget=22)
    rewrite(run / "rounds.jsonl", [sealed(line, f"{major + 1}.0") for line in lines])
    assert f"rounds.jsonl, line 1: format {major + 1}.0" in problems(run)[0]
    with pytest.raises(ValueError, match=r"rounds\.jsonl, line 1: format"):
        fit(run, honest, budget=22)


# Repair


def test_repair_of_a_sound_run_changes_nothing(run):
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert repair_run(run) == []
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.parametrize("file", ["rounds.jsonl", "answers.jsonl"])
def test_repair_cuts_a_torn_line_off_and_keeps_a_copy(run, file):
    before = (run / file).read_bytes()
    (run / file).write_bytes(before + b'{"torn": ')
    assert repair_run(run)
    assert (run / file).read_bytes() == before
    copies = list(run.glob(f"before-repair-*/{file}"))
    assert [copy.read_bytes() for copy in copies] == [before + b'{"torn": ']
    assert problems(run) == []


def test_repair_cuts_a_damaged_ledger_where_the_answers_are_known_and_the_run_comes_to_the_same(run):
    before = [(line["indices"], line["labels"]) for line in lines_of(run / "rounds.jsonl")]
    lines = lines_of(run / "rounds.jsonl")
    lines[2]["labels"][0] = 77
    rewrite(run / "rounds.jsonl", lines)
    assert repair_run(run)
    assert len(lines_of(run / "rounds.jsonl")) == 2
    assert problems(run) == []
    asked = []
    fit(run, lambda indices: asked.append(indices) or honest(indices))
    assert asked == [], "no label is paid for twice"
    assert [(line["indices"], line["labels"]) for line in lines_of(run / "rounds.jsonl")] == before


def test_repair_leaves_alone_what_would_lose_a_paid_label(run):
    lines = lines_of(run / "rounds.jsonl")
    lines[2]["labels"][0] = 77
    rewrite(run / "rounds.jsonl", lines)
    answers = lines_of(run / "answers.jsonl")
    rewrite(run / "answers.jsonl", answers[:1])
    before = (run / "rounds.jsonl").read_bytes()
    repair_run(run)
    assert (run / "rounds.jsonl").read_bytes() == before
    assert problems(run)


def test_repair_moves_damaged_answers_out_so_that_they_are_asked_again(run):
    (run / "rounds.jsonl").unlink()
    answers = lines_of(run / "answers.jsonl")
    answers[1]["labels"][0] = 77
    rewrite(run / "answers.jsonl", answers)
    assert repair_run(run)
    assert problems(run) == []
    asked = []
    fit(run, lambda indices: asked.extend(indices) or honest(indices))
    assert asked == answers[1]["indices"]


def test_repair_refuses_a_run_that_is_under_way(run):
    from lightning_diffal.pool.folder.folder_lock import FolderInUseError, FolderLock

    lock = FolderLock(run)
    lock.acquire()
    with pytest.raises(FolderInUseError):
        repair_run(run)
    assert problems(run) == [], "checking needs no lock"
    lock.release()


# One label corrected


def test_a_label_is_corrected_with_a_trace_and_trained_on(run):
    ledger = lines_of(run / "rounds.jsonl")
    point, wrong = ledger[1]["indices"][0], ledger[1]["labels"][0]
    right = (wrong + 1) % 3
    correct_labels(run, {point: right})
    lines = lines_of(run / "rounds.jsonl")
    assert lines[: len(ledger)] == ledger, "the ledger keeps both"
    assert lines[-1]["kind"] == "correction"
    assert (lines[-1]["indices"], lines[-1]["labels"], lines[-1]["was"]) == ([point], [right], [wrong])
    assert problems(run) == []
    active = fit(run, honest, budget=22)
    assert active.history.labels == [6, 10, 14, 18, 18, 22], "a larger budget fits once more on all labels"
    selection = (run / "selection.csv").read_text()
    assert f"\n{point},1,,,{right}" in selection


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({500: 1}, "500"),
        ({"a": 1}, "a"),
        ({}, "no label"),
        (lambda point: {point: -1}, "-1"),
        (lambda point: {point: 3.7}, "3.7"),
        (lambda point: {point: 2**70}, "1180591620717411303424"),
        (lambda point: {point: None}, "None"),
    ],
)
def test_a_correction_that_cannot_be_is_refused(run, wrong, reason):
    point = lines_of(run / "rounds.jsonl")[1]["indices"][0]
    before = (run / "rounds.jsonl").read_bytes()
    with pytest.raises(ValueError, match=reason):
        correct_labels(run, wrong(point) if callable(wrong) else wrong)
    assert (run / "rounds.jsonl").read_bytes() == before
