"""The report of a run: what its files say, readable by everyone, and nothing of it is markup."""

import base64
import io
import re
from dataclasses import replace

import pytest
from PIL import Image

from lightning_diffal.labeling.query_files import query_name, write_questions
from lightning_diffal.labeling.question import Answer, Question
from lightning_diffal.labeling.store import store_answers
from lightning_diffal.pool.label_pool import LabelPool
from lightning_diffal.pool.ledger import Ledger
from lightning_diffal.pool.record import Answered, Record
from lightning_diffal.report.run.page import figures_of, page
from lightning_diffal.report.run.run_data import read_run_data
from lightning_diffal.studies.cli import main
from tests.html_tree import parse, table_of

EVIL = "<b>&\"'"
CLASSES = ["ant", "bee", EVIL]


def round_of(number, labeled, indices, labels, **known):
    return Record(
        round=number,
        labeled=labeled,
        indices=indices,
        labels=labels,
        scores=[0.25] * len(indices),
        reached=known.pop("reached", [None] * len(indices)),
        selector="DiffusionSelector()",
        seeds={"run": 3, "round": number},
        initial="4",
        dataset="100-0123456789abcdef",
        **known,
    )


ROUNDS = [
    round_of(0, 0, [0, 1, 2, 3], [0, 0, 1, 0]),
    round_of(1, 4, [10, 11, 12], [0, 1, 1], metrics={"val_acc": 0.5, "val_loss": 2.0}, reached=[False, False, True],
             seconds={"fit": 2.0, "embedding": 0.25, "graph": 0.5, "scores": 0.25}, unreached=24, steps=40),
    round_of(2, 7, [20, 21], [2, 1], metrics={"val_acc": 0.75, "val_loss": 1.0}, reached=[True, True],
             diffused={"points": 40.0, "leave_one_out": 0.875},
             seconds={"fit": 3.0, "embedding": 0.25, "graph": 0.5, "query": 0.5}, unreached=0, steps=60),
    round_of(3, 9, [], [], metrics={"val_acc": 0.625, "val_loss": None}, seconds={"fit": 4.0}, steps=80, last="budget"),
]  # fmt: skip


def simulated(folder):
    ledger, pool = Ledger(folder), LabelPool(100)
    for record in ROUNDS:
        ledger.append(record, pool)
    return folder


def asked_of_people(folder):
    """The same run until its second query, answered by people: one label, one open, after a round with a skip."""
    ledger, pool = Ledger(folder), LabelPool(100)
    for record in ROUNDS[:3]:
        unknown = [None] * len(record.indices)
        labeled = [0, 4, 6][record.round]
        ledger.append(
            replace(record, labels=unknown, labeled=labeled, classes=CLASSES, asked_at="2026-01-01T10:30:00"), pool
        )
        path = folder / f"{record.round}.png"
        Image.new("L", (300, 200), 40 * record.round).save(path)
        questions = [Question(index=index, text=f"{EVIL} {index}", prediction="bee") for index in record.indices]
        questions[0] = Question(index=record.indices[0], path=path.name, prediction="ant")
        write_questions(folder, query_name(record.round), questions)
        if record.round < 2:
            given = [pair for pair in zip(record.indices, record.labels, strict=True) if pair[0] != 12]
            said = {"who": ["ada"] * len(given), "when": ["2026"] * len(given)}
            skipped = [12] if record.round == 1 else []
            indices, labels = map(list, zip(*given, strict=True))
            ledger.append(Answered(round=record.round, indices=indices, labels=labels, skipped=skipped, **said), pool)
    store_answers(folder, [Answer(index=20, label=EVIL)], "eve")
    return folder


def report_of(folder):
    run = read_run_data(folder)
    html = page(run, figures_of(run))
    return html, parse(html)


def numbers(tree, caption):
    """The rows of a table, without its head."""
    return [list(row.values()) for row in table_of(tree, caption).values()]


