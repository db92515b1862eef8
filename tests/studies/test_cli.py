"""The command as people give it: once for real, stopped in the middle and started again; and what it refuses."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lightning_diffal.studies import cli, worker_pool
from lightning_diffal.studies.cli import main, parser, runs_of
from lightning_diffal.studies.definitions import STUDIES
from lightning_diffal.studies.execute import execute
from lightning_diffal.studies.results import Result, Round, read_results, summary_table
from tests.studies.small_studies import without_seconds, write_npz

ROOT = Path(__file__).parents[2]
STUDY = ["run", "checkerboard", "--pool", "60", "--first", "2", "--query-size", "2", "--budget", "20", "--test", "20"]
TWO = [*STUDY, "--epochs", "40", "--seeds", "1", "--selector", "diffusion", "--selector", "random"]
ROUND = Round(labels=4, accuracy=0.5, asked=[], reached=[], unreached=None, seconds={"fit": 1.0})


def started(arguments):
    # Background jobs of a shell ignore Ctrl-C; this one shall not.
    return subprocess.Popen(
        [sys.executable, "-m", "lightning_diffal.studies.cli", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )


def descendants_of(pid):
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, listed.splitlines())}
    found = [pid]
    for one in found:  # which grows meanwhile
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def gone(pid, patience=60):
    """Whether a process ends; those that multiprocessing keeps for itself take a moment."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def wait_for_ledger(process, run, lines):
    """Until the ledger of a run has so many lines."""
    ledger = run.run_folder / "rounds.jsonl"
    while process.poll() is None and not (ledger.exists() and len(ledger.read_text().splitlines()) >= lines):
        time.sleep(0.01)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_stopped_in_the_middle_and_started_again_it_comes_to_the_same(tmp_path):
    stopped, whole = ([*TWO, "--workers", "1", "--out", str(tmp_path / name)] for name in ("stopped", "whole"))
    runs = runs_of(parser().parse_args(stopped))
    ledger = runs[0].run_folder / "rounds.jsonl"
    process = started(stopped)
    wait_for_ledger(process, runs[0], lines=3)
    workers = descendants_of(process.pid)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "The same command continues from here" in errors
    assert "Traceback" not in errors, errors[-3000:]
    assert len(workers) >= 2, "the server of processes and the process of the run"
    assert all(map(gone, workers))
    rounds = ledger.read_text().splitlines(keepends=True)
    assert 2 < len(rounds) < 10, "it was stopped in the middle"
    assert not list((tmp_path / "stopped").glob("checkerboard/*")), "no partial result"

    # One of the two remaining runs cannot continue: the other finishes, and the exit code is 1.
    broken = runs[1].run_folder
    broken.mkdir(parents=True)
    (broken / "rounds.jsonl").write_text("this is no ledger\n")
    process = started(stopped)
    table, errors = process.communicate(timeout=200)
    assert process.returncode == 1
    assert re.search(r"Failed: checkerboard, random, seed 0: .*this is not JSON", errors)
    assert "| diffusion" in table
    assert "| random" not in table
    assert "9/18" in errors, "the bar counts fits"
    assert not runs[0].run_folder.exists()

    undisturbed = runs_of(parser().parse_args(whole))
    assert without_seconds(execute(undisturbed[0])) == without_seconds(runs[0].result)
    assert [json.loads(line)["indices"] for line in rounds[1:]] == [
        step.asked for step in Result.read(runs[0].result).rounds[: len(rounds) - 1]
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_it_leaves_no_process_that_holds_a_run(number, tmp_path):
    # A fit without end: a process that only ends when it reports the next round stays.
    command = [*STUDY, "--epochs", "1000000", "--seeds", "1", "--selector", "random", "--out", str(tmp_path)]
    process = started([*command, "--workers", "1"])
    wait_for_ledger(process, runs_of(parser().parse_args(command))[0], lines=1)
    left = descendants_of(process.pid)
    assert len(left) >= 2, "the server of processes and the process of the run"
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == -number
    assert all(gone(pid, patience=20) for pid in left)


def test_what_has_a_result_is_not_run_again(tmp_path, monkeypatch, capsys):
    command = [*TWO, "--out", str(tmp_path)]
    for run in runs_of(parser().parse_args(command)):
        Result(
            study="checkerboard", selector=run.selector, seed=0, settings=run.settings, initial=[], rounds=[ROUND]
        ).write(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.json")}
    monkeypatch.setattr(worker_pool, "start_worker", None)
    assert main(command) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.json")} == before
    assert "| random" in capsys.readouterr().out


def test_two_processes_never_execute_one_run(tmp_path):
    run = runs_of(parser().parse_args([*TWO, "--out", str(tmp_path)]))[0]
    refused = pytest.raises(RuntimeError, match="another process is executing this run")
    with worker_pool.locked(run), refused, worker_pool.locked(run):
        pass
    with worker_pool.locked(run):
        pass


def test_seeds_are_outermost_and_settings_name_the_file(tmp_path):
    runs = runs_of(parser().parse_args([*TWO, "--seeds", "2", "--out", str(tmp_path)]))
    assert [(run.seed, run.selector) for run in runs] == [(s, n) for s in (0, 1) for n in ("diffusion", "random")]
    longer = runs_of(parser().parse_args([*TWO, "--epochs", "41", "--out", str(tmp_path)]))
    assert longer[0].result.name != runs[0].result.name
    assert longer[0].settings | {"epochs": 40} == runs[0].settings
    shrinking = runs_of(parser().parse_args([*TWO, "--shrink-below", "0.2", "--out", str(tmp_path)]))
    assert "shrink_below=0.2" in shrinking[0].settings["selector"]
    default = runs_of(parser().parse_args(["run", "checkerboard", "--seeds", "1"]))
    assert [run.selector for run in default][:2] == ["diffusion", "random"]
    assert len(default) == 8
    assert {"num_classes", "query_size", "pool", "squares", "budget"} <= default[0].settings.keys()


def test_another_data_set_is_a_study_of_its_own(tmp_path):
    write_npz(tmp_path, "fashion", n=400, shape=(8, 8))
    given = ["run", "mnist-fc", "--dataset", "fashion", "--pool", "400", "--data", str(tmp_path)]
    run = runs_of(parser().parse_args(given))[0]
    assert run.result.parent.name == "mnist-fc-fashion"
    assert run.settings["num_classes"] == 3


def test_a_head_on_features_finds_those_of_another_data_set(tmp_path):
    write_npz(tmp_path, "birds", n=400)
    write_npz(tmp_path, "birds_efficientnet", n=400, shape=(300,), classes=4)
    numbers = ["--pool", "400", "--selector", "random", "--data", str(tmp_path)]
    run = runs_of(parser().parse_args(["run", "cifar10-efficientnet", "--dataset", "birds", *numbers]))[0]
    assert run.result.parent.name == "cifar10-efficientnet-birds_efficientnet"
    assert run.settings["num_classes"] == 4
    assert (
        "components"
        not in runs_of(parser().parse_args(["run", "mnist-fc", "--dataset", "birds", *numbers]))[0].settings
    )


def test_learning_from_the_graph_is_another_series(tmp_path):
    plain, learning = (
        runs_of(parser().parse_args([*TWO, *more, "--out", str(tmp_path)])) for more in ([], ["--learn-from-graph"])
    )
    for one, other in zip(plain, learning, strict=True):
        added = {name: other.settings[name] for name in ("learn_from_graph", "graph_features")}
        assert "neighbors=10" in added["learn_from_graph"], "the study's K"
        assert added["graph_features"] == "inputs"
        assert other.settings == one.settings | added
        assert other.result.name != one.result.name
        assert str(other) == f"checkerboard, {one.selector}, learning from the graph, seed 0"
    on_embedding = runs_of(parser().parse_args([*TWO, "--learn-from-graph", "--features", "none"]))
    assert on_embedding[0].settings == learning[0].settings | {"graph_features": "none"}
    unused = runs_of(parser().parse_args([*TWO, "--features", "auto"]))[1]
    assert unused.settings == plain[1].settings, "random uses no features"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["checkerboard", "--selector", "best"], "--selector best: there is no such selector. Available: diffusion"),
        (["checkerboard", "--seeds", "0"], "--seeds 0: an integer of at least 1"),
        (["checkerboard", "--workers", "-1"], "--workers -1"),
        (["checkerboard", "--query-size", "0"], "--query-size 0"),
        (["checkerboard", "--budget", "3"], "--budget 3: there are 8 initial labels already"),
        (["checkerboard", "--shrink-below", "1.5"], "--shrink-below 1.5: a fraction of the pool in [0, 1]"),
        (["checkerboard", "--dataset", "mnist"], "--dataset mnist: the checkerboard is generated"),
        (
            ["mnist-fc", "--data", "DATA", "--dataset", "rows", "--pool", "60", "--features", "layers.9"],
            "--features layers.9: inputs, auto, none or a layer of the network is needed, one of layers.0",
        ),
        (["mnist-fc", "--squares", "4"], "--squares 4: this is an option of the checkerboard"),
        (["mnist-fc", "--data", "NOWHERE"], "--data NOWHERE: there is no such folder. It should hold mnist.npz"),
        (["mnist-fc", "--data", "DATA", "--dataset", "letters"], "--dataset letters: there is no"),
        (["mnist-fc", "--data", "DATA/in", "--dataset", "../rows"], "--dataset ../rows: a name of letters, digits"),
        (["mnist-fc", "--data", "DATA", "--dataset", "DATA/rows"], "a name of letters, digits"),
        (["mnist-fc", "--data", "DATA", "--dataset", ".."], "--dataset ..: a name of letters, digits"),
        (["mnist-fc", "--data", "DATA", "--dataset", "a\\b"], "a name of letters, digits"),
        (["mnist-fc", "--data", "DATA", "--dataset", "wrong"], "wrong.npz: y_train"),
        (["mnist-fc", "--data", "DATA", "--dataset", "rows"], "--pool 10000: rows has 60 training points"),
        (["mnist-conv", "--data", "DATA", "--dataset", "rows", "--pool", "60", "--budget", "30"], "shape (6,)"),
    ],
)
def test_wrong_arguments_are_named_without_a_traceback(tmp_path, capsys, arguments, words):
    write_npz(tmp_path, "rows")
    write_npz(tmp_path, "wrong", y_train=np.zeros(5, int))
    (tmp_path / "in").mkdir()
    arguments = [argument.replace("DATA", str(tmp_path)) for argument in arguments]
    assert main(["run", *arguments, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.startswith("lightning-diffal run: ")
    assert not (tmp_path / "out").exists()


def test_a_study_that_is_not_there_names_those_that_are(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["run", "imagenet"])
    assert "mnist-fc" in capsys.readouterr().err


def test_a_report_on_nothing_is_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_a_report_shows_the_selectors_that_are_asked_for(tmp_path, capsys):
    results = str(tmp_path / "results")
    command = ["run", "digits", "--epochs", "1", "--budget", "20", "--seeds", "1", "--out", results]
    assert main([*command, "--selector", "random", "--selector", "margin", "--selector", "coreset"]) == 0
    chosen = ["--selector", "margin", "--selector", "random"]
    assert main(["report", results, "--out", str(tmp_path / "page"), *chosen]) == 0
    page = (tmp_path / "page" / "report.html").read_text()
    assert [name in page for name in ("margin", "random", "coreset")] == [True, True, False]
    assert main(["report", results, "--selector", "badge"]) == 2
    assert "has no such results, but of coreset, margin, random" in capsys.readouterr().err


def test_the_demo_is_a_table_a_verdict_and_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, "DEMO_SELECTORS", ("diffusion", "random"))
    monkeypatch.setattr(cli, "DEMO_LEARNING", ("random",))
    monkeypatch.setattr(cli, "DEMO_SEEDS", 2)
    small = replace(STUDIES["digits"], epochs=1, budget=20)
    monkeypatch.setitem(STUDIES, "digits", small)
    assert main(["demo", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    results = read_results(tmp_path)
    assert sorted((run.series, run.seed) for run in results) == [
        (n, s) for n in ("diffusion", "random", "random, learning from the graph") for s in (0, 1)
    ]
    assert summary_table(results) in printed
    assert "Digits (10 to 20 labels, 2 seeds): " in printed
    assert printed.rstrip().endswith(f"Report: {tmp_path / 'report' / 'report.html'}")
    assert (tmp_path / "report" / "digits-accuracy.png").stat().st_size > 10_000
