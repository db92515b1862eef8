"""Every recipe of the documentation runs as it stands, with the real package, and trains on labeled points only."""

import importlib.util
import json
import re
import warnings
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "libraries.md").read_text()
RECIPES = dict(re.findall(r"^## (.+?)\n.*?```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))
PACKAGES = {
    "timm": "timm",
    "transformers": "transformers",
    "torch_geometric": "torch_geometric",
    "albumentations": "albumentations",
    "MONAI": "monai",
    "pytorch-metric-learning": "pytorch_metric_learning",
}


class CountedList(list):
    """A dataset that is a list cannot change its class in place."""

    def __getitem__(self, index):
        note(self, index)
        return super().__getitem__(index)


def note(dataset, index):
    if vars(dataset).get("recording", False):
        dataset.drawn.append(int(index))


def counted(dataset):
    """The same dataset, which notes what is drawn while `recording`."""
    if isinstance(dataset, list):
        fresh = CountedList(dataset)
    else:
        kind = type(dataset)

        def item(self, index):
            note(self, index)
            return kind.__getitem__(self, index)

        fresh = dataset
        # A dataset may have __getitems__ for whole batches, which would go past the counting.
        fresh.__class__ = type(kind.__name__, (kind,), {"__getitem__": item, "__getitems__": None})
    fresh.recording, fresh.drawn = False, []
    return fresh


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.timeout(600)
def test_a_recipe_runs_and_trains_on_labeled_points_only(name, tmp_path, monkeypatch):
    package = PACKAGES.get(name)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")
    fits = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other packages, of Lightning's default logger and bars
        before, after = re.split(r"^(?=active = )", RECIPES[name], maxsplit=1, flags=re.MULTILINE)
        names = {"__name__": "recipe"}
        exec(compile(before, f"libraries.md, {name}", "exec"), names)
        plain, names["dataset"] = names["dataset"], counted(names["dataset"])
        dataset, model = names["dataset"], names["model"]
        assert "unlabeled" not in names.get("loaders", {}) or names["loaders"]["labeled"].dataset is plain

        def start():
            dataset.recording, dataset.drawn = True, []

        def end():
            dataset.recording = False
            fits.append((model.trainer.current_epoch, dataset.drawn))

        model.on_train_epoch_start, model.on_train_epoch_end = start, end
        exec(compile(after, f"libraries.md, {name}", "exec"), names)
    labels, epochs = names["history"].labels, names["trainer"].max_epochs
    assert len(labels) > 1
    assert labels[-1] == names["active"].budget if hasattr(names["active"], "budget") else labels[-1] > labels[0]
    lines = (tmp_path / "active_learning" / "rounds.jsonl").read_text().splitlines()
    asked = [set(json.loads(line)["indices"]) for line in lines]
    assert len(fits) == len(labels) * epochs
    for number, (_, drawn) in enumerate(fits):
        if name == "Semi-supervised learning":
            continue  # one dataset is under both loaders here; tests/plugin/test_semi_supervised.py counts them apart
        labeled = set().union(*asked[: number // epochs + 1])
        assert drawn
        assert set(drawn) <= labeled


def test_every_block_of_the_page_is_a_recipe():
    assert len(re.findall("```python", PAGE)) == len(RECIPES)
    assert set(PACKAGES) <= set(RECIPES)
