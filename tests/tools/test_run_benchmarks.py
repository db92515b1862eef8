import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import run_benchmarks


def test_every_benchmark_has_a_short_form_with_options_that_it_takes():
    files = {path.stem: path.read_text() for path in run_benchmarks.FOLDER.glob("bench_*.py")}
    assert files.keys() == run_benchmarks.SHORT.keys()
    for name, text in files.items():
        for option in re.findall(r"--\S+", run_benchmarks.SHORT[name]):
            assert f'"{option}"' in text, f"{name}: {option}"


def test_one_benchmark_fails_alone_and_one_that_is_too_slow_is_stopped_with_the_rows_it_printed(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "bench_a_fails.py").write_text("raise SystemExit('no module')")
    (tmp_path / "bench_b_slow.py").write_text("import time\nprint('| row |', flush=True)\ntime.sleep(60)")
    (tmp_path / "bench_c_needs_data.py").write_text("print('| never |')")
    (tmp_path / "bench_d_good.py").write_text("import sys\nprint('|', *sys.argv[1:], '|')")
    monkeypatch.setattr(run_benchmarks, "FOLDER", tmp_path)
    monkeypatch.setattr(run_benchmarks, "SHORT", {"bench_c_needs_data": "DATA/x", "bench_d_good": "--size 3"})
    monkeypatch.setattr(sys, "argv", ["run_benchmarks.py", "--out", str(tmp_path / "out"), "--minutes", "0.15"])
    assert run_benchmarks.main() == 1
    said = capsys.readouterr().out
    assert "bench_a_fails: failed" in said
    assert "bench_b_slow: stopped after" in said
    assert "bench_c_needs_data: left out, it needs --data" in said
    assert "bench_d_good: done" in said
    assert "no module" in (tmp_path / "out/bench_a_fails.log").read_text()
    assert (tmp_path / "out/bench_b_slow.md").read_text() == "| row |\n"
    assert (tmp_path / "out/bench_d_good.md").read_text() == "| --size 3 |\n"
