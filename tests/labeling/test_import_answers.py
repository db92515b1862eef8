"""One importer for tables and for exports of Label Studio: what is good is kept, what is not is named with its line."""

import json
import os
import random
from pathlib import Path

import pytest

from lightning_diffal.labeling.annotations import Annotations
from lightning_diffal.labeling.import_answers import import_answers, read_answers
from lightning_diffal.labeling.question import Answer, Refusal
from tests.labeling.run_folder import waiting_run

ASKED = (10, 11, 12, 13)


def imported(folder, content, name="answers.csv"):
    """What is stored of a file, and what was refused, as (line, reason)."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    outcome = import_answers(folder, path)
    latest = Annotations(folder).latest
    refused = [(refusal.line, refusal.reason) for refusal in outcome.refused]
    return {index: answer.label or answer.verdict for index, answer in latest.items()}, refused


TABLES = {
    "as written": "index,label,path,text\n10,cat,,item\n11,dog,,item\n",
    "other order": "text,label,score,index\nitem,cat,0.5,10\nitem,dog,,11\n",
    "semicolons": "index;label\r\n10;cat\r\n11;dog\r\n",
    "tabs": "index\tlabel\n10\tcat\n11\tdog\n",
    "byte order mark": "\ufeffindex,label\n10,cat\n11,dog\n",
    "Excel's first line": "sep=;\nindex;label\n10;cat\n11;dog\n",
    "quotes": '"index","label","text"\n"10","cat","a ""quoted"" text,\nof two lines"\n"11","dog",""\n',
    "spaces and capitals": " Index , LABEL \n 10 , cat \n\n11,dog",
    "numbers": "index,label\n10.0,0\n11,1.0\n",
    "old line ends": "index,label\r10,cat\r11,dog",
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_table_is_read_as_spreadsheets_write_it(tmp_path, table, encoding):
    content = table if encoding == "utf-8" else table.removeprefix("\ufeff")
    assert imported(waiting_run(tmp_path), content.encode(encoding)) == ({10: "cat", 11: "dog"}, [])


def test_every_bad_line_is_named_and_the_others_are_kept(tmp_path):
    waiting_run(tmp_path)
    table = (
        b"index,label,path\n10,dog,\n99,cat,\n500,cat,\n50,cat,\n11,cow,\n11,,\n12,cat,\n12,dog,\n"
        b"x,cat,\n-1,cat,\n13,h\xe4ndchen,\n11,cat,a,b\n13,skip,\xe4\n"
    )
    kept, refused = imported(tmp_path, table)
    assert kept == {10: "dog", 13: "skip"}
    found = dict(refused)
    assert sorted(found) == [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    for line, reason in {
        3: "not asked about",
        4: "not a point of the dataset",
        6: "'cow' is not a class. The classes are cat, dog, eel",
        7: "empty label",
        8: "twice, as cat and as dog",
        9: "twice",
        10: "'x' is not an index",
        12: "not UTF-8",
        13: "4 cells, where the header has 3",
    }.items():
        assert reason in found[line]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"", 1, "empty"),
        (b"\xff\xfei\0n\0d", 1, "not text in utf-16"),
        (b"PK\x03\x04\0\0", 1, "zero byte"),
        (b"index,name\n10,cat\n", 1, "header with the columns index and label"),
        (b"index,label,label\n10,cat,dog\n", 1, "each once"),
        (b'index,label,text\n10,cat,"open\n11,dog,\n', 2, "a quote is not closed: this line and the 1 after"),
        (b"[1, 2]", 1, "a task is needed, not int"),
        (b'[{"data": {"index": 10}, "annotations": [', 1, "broken here"),
        (b'[{"data": {}, "annotations": []}]', 1, "no index"),
        (b'[{"index": 10, "label": NaN}]', 1, "NaN"),
    ],
)
def test_a_broken_file_is_refused_with_its_line_and_stores_nothing(tmp_path, content, line, reason):
    kept, refused = imported(waiting_run(tmp_path), content)
    assert kept == {}
    assert refused[0][0] == line
    assert reason in refused[0][1]


def test_skip_is_a_label_where_a_class_has_this_name(tmp_path):
    from tests.labeling import run_folder

    names, run_folder.CLASSES = run_folder.CLASSES, ["skip", "jump"]
    try:
        assert imported(waiting_run(tmp_path), "index,label\n10,skip\n11,can't tell\n") == (
            {10: "skip", 11: "cannot_tell"},
            [],
        )
        assert Annotations(tmp_path).latest[10].verdict == "label"
    finally:
        run_folder.CLASSES = names


# Label Studio


def annotation(*choices, who=1, **more):
    result = [{"type": "choices", "from_name": "kind", "to_name": "image", "value": {"choices": list(choices)}}]
    return {"completed_by": who, "was_cancelled": False, "result": result if choices else [], **more}


def task(index, *annotations):
    return {"id": 1000 + index, "data": {"index": index, "image": "x.png", "score": 0.5}, "annotations": annotations}


def test_an_export_is_read_by_majority_and_a_tie_is_asked_again(tmp_path):
    tasks = [
        task(10, annotation("cat"), annotation("dog", who=2), annotation("dog", who=3)),
        task(11, annotation("cat"), annotation("dog", who=2)),
        task(12, annotation("2"), annotation(who=2, was_cancelled=True)),
        task(13, annotation(who=2, was_cancelled=True)),
    ]
    kept, refused = imported(waiting_run(tmp_path), json.dumps(tasks, indent=1), "export.json")
    assert kept == {10: "dog", 12: "eel", 13: "skip"}
    assert Annotations(tmp_path).latest[10].who == "label studio 2, label studio 3"
    ((line, reason),) = refused
    assert "a tie between annotators ('cat' 1 times, 'dog' 1 times)" in reason
    assert '"id": 1011' in json.dumps(tasks, indent=1).splitlines()[line], "the line of the task"


def test_the_short_format_is_read_whatever_the_name_of_the_choice(tmp_path):
    rows = [
        {"id": 1, "index": 10, "image": "x.png", "prediction": "dog", "kind": "cat", "annotator": 1, "lead_time": 2.5},
        {"id": 2, "index": 11, "kind": {"choices": ["dog"]}, "annotator": 1},
        {"id": 3, "index": "12", "kind": 2, "annotator": 1},
        {"id": 4, "index": 13, "kind": "cat", "mood": "good", "annotator": 1},
    ]
    kept, refused = imported(waiting_run(tmp_path), json.dumps(rows), "export.json")
    assert kept == {10: "cat", 11: "dog", 12: "eel"}
    assert "each of 'kind', 'mood' may be the label" in refused[0][1]


@pytest.mark.parametrize("name", ["label_studio.json", "label_studio.min.json"])
def test_files_in_the_formats_of_label_studio_are_read(tmp_path, name):
    """Three annotators of one point, a tie, a skipped task.

    Tasks after the documented format; the converter of label-studio-sdk 2.1.2 made the short form of them.
    """
    content = (Path(__file__).parent / name).read_text()
    kept, refused = imported(waiting_run(tmp_path), content, name)
    assert kept == {10: "dog", 12: "eel"} | ({13: "skip"} if name == "label_studio.json" else {})  # short: left out
    assert "a tie between annotators" in refused[0][1]


def test_what_stands_before_a_break_is_kept(tmp_path):
    whole = json.dumps([task(10, annotation("cat")), task(11, annotation("dog"))], indent=1)
    kept, refused = imported(waiting_run(tmp_path), whole[: whole.index('"id": 1011') + 20], "export.json")
    assert kept == {10: "cat"}
    assert "nothing after this is read" in refused[0][1]


# Malformed files


def originals():
    """Sound files, each with the piece that holds the answer about each point."""
    truth = {10: "cat", 11: "dog", 12: "eel", 13: "cat"}
    rows = {index: f"{index};{label};/a/{index}.png" for index, label in truth.items()}
    quoted = {index: f'{index},"{label}","a text, ""{index}"""' for index, label in truth.items()}
    long = {index: json.dumps(task(index, annotation(label), annotation(label))) for index, label in truth.items()}
    short = {index: json.dumps({"id": index, "index": index, "label": label}) for index, label in truth.items()}
    return [
        ("\r\n".join(["index;label;path", *rows.values()]), rows),
        ("\n".join(["index,label,text", *quoted.values()]), quoted),
        (f"[{', '.join(long.values())}]", long),
        ("[\n" + ",\n".join(short.values()) + "\n]", short),
    ]


