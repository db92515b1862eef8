"""Labels that their neighbors contradict: found, asked about again, corrected in the ledger."""

import csv

import torch

from lightning_diffal import ActiveLearning, build_graph
from lightning_diffal.labeling.store import open_query
from lightning_diffal.plugin.audit import rank_suspicious
from lightning_diffal.pool.folder.check import read_run
from lightning_diffal.selectors import MarginSelector
from lightning_diffal.studies.cli import main
from tests.plugin.toy_model import Clouds, Data, Net, quiet


def test_flipped_labels_come_first():
    points = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)) + 8 * (torch.arange(200) % 2)[:, None]
    labels = torch.where(torch.arange(200) % 4 < 2, torch.arange(200) % 2, -1)
    flipped = [0, 9, 40, 65]
    labels[flipped] = 1 - labels[flipped]
    ranking = rank_suspicious(build_graph(points, 10), labels, 2)
    assert sorted(ranking.rows.tolist()[:4]) == flipped
    assert ranking.predicted[:4].tolist() == [int(row) % 2 for row in ranking.rows[:4]]
    assert bool((ranking.suspicion.diff() <= 0).all())


def test_what_an_audit_doubts_is_corrected_by_its_table(tmp_path, capsys):
    wrong = [3, 31]
    dataset = Clouds(90)
    truth = dataset.targets.tolist()
    dataset.x += 20 * torch.nn.functional.one_hot(dataset.targets, 3)[:, :2]

    def oracle(indices):
        return [(truth[index] + (index in wrong)) % 3 for index in indices]

    active = ActiveLearning(
        5, 60, selector=MarginSelector(), initial=list(range(60)), oracle=oracle, features="inputs", folder=tmp_path
    )
    active.fit(quiet(tmp_path, active, max_epochs=1, limit_val_batches=0), Net(), datamodule=Data(dataset))
    found = active.audit(limit=2)
    assert sorted(question.index for question in found) == wrong
    assert [question.label for question in found] == [str((question.index + 1) % 3) for question in found]
    assert [question.diffused for question in found] == [str(question.index % 3) for question in found]
    query = open_query(tmp_path, audit=True)
    assert ([question.label for question in query.questions], query.answers) == ([q.label for q in found], {})
    rows = list(csv.DictReader((tmp_path / "audit.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert [(row["label"], row["current_label"]) for row in rows] == [("", question.label) for question in found]
    lines = "".join(f"{row['index']},{row['diffused']}\n" for row in rows)
    (tmp_path / "audited.csv").write_text(f"index,label\n{lines}")
    assert main(["answers", str(tmp_path), str(tmp_path / "audited.csv")]) == 0
    assert "2 labels that the run had used were corrected" in capsys.readouterr().out
    assert read_run(tmp_path).labels == {index: truth[index] for index in range(60)}
    assert len(open_query(tmp_path, audit=True).answers) == 2