def test_the_numbers_are_those_of_the_ledger(tmp_path):
    html, tree = report_of(simulated(tmp_path))
    assert "3 fits, 9 labels of a pool of 100." in html
    assert "val_acc goes from 0.5 with 4 labels to 0.625 with 9 labels. The highest, 0.75, was with 7 labels." in html
    assert "The budget is spent." in html
    assert numbers(tree, "every metric") == [["4", "0.5", "2"], ["7", "0.75", "1"], ["9", "0.625", "–"]]
    assert table_of(tree, "Points of each query")["1"] == {"round": "1", "explored": "2", "refined": "1"}
    assert numbers(tree, "Labels of each class") == [["0", "4", "1"], ["1", "4", "3"], ["2", "1", "8"]]
    assert numbers(tree, "no label had reached") == [
        ["1", "4", "24", "25.00%", "–", "–"],
        ["2", "7", "0", "0.00%", "87.50%", "40"],
    ]
    seconds = numbers(tree, "Seconds of each stage")
    assert seconds[:2] == [["round 1", "2", "0.25", "0.5", "0.25"], ["round 2", "3", "0.25", "0.5", "0.5"]]
    assert "11.2 s in all: 9 s of fits, 2.25 s of embedding, graph and query." in html
    orders = [table for table in tree.all("table") if "in the order asked" in next(table.all("caption")).text]
    assert [cell.text for cell in list(orders[1].all("tr"))[1].children] == ["10", "0", "0.25", "explores"]


def test_what_people_were_asked_is_a_gallery_with_their_answers(tmp_path):
    html, tree = report_of(asked_of_people(tmp_path))
    labels = [node.text for gallery in tree.classed("gallery") for node in gallery.classed("label")]
    assert labels == ["ant", "ant", "bee", "ant", "ant", "bee", "skipped", EVIL, "no answer yet"]
    assert "It waits for answers since 2026-01-01 10:30 UTC: 1 of 2 are there." in html
    assert "3 of 3 classes found" in html
    pictures = list(tree.all("img"))
    assert len(pictures) == 3
    kind, data = re.fullmatch(r"data:image/(\w+);base64,(.*)", pictures[1].attributes["src"]).groups()
    thumbnail = Image.open(io.BytesIO(base64.b64decode(data)))
    assert (kind, thumbnail.size) == ("jpeg", (112, 75))
    assert abs(thumbnail.getpixel((50, 30)) - 40) < 4
    last = tree.classed("gallery")[2]
    assert [node.text for node in last.classed("remark")] == ["refines", "model: ant", "refines"], "where it was wrong"
    assert EVIL not in html
    assert not list(tree.all("b"))


def test_the_page_needs_nothing_beside_itself_and_reads_without_eyes(tmp_path):
    html, tree = report_of(asked_of_people(tmp_path))
    assert not re.search(r"https?://|url\(|@import|<script", html)
    assert all(node.attributes["src"].startswith("data:image/") for node in tree.all() if "src" in node.attributes)
    ids = [node.attributes["id"] for node in tree.all() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    assert {node.attributes["href"].removeprefix("#") for node in tree.all("a")} <= set(ids)
    assert all(len(node.attributes["aria-label"]) > 10 for node in tree.all("svg"))
    assert all(len(node.attributes["alt"]) > 10 for node in tree.all("img"))


def test_the_command_tells_a_run_from_studies_and_from_neither(tmp_path, capsys):
    run = simulated(tmp_path / "run")
    assert main(["report", str(run), "--out", str(tmp_path / "out")]) == 0
    assert "Report of the run" in (tmp_path / "out" / "report.html").read_text()
    figures = {path.stem for path in (tmp_path / "out").glob("*.png")}
    assert figures == {"metric", "other-metrics", "classes", "phases", "graph", "seconds"}
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / "empty")]) == 2
    message = capsys.readouterr().err
    assert "no results here" in message
    assert "rounds.jsonl" in message
    text = (run / "rounds.jsonl").read_text()
    (run / "rounds.jsonl").write_text(text.replace('"labeled": 4', '"labeled": 5'))
    assert main(["report", str(run)]) == 2
    assert re.search(r"rounds.jsonl, line 2: .*lightning-diffal repair", capsys.readouterr().err)


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_run_that_has_just_begun_has_a_report(tmp_path, rounds):
    ledger, pool = Ledger(tmp_path), LabelPool(100)
    for record in ROUNDS[:rounds]:
        ledger.append(replace(record, metrics={}, seconds={}, unreached=None), pool)
    assert "No metric was logged yet" in report_of(tmp_path)[0]
