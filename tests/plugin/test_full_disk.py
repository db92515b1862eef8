"""A disk that is full, read-only or not a folder: known before anyone is paid, and nothing paid for is lost."""

import io
import json
import multiprocessing
import os
import resource
import subprocess
import traceback
from contextlib import redirect_stderr, redirect_stdout

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from lightning_diffal import ActiveLearning
from lightning_diffal.selectors.random import RandomSelector
from tests.plugin.toy_model import Clouds, Data, Net, quiet

pytestmark = pytest.mark.filterwarnings("ignore")
TRUTH = Clouds().targets.tolist()


def paid(notes):
    """An oracle that notes outside of the run folder what it was asked."""

    def oracle(indices):
        with notes.open("a") as file:
            file.write("".join(f"{index}\n" for index in indices))
        return [TRUTH[index] for index in indices]

    return oracle


class Larger(Net):
    """Its checkpoints are larger than what is reserved for answers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("ballast", torch.zeros(4000))


def asked(notes):
    return [int(line) for line in notes.read_text().split()] if notes.exists() else []


def fit(folder, notes, **options):
    active = ActiveLearning(4, 14, selector=RandomSelector(), initial=6, oracle=paid(notes), folder=folder, **options)
    trainer = quiet(notes.parent, active, max_epochs=1, limit_val_batches=0)
    return active.fit(trainer, Larger(), datamodule=Data())


def ledger_of(folder):
    path = folder / "rounds.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [(line["indices"], line["labels"]) for line in map(json.loads, lines)]


def in_a_process(function, *arguments, **options):
    """Call it in a process of its own, which may be limited. What it failed with, None if it did not."""

    def body(report):
        torch.set_num_threads(1)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            try:
                function(*arguments, **options)
                report.send(None)
            except BaseException:
                report.send(traceback.format_exc())

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=body, args=(theirs,))
    process.start()
    text = ours.recv() if ours.poll(60) else "it did not end"
    process.join(10)
    process.kill()
    return text


# Refused before the oracle is asked


def a_file(place):
    place.write_text("")


def inside_a_file(place):
    place.parent.mkdir()
    place.parent.rmdir()
    place.parent.write_text("")


def dangling(place):
    place.symlink_to(place.parent / "nowhere" / "at all")


def ledger_is_a_folder(place):
    (place / "rounds.jsonl").mkdir(parents=True)


def answers_are_a_folder(place):
    (place / "answers.jsonl").mkdir(parents=True)


def dangling_answers(place):
    place.mkdir()
    (place / "answers.jsonl").symlink_to("/nowhere/at/all")


@pytest.mark.parametrize("spoil", [a_file, inside_a_file, ledger_is_a_folder, answers_are_a_folder, dangling_answers])
def test_a_folder_that_cannot_be_written_is_refused_before_the_first_question(tmp_path, spoil):
    folder = tmp_path / "deep" / "run" if spoil is inside_a_file else tmp_path / "run"
    spoil(folder)
    with pytest.raises((OSError, ValueError, MisconfigurationException), match=r"run"):
        fit(folder, tmp_path / "asked")
    assert asked(tmp_path / "asked") == []


def test_a_dangling_link_is_refused_or_followed_and_nothing_is_paid_twice(tmp_path):
    dangling(tmp_path / "run")
    with pytest.raises(MisconfigurationException, match="run"):
        fit(tmp_path / "run", tmp_path / "asked")
    assert asked(tmp_path / "asked") == []


def test_a_read_only_folder_is_refused_before_the_first_question(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()

    def as_nobody():
        if os.geteuid() == 0:
            tmp_path.chmod(0o777)
            for parent in tmp_path.parents:  # pytest keeps its folders to the user
                if parent.stat().st_uid == 0 and parent != parent.parent and str(parent).startswith("/tmp/"):
                    parent.chmod(0o755)
            os.seteuid(65534)
        fit(folder, tmp_path / "asked")

    folder.chmod(0o555)
    assert "Permission denied" in in_a_process(as_nobody)
    folder.chmod(0o755)
    assert asked(tmp_path / "asked") == []


# Full at every write


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    place = tmp_path_factory.mktemp("undisturbed")
    fit(place / "run", place / "asked")
    sizes = sorted(path.stat().st_size for path in (place / "run").iterdir())
    return ledger_of(place / "run"), sizes


def limits(sizes):
    """Sizes at which the reservation, then each of the files stops somewhere."""
    step = 200 if os.environ.get("SLOW") else 3000
    return [0, 1, 700, *range(8192, sizes[-1] + 3000, step)]


def test_whichever_write_fails_nothing_paid_for_is_lost_or_asked_again(tmp_path, undisturbed):
    whole, sizes = undisturbed
    stops = set()
    for limit in limits(sizes):
        place = tmp_path / str(limit)
        place.mkdir()

        def limited(limit=limit, place=place):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            fit(place / "run", place / "asked")

        failed = in_a_process(limited)
        before = asked(place / "asked")
        stops.add(len(before))
        assert failed is not None or limit >= sizes[-1]
        assert failed is None or "Error" in failed
        assert in_a_process(fit, place / "run", place / "asked") is None
        assert len(asked(place / "asked")) == len(set(asked(place / "asked"))), f"asked twice at {limit} bytes"
        assert ledger_of(place / "run") == whole
    assert stops >= {0, 6}, "some were refused before the first question"


def test_on_a_small_disk_nothing_paid_for_is_lost_or_asked_again(tmp_path, undisturbed):
    whole, _ = undisturbed
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    stops = set()
    try:
        for free in (0, 8, 12, 16, 32, 64, 128) if not os.environ.get("SLOW") else range(0, 200, 4):
            notes, folder = tmp_path / f"asked-{free}", disk / "run"
            ballast = disk / "ballast"
            room = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            ballast.write_bytes(bytes(max(0, room - 1024 * free)))
            failed = in_a_process(fit, folder, notes)
            stops.add(len(asked(notes)))
            assert failed is None or "No space left" in failed
            ballast.unlink()
            assert in_a_process(fit, folder, notes) is None
            assert len(asked(notes)) == len(set(asked(notes))), f"asked twice with {free} KiB"
            assert ledger_of(folder) == whole
            for path in folder.iterdir():
                path.unlink()
    finally:
        subprocess.run(["umount", disk], check=True)
    assert {0, 14} <= stops


def test_a_selection_for_people_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "run" / "selection.csv").mkdir(parents=True)
    with pytest.warns(UserWarning, match=r"selection\.csv"):
        history = fit(tmp_path / "run", tmp_path / "asked")
    assert history.labels == [6, 10, 14]