INSERTED = [b'"', b"\n", b"\r", b",", b";", b"\0", b"\xff", b"{", b"]", b"[" * 3000]


def mutated(data, draw):
    """A file with some bytes changed, removed, repeated or put in: quotes, line ends, brackets, other encodings."""
    content = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 4, 16])):
        place = draw.randrange(len(content) + 1)
        kind = draw.randrange(6)
        if kind == 0 and content:
            content[place % len(content)] = draw.randrange(256)
        elif kind == 1:
            del content[place : place + draw.choice([1, 2, 40])]
        elif kind == 2:
            content[place:place] = draw.choice(
                [b'"', b"\n", b"\r", b",", b";", b"\0", b"\xff", b"{", b"]", b"[" * 3000]
            )
        elif kind == 3:
            content[place:place] = content[place : place + draw.choice([3, 30])]
        elif kind == 4:
            content[place:] = b""
        else:
            content[:0] = draw.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"sep=;\n", b" ", b"["])
    return bytes(content)


def test_malformed_files_never_crash_and_never_invent_or_lose_a_label(tmp_path):
    """10,000 of them with SLOW=1."""
    waiting_run(tmp_path)
    sound = originals()
    for number in range(10_000 if os.environ.get("SLOW") else 1500):
        draw = random.Random(number)
        text, pieces = draw.choice(sound)
        content = mutated(text.encode(), draw)
        found = read_answers(content)
        assert found, f"{number}: nothing is said about {content!r}"
        for entry in found:
            assert isinstance(entry, Refusal) or says(content, entry), f"{number}: {entry} is not in {content!r}"
            assert entry.line is not None
        answered = {entry.index for entry in found if isinstance(entry, Answer)}
        lost = [index for index, piece in pieces.items() if piece.encode() in content and index not in answered]
        assert not lost or any(isinstance(entry, Refusal) for entry in found), f"{number}: {lost} of {content!r}"
        if number % 100 == 0:  # and all the way to the disk
            kept, _ = imported(tmp_path, content)
            assert set(kept) <= {*ASKED, 1, 3, 4}


def says(content, answer):
    """Whether the bytes of a file hold both the index and the label of an answer, as text."""
    text = content.decode(errors="surrogateescape")
    label = answer.label if answer.label is not None else answer.verdict
    said = label in text or label in text.replace('""', '"') or answer.verdict == "skip"
    return str(answer.index) in text and said
