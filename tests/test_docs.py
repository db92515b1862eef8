"""What a user might copy from a page runs, and what a page names is there."""

import importlib
import re
import runpy
import shlex
import warnings

import lightning as L  # noqa: N812
import matplotlib as mpl
import pytest
import torch
import yaml

from lightning_diffal import UNLABELED, Snapshot
from lightning_diffal.studies.cli import parser
from tests.markdown import PAGES, ROOT, blocks, commands, inline_code

# test_readme.py and test_library_recipes.py run theirs.
SNIPPETS = [block for block in blocks("python") if block.page not in ("README.md", "libraries.md")]
LABELS = [20, 40, 60, 80, 100]


def run(snippet, folder, monkeypatch):
    """The names a snippet leaves behind, run in an empty folder on a model and data of somebody else's."""
    monkeypatch.chdir(folder)
    mpl.use("Agg")
    other = runpy.run_path(str(ROOT / "examples" / "smallest_use.py"))
    train, test = other["spirals"](300, seed=0), other["spirals"](100, seed=1)
    data = L.LightningDataModule.from_datasets(train, test, batch_size=10)
    names = {"model": other["Network"](), "data": data}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Lightning's default logger and bars
        exec(compile(snippet.text, str(snippet), "exec"), names)
    return names


@pytest.mark.parametrize("snippet", SNIPPETS, ids=str)
def test_every_snippet_of_the_documentation_runs(snippet, tmp_path, monkeypatch):
    names = run(snippet, tmp_path, monkeypatch)
    if "history" in names:
        history = names["history"]
        assert len(history) > 1
        assert history.labels == LABELS[: len(history)]
        assert all(row["steps"] > 0 for row in history)


def test_the_scan_finds_the_snippets():
    assert len(SNIPPETS) > 10
    assert {"usage.md", "recipes.md"} <= {snippet.page for snippet in SNIPPETS}


def test_people_are_believed_and_not_the_dataset(tmp_path, monkeypatch):
    (snippet,) = [one for one in SNIPPETS if "ask_people" in one.text]
    run(snippet, tmp_path, monkeypatch)
    answers = (tmp_path / "active_learning" / "rounds.jsonl").read_text()
    records = [yaml.safe_load(line) for line in answers.splitlines()]
    pairs = [pair for record in records for pair in zip(record["indices"], record["labels"], strict=True)]
    assert len(pairs) == 60
    assert all(label == index % 3 for index, label in pairs)


def test_a_selector_of_ones_own_chooses_by_its_score(tmp_path, monkeypatch):
    (snippet,) = [one for one in SNIPPETS if "class LeastNormSelector" in one.text]
    names = run(snippet, tmp_path, monkeypatch)
    embeddings = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
    snapshot = Snapshot(labels=torch.full((500,), UNLABELED), num_classes=3, embeddings=embeddings)
    smallest = embeddings.norm(dim=1).argsort()[:20]
    assert names["LeastNormSelector"]()(snapshot, 20).indices.tolist() == smallest.tolist()


def test_the_core_snippet_prints_twenty_different_unlabeled_points(tmp_path, monkeypatch):
    (snippet,) = [one for one in SNIPPETS if "print(query.indices)" in one.text]
    names = run(snippet, tmp_path, monkeypatch)
    assert len(set(names["query"].indices.tolist()) - {0, 1, 2}) == 20


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_the_yaml_names_a_class_and_its_arguments(block):
    for entry in yaml.safe_load(block.text)["trainer"]["callbacks"]:
        module, name = entry["class_path"].rsplit(".", 1)
        assert getattr(importlib.import_module(module), name)(**entry["init_args"])


def test_every_command_of_the_studies_is_understood():
    given = [(page, command) for page, command in commands() if command.startswith("lightning-diffal ")]
    assert len(given) > 10
    for page, command in given:
        try:
            parser().parse_args(shlex.split(command)[1:])
        except SystemExit:
            pytest.fail(f"{page}: {command}")


def test_every_script_is_there_and_takes_the_options():
    scripts = [
        (page, shlex.split(command)) for page, command in commands() if re.search(r"python \S+\.py|-m pytest", command)
    ]
    assert len(scripts) > 5
    for page, (_, *words) in scripts:
        path = next(ROOT / word for word in words if word.endswith(".py"))
        assert path.exists(), f"{page}: {path}"
        if "-m" not in words:
            for option in [word for word in words if word.startswith("--")]:
                assert f'"{option}"' in path.read_text(), f"{page}: {words}"


def test_every_target_of_make_is_there():
    targets = {command.split()[1] for _, command in commands() if command.startswith("make ")}
    assert {"test", "docs"} <= targets
    makefile = (ROOT / "Makefile").read_text()
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_every_path_and_module_that_is_named_exists():
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
    for page, code in inline_code():
        if re.fullmatch(rf"({folders})/[\w./-]*", code) and not code.startswith("out/"):
            assert (ROOT / code).exists(), f"{page}: {code}"
        if re.fullmatch(r"lightning_diffal(\.\w+)+", code):
            parent, _, name = code.rpartition(".")
            module = importlib.import_module(parent)
            assert hasattr(module, name) or importlib.import_module(code), f"{page}: {code}"


def test_every_link_leads_to_a_file_and_every_figure_has_a_description():
    for page in PAGES:
        text = page.read_text()
        for described, target in re.findall(r"(!?\[[^\]]*\])\(([^)]+)\)", text):
            assert described != "![]", f"{page.name}: {target}"
            if not target.startswith("https://"):
                path, _, anchor = target.partition("#")
                there = (page.parent / path).resolve() if path else page
                assert there.is_file(), f"{page.name}: {target}"
                assert not anchor or anchor in anchors(there), f"{page.name}: {target}"


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_page_of_docs_is_in_the_site():
    site = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f": {page.name}\n" not in site] == []


def test_every_public_name_is_in_the_api_reference():
    api = (ROOT / "docs" / "api.md").read_text()
    selectors = importlib.import_module("lightning_diffal.selectors")
    for name in selectors.__all__:
        assert re.search(rf"^::: lightning_diffal\.(selectors\.)?{name}$", api, re.MULTILINE), name
    readme = (ROOT / "README.md").read_text()
    named = [name for name in selectors.__all__ if re.fullmatch(r"(?!Score)\w+Selector", name)]
    assert len(named) > 10
    assert [name for name in named if f"| `{name}` |" not in readme] == []
