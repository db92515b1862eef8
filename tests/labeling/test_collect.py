"""From answers to lines of the ledger: enough answers, late ones, skips, corrections, new classes."""

import pytest

from lightning_diffal.labeling.annotations import Annotations
from lightning_diffal.labeling.collect import agreed_classes, new_entries, waiting_for
from lightning_diffal.labeling.corrections import apply_corrections
from lightning_diffal.labeling.question import Answer
from lightning_diffal.labeling.store import store_answers
from lightning_diffal.pool.folder.check import check_run, read_run
from lightning_diffal.pool.ledger import Ledger
from lightning_diffal.pool.ledger_entries import EntryCheck, RunIdentity, awaited_round, given_up, merge_entries
from lightning_diffal.pool.record import Answered, Correction
from tests.labeling.run_folder import CLASSES, question_of, waiting_run


def collected(folder, wait_for="all", budget=50):
    """The new lines, which must fit behind those that are there."""
    entries = read_run(folder).entries
    new = new_entries(entries, Annotations(folder).latest, wait_for, budget, CLASSES)
    check = EntryCheck(RunIdentity.of(entries[0]))
    for entry in [*entries, *new]:
        check(entry)
    return entries, new


def say(folder, **verdicts):
    for name, label in verdicts.items():
        verdict = "label" if label in [*CLASSES, "fox"] else label
        answer = Answer(index=int(name[1:]), label=label if verdict == "label" else None, verdict=verdict)
        assert store_answers(folder, [answer], "ada").stored


def test_a_run_goes_on_when_all_points_are_answered_or_any_has_a_label(tmp_path):
    waiting_run(tmp_path)
    say(tmp_path, p10="skip")
    assert collected(tmp_path, "any")[1] == [], "nobody has given a label yet"
    say(tmp_path, p11="dog")
    entries, new = collected(tmp_path, "any")
    assert (new[0].indices, new[0].labels, new[0].who, new[0].skipped) == ([11], [1], ["ada"], [10])
    assert awaited_round([*entries, *new]) is None
    assert merge_entries([*entries, *new])[1].labels == [None, 1, None, None]
    assert collected(tmp_path)[1] == [], "all four are waited for"
    waiting = waiting_for(tmp_path, entries, Annotations(tmp_path).latest, "all")
    assert (waiting.round, waiting.indices, waiting.answered) == (1, [10, 11, 12, 13], 2)
    say(tmp_path, p12="eel", p13="cannot_tell")
    entries, new = collected(tmp_path)
    assert (new[0].indices, new[0].labels, new[0].skipped, new[0].cannot_tell) == ([11, 12], [1, 2], [10], [13])
    assert given_up([*entries, *new]) == {10, 13}


def answered_partly(folder):
    """Round 1 went on with one of its four answers, and round 2 waits."""
    waiting_run(folder)
    ledger = Ledger(folder)
    ledger.file.read()
    ledger.write([Answered(round=1, indices=[11], labels=[0], who=["ada"], when=["then"])])
    ledger.write([question_of(2, [20, 12], labeled=4)])


def test_late_answers_are_taken_after_those_asked_now_and_never_beyond_the_budget(tmp_path):
    answered_partly(tmp_path)
    say(tmp_path, p10="cat", p12="dog", p13="eel", p20="cat")
    _, new = collected(tmp_path)
    assert [(entry.round, entry.indices) for entry in new] == [(2, [20, 12]), (1, [10, 13])]
    _, new = collected(tmp_path, budget=7)
    assert [(entry.round, entry.indices) for entry in new] == [(2, [20, 12]), (1, [10])]


def test_a_correction_of_a_used_label_keeps_both_and_is_made_once(tmp_path):
    waiting_run(tmp_path)
    say(tmp_path, p3="eel")
    (correction,) = apply_corrections(tmp_path)
    assert (correction.indices, correction.labels, correction.was, correction.by) == ([3], [2], [1], "ada")
    assert apply_corrections(tmp_path) == []
    assert check_run(tmp_path) == []
    assert read_run(tmp_path).labels[3] == 2
    # A later correction in the ledger alone is not undone by the older answer.
    from lightning_diffal.pool.folder.repair import correct_labels

    correct_labels(tmp_path, {3: 0})
    assert apply_corrections(tmp_path) == []
    assert read_run(tmp_path).labels[3] == 0
    assert sum(isinstance(entry, Correction) for entry in read_run(tmp_path).entries) == 2


def test_new_classes_get_the_next_numbers_in_the_ledger(tmp_path):
    waiting_run(tmp_path, new_classes=True)
    say(tmp_path, p10="fox", p11="cat", p12="fox", p13="dog")
    entries, new = collected(tmp_path)
    assert (new[0].labels, new[0].classes) == ([3, 0, 3, 1], [*CLASSES, "fox"])
    assert agreed_classes(CLASSES, [*entries, *new]) == [*CLASSES, "fox"]
    assert agreed_classes([*CLASSES, "fox", "gnu"], [*entries, *new])[-1] == "gnu"
    with pytest.raises(ValueError, match=r"this run began with the classes \['cat', 'dog', 'eel', 'fox'\]"):
        agreed_classes(["dog", "cat", "eel"], [*entries, *new])
