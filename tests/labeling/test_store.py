"""Answers of people: on the disk when the call returns, checked one by one, the last one about a point counts."""

import json
import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import pytest

from lightning_diffal.labeling.annotations import NAME, Annotations
from lightning_diffal.labeling.question import Answer
from lightning_diffal.labeling.store import open_query, store_answers
from tests.labeling.run_folder import CLASSES, waiting_run


def test_an_open_query_has_its_questions_in_the_order_asked_and_loses_those_answered(tmp_path):
    query = open_query(waiting_run(tmp_path, rounds=[(3, 1), (12, 10, 11)]))
    assert [question.index for question in query.questions] == [12, 10, 11]
    assert (query.name, query.round, query.classes) == ("query_001", 1, CLASSES)
    assert query.questions[1].text == "item 10"
    outcome = store_answers(tmp_path, [Answer(index=10, label="eel"), Answer(index=11, verdict="skip")], "ada")
    assert [answer.index for answer in outcome.stored] == [10, 11]
    query = open_query(tmp_path)
    assert [question.index for question in query.remaining] == [12]
    assert (query.answers[10].label, query.answers[10].who, query.answers[11].verdict) == ("eel", "ada", "skip")


def test_an_answer_may_be_changed_and_undone_until_it_is_used(tmp_path):
    waiting_run(tmp_path)
    store_answers(tmp_path, [Answer(index=10, label="cat")])
    store_answers(tmp_path, [Answer(index=10, label="2")])
    assert open_query(tmp_path).answers[10].label == "eel", "by its number"
    assert store_answers(tmp_path, [Answer(index=10, label="eel")]).unchanged
    store_answers(tmp_path, [Answer(index=10, verdict="undo")])
    assert open_query(tmp_path).answers == {}
    lines = [json.loads(line) for line in (tmp_path / NAME).read_text().splitlines()]
    assert [line["answers"][0]["verdict"] for line in lines] == ["label", "label", "undo"], "the file keeps all"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(index=100, label="cat"), "index 100 is not a point of the dataset, which has 100"),
        (Answer(index=-1, label="cat"), "index -1 is not a point"),
        (Answer(index=50, label="cat"), "point 50 was not asked about"),
        (Answer(index=10, label="cow"), "'cow' is not a class. The classes are cat, dog, eel"),
        (Answer(index=10, label="3"), "'3' is not a class"),
        (Answer(index=10, label=" "), "point 10 has an empty label"),
        (Answer(index=10, verdict="undo"), "no answer that could be undone"),
        (Answer(index=3, verdict="skip"), "point 3 has been trained on"),
    ],
)
def test_a_bad_answer_is_refused_and_the_others_are_kept(tmp_path, answer, reason):
    waiting_run(tmp_path)
    outcome = store_answers(tmp_path, [Answer(index=12, label="dog"), answer, Answer(index=13, label="cat")])
    assert reason in str(outcome.refused[0])
    assert len(outcome.refused) == 1
    assert {index: given.label for index, given in Annotations(tmp_path).latest.items()} == {12: "dog", 13: "cat"}


def test_of_two_different_answers_about_a_point_none_is_taken(tmp_path):
    waiting_run(tmp_path)
    twice = [Answer(index=10, label="cat"), Answer(index=10, label="dog"), Answer(index=11, label="cat")]
    outcome = store_answers(tmp_path, [*twice, Answer(index=11, label="0")])
    assert [refusal.index for refusal in outcome.refused] == [10, 10]
    assert "as cat and as dog" in str(outcome.refused[0])
    assert [answer.index for answer in outcome.stored] == [11], "the same answer twice is one answer"


def test_further_classes_are_taken_only_where_the_run_allows_them(tmp_path):
    waiting_run(tmp_path, new_classes=True)
    assert store_answers(tmp_path, [Answer(index=10, label="fox")]).stored[0].label == "fox"
    assert store_answers(tmp_path, [Answer(index=11, label="7")]).refused, "a number beyond the classes names none"


def answer_every_third(folder, start):
    for index in range(start, 60, 3):
        assert store_answers(folder, [Answer(index=index, label="cat")]).stored


def test_threads_and_processes_that_write_at_once_lose_nothing(tmp_path):
    waiting_run(tmp_path, rounds=[range(60)])
    fork = multiprocessing.get_context("fork")
    others = [fork.Process(target=answer_every_third, args=(tmp_path, start)) for start in (0, 1)]
    for process in others:
        process.start()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda index: store_answers(tmp_path, [Answer(index=index, label="dog")]), range(2, 60, 3)))
    for process in others:
        process.join(60)
    assert [process.exitcode for process in others] == [0, 0]
    latest = Annotations(tmp_path).latest
    assert {index: answer.label for index, answer in latest.items()} == {
        index: "dog" if index % 3 == 2 else "cat" for index in range(60)
    }


@pytest.mark.filterwarnings("ignore:.*annotations.jsonl, line 2")
def test_a_torn_or_damaged_line_costs_no_other_answer(tmp_path):
    waiting_run(tmp_path)
    for index in (10, 11):
        store_answers(tmp_path, [Answer(index=index, label="cat")])
    whole = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(whole.replace(b'"index": 11', b'"index": 12') + b'{"kind": "annot')
    store_answers(tmp_path, [Answer(index=13, label="cat")])
    assert list(Annotations(tmp_path).latest) == [10, 13]
