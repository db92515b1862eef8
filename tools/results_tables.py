"""Write the tables of docs/results.md and README.md from the files in docs/results: python tools/results_tables.py."""

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from lightning_diffal.studies.report.statistics import paired_difference
from lightning_diffal.studies.results import LEARNING

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
# The columns of the README's table, and its rows.
SHOWN = {
    "coverage" + LEARNING: "coverage, learning from the graph",
    "coverage": "coverage",
    "diffusion": "diffusion (the paper's)",
    "badge": "BADGE",
    "uherding": "UHerding",
    "random": "random",
}
STUDIES = ("mnist-fc", "mnist-conv", "mnist-lt", "cifar10-efficientnet", "cifar10", "checkerboard")


def name_of(result: dict[str, Any]) -> str:
    return str(result["selector"]) + LEARNING * ("learn_from_graph" in result["settings"])


def keeps_steps(result: dict[str, Any]) -> bool:
    return bool(result["study"] == "cifar10" and result["settings"]["shrink_below"] == 0)


def accuracies(result: dict[str, Any]) -> list[float]:
    return [step["accuracy"] for step in result["rounds"]]


def spread(values: list[float]) -> str:
    return f"{fmean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


def accuracy_table(results: list[dict[str, Any]]) -> list[str]:
    runs = defaultdict(list)
    for result in results:
        runs[name_of(result)].append(result)
    rows = [["selector", "seeds", "mean accuracy", "last accuracy", "labels", "seconds a run"], ["---"] * 6]
    for name in sorted(runs, key=lambda name: -fmean(fmean(accuracies(run)) for run in runs[name])):
        own = runs[name]
        seconds = fmean(sum(sum(step["seconds"].values()) for step in run["rounds"]) for run in own)
        means, last = [fmean(accuracies(run)) for run in own], [accuracies(run)[-1] for run in own]
        labels = str(own[0]["rounds"][-1]["labels"])
        rows.append([name, str(len(own)), spread(means), spread(last), labels, f"{seconds:.0f}"])
    return ["| " + " | ".join(row) + " |" for row in rows]


def short(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1)


def mean_accuracies(results: list[dict[str, Any]]) -> dict[str, dict[str, dict[int, float]]]:
    """By study, series and seed."""
    means: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for result in results:
        name = name_of(result) + ", δ = 0" * keeps_steps(result)
        means[result["study"]][name][result["seed"]] = fmean(accuracies(result))
    return means


def readme_table(results: list[dict[str, Any]]) -> list[str]:
    """Mean accuracies of the selectors that matter most, and how far coverage is ahead of the best of all others."""
    means = mean_accuracies(results)
    rows = [["command", *SHOWN.values(), "coverage - the best other (95% CI)"], ["---"] * (2 + len(SHOWN))]
    for study in STUDIES:
        of_study = means[study]
        row = [f"`lightning-diffal run {study}{' --data DIR' * (study != 'checkerboard')}`"]
        row += [spread(list(of_study[name].values())) if name in of_study else "–" for name in SHOWN]
        others = [name for name in of_study if LEARNING not in name and name != "coverage"]
        best = max(others, key=lambda name: fmean(of_study[name].values()))
        found = paired_difference(of_study["coverage"], of_study[best])
        if found is None:
            raise ValueError(f"{study}: coverage and {best} share no seeds.")
        mean = short(found.mean)
        interval = f"{short(found.low)} to {short(found.high)}"
        rows.append([*row, f"{best} {mean if mean.startswith('-') else f'+{mean}'} ({interval})"])
    return ["| " + " | ".join(row) + " |" for row in rows]


def difference_rows(results: list[dict[str, Any]]) -> list[str]:
    rows = []
    for study, of_study in mean_accuracies(results).items():
        names = sorted(of_study, key=lambda name: -fmean(of_study[name].values()))
        plain, learning = [name for name in names if LEARNING not in name], [name for name in names if LEARNING in name]
        pairs = [("coverage", that) for that in plain] + [("diffusion", that) for that in plain]
        pairs += [(this, "random") for this in ("badge", "margin", "coreset", "uherding", "diffusion, δ = 0")]
        pairs += [("diffusion, δ = 0", "badge")]
        pairs += [("coverage" + LEARNING, that) for that in learning]
        pairs += [(this, this.split(",")[0]) for this in learning]
        pairs += [("coverage" + LEARNING, "random")]
        for this, that in dict.fromkeys(pairs):
            if this == that or (this, that) == ("diffusion", "coverage") or not {this, that} <= set(names):
                continue
            found = paired_difference(of_study[this], of_study[that])
            if found is None or found.half is None:
                continue
            low, mean, high = short(found.low), short(found.mean), short(found.high)
            sure = "no" if low.startswith("-") is not high.startswith("-") else "yes"
            mean = mean if mean.startswith("-") else f"+{mean}"
            rows.append(f"| {study} | {this} | {that} | {found.seeds} | {mean} | {low} to {high} | {sure} |")
    return rows


def main() -> None:
    """Replace each table in its place; the command above it says which study it is of."""
    paths = sorted((ROOT / "docs" / "results").glob("*/*.json"))
    results = [json.loads(path.read_text()) for path in paths]
    lines, study, out = PAGE.read_text().splitlines(), ("", False), []
    inside = False
    for line in lines:
        if found := re.match(r"`lightning-diffal run (\S+)(?: --dataset (\w+))?", line):
            study = ("-".join(filter(None, found.groups())), "--shrink-below 0" in line)
        if inside and line.startswith("|"):
            continue
        inside = False
        if line.startswith("| selector") and "seconds a run" in line:
            out += accuracy_table([one for one in results if (one["study"], keeps_steps(one)) == study])
            inside = True
        elif line.startswith("| study | this"):
            out += [line, "|---" * 7 + "|", *difference_rows(results)]
            inside = True
        else:
            out.append(line)
    PAGE.write_text("\n".join(out) + "\n")
    before, _, after = re.split(r"(\| command \|.*\n(?:\|.*\n)+)", README.read_text())
    README.write_text(before + "\n".join(readme_table(results)) + "\n" + after)


if __name__ == "__main__":
    main()
