import json
import re
import sys
from pathlib import Path

from lightning_diffal.graph.knn.registry import BACKENDS
from lightning_diffal.studies.selector_registry import SELECTORS

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import on_a_gpu


def run(monkeypatch, capsys):
    options = ["--device", "cpu", "--check", "200", "--sizes", "150", "--dimensions", "8", "--query", "10"]
    monkeypatch.setattr(sys, "argv", ["on_a_gpu.py", *options])
    code = on_a_gpu.main()
    output = capsys.readouterr().out
    return code, output, json.loads(output.splitlines()[-1])


def test_the_cpu_agrees_with_itself_on_every_backend_and_selector(monkeypatch, capsys):
    code, output, line = run(monkeypatch, capsys)
    count = len(BACKENDS) + len(SELECTORS)
    assert code == 0
    assert line["agree"] == f"{count} of {count}"
    assert line["wrong"] == {}
    rows = re.findall(r"^\| (graph|query), (\S+) \|", output, re.MULTILINE)
    assert rows == 2 * ([("graph", name) for name in BACKENDS] + [("query", name) for name in SELECTORS])
    assert len(line["seconds"]) == count


def test_a_device_that_chooses_otherwise_or_fails_is_named(monkeypatch, capsys):
    def reversed_order(study):
        calls = []

        def choose(snapshot, size, generator):
            calls.append(1)
            order = snapshot.unlabeled if len(calls) == 1 else snapshot.unlabeled.flip(0)
            return type("Query", (), {"indices": order[:size]})

        return choose

    def failing(study):
        raise RuntimeError("CUDA error: no kernel image")

    chooser = reversed_order(None)
    monkeypatch.setattr(on_a_gpu, "SELECTORS", {"flips": lambda study: chooser, "fails": failing})
    monkeypatch.setattr(on_a_gpu, "BACKENDS", {"torch": BACKENDS["torch"]})
    code, _, line = run(monkeypatch, capsys)
    assert code == 1
    assert line["agree"] == "1 of 3"
    assert line["wrong"]["query, flips"] == "DIFFERENT: 0 of 10 points in common"
    assert "no kernel image" in line["wrong"]["query, fails"]
