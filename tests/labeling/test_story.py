"""From an unlabeled folder to the end of the budget: real processes, killed between question, answer and fit."""

import csv
import json
import multiprocessing
import time
from pathlib import Path

from lightning_diffal.labeling.store import open_query
from lightning_diffal.pool.folder.check import check_run, read_run
from lightning_diffal.studies.cli import main
from tests.labeling.unlabeled_pictures import CLASSES, fit, make_pictures

TRUTH = [index % 3 for index in range(60)]


def kinds(folder):
    path = folder / "rounds.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line)["kind"] for line in text.splitlines() if line.endswith("}")]


def kill_when(place, happened):
    """Start the script in a process of its own, and kill -9 it as soon as something has happened in its folder.

    Lightning takes seconds to import, so it is forked from this process.
    """
    process = multiprocessing.get_context("fork").Process(target=fit, args=(place,), kwargs={"wait": True})
    process.start()
    end = time.monotonic() + 120
    while not happened() and process.is_alive() and time.monotonic() < end:
        time.sleep(0.002)
    assert process.is_alive(), "it ended by itself"
    process.kill()
    process.join()
    assert happened()


def fill_in(table, folder, **changes):
    """The CSV of a query with its label column filled in, as a spreadsheet of another language saves it."""
    with table.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["label"] = changes.get(f"p{row['index']}", CLASSES[TRUTH[int(row["index"])]])
    filled = folder / "filled.csv"
    with filled.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, list(reversed(rows[0])), delimiter=";")
        writer.writeheader()
        writer.writerows(rows)
    return filled


def label_studio_export(tasks, folder):
    """What Label Studio exports for imported tasks, as its guide documents it; of three annotators one is wrong."""
    export = []
    for number, task in enumerate(json.loads(tasks.read_text())):
        truth = TRUTH[task["data"]["index"]]
        said = [CLASSES[truth], CLASSES[(truth + 1) % 3], CLASSES[truth]]
        annotations = [
            {
                "id": 10 * number + who,
                "completed_by": who,
                "was_cancelled": False,
                "ground_truth": False,
                "lead_time": 2.5,
                "result": [
                    {"from_name": "kind", "to_name": "image", "type": "choices", "value": {"choices": [choice]}}
                ],
            }
            for who, choice in enumerate(said, start=1)
        ]
        export.append({"id": number + 1, "annotations": annotations, "predictions": [], **task})
    path = folder / "project-1-at-2026-01-01.json"
    path.write_text(json.dumps(export, indent=2))
    return path


def test_a_whole_run_with_people_survives_kills_and_bad_files(tmp_path, capsys):
    make_pictures(tmp_path / "pictures")
    run = tmp_path / "run"

    # Killed between the question and its answers.
    kill_when(tmp_path, lambda: kinds(run) == ["asked"])
    first = open_query(run)
    assert len(first.questions) == 6
    assert main(["status", str(run)]) == 4
    assert "0 of 6 points answered" in capsys.readouterr().out

    # The first labels, by CSV; killed between the answers and the fit.
    assert main(["answers", str(run), str(fill_in(run / "query_000.csv", tmp_path)), "--who", "ada"]) == 0
    assert main(["status", str(run)]) == 0
    kill_when(tmp_path, lambda: len(kinds(run)) == 2)
    assert kinds(run) == ["asked", "answered"]

    # The next round, by an export of Label Studio.
    history = fit(tmp_path, epochs=1)
    assert (history.labels, history.waiting.round) == ([6], 1)
    export = label_studio_export(Path(history.waiting.files[1]), tmp_path)
    assert main(["answers", str(run), str(export)]) == 0

    # Then a file with bad lines, and only a part of the answers.
    history = fit(tmp_path, epochs=1)
    asked = history.waiting.indices
    bad = fill_in(
        run / "query_002.csv", tmp_path, **{f"p{asked[0]}": "zebra", f"p{asked[1]}": "", f"p{asked[2]}": "skip"}
    )
    capsys.readouterr()
    assert main(["answers", str(run), str(bad), "--json"]) == 1
    outcome = json.loads(capsys.readouterr().out)
    assert sorted(outcome["stored"]) == sorted(asked[2:])
    assert {refusal["index"] for refusal in outcome["refused"]} == {asked[0], asked[1]}
    assert fit(tmp_path, epochs=1).waiting.answered == 4, "all are waited for"
    history = fit(tmp_path, epochs=1, wait_for="any")
    assert history.labels == [6, 12, 15]

    # The last answers; a correction of an earlier one; late answers to the round before.
    late = fill_in(run / "query_002.csv", tmp_path, **{f"p{asked[2]}": "skip"})
    assert main(["answers", str(run), str(late)]) == 0
    wrong = first.questions[0].index
    (tmp_path / "correction.csv").write_text(f"label,index\n{CLASSES[(TRUTH[wrong] + 1) % 3]},{wrong}\n")
    assert main(["answers", str(run), str(tmp_path / "correction.csv")]) == 0
    assert main(["answers", str(run), str(fill_in(run / "query_003.csv", tmp_path))]) == 0
    while history.waiting is not None:
        history = fit(tmp_path, epochs=1, wait_for="any")
        if history.waiting is not None:
            assert main(["answers", str(run), str(fill_in(Path(history.waiting.files[0]), tmp_path))]) == 0

    assert history.labels[:3] == [6, 12, 15], "no round was fitted twice"
    assert history.labels[-1] == 24
    assert check_run(run) == []
    labels = read_run(run).labels
    assert labels.pop(wrong) == (TRUTH[wrong] + 1) % 3
    assert labels == {index: TRUTH[index] for index in labels}
    assert asked[2] not in labels
    assert len(labels) == 23, "nothing was lost"
    assert main(["status", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["state"] == "over"
