"""Tasks without one class a point are refused by name before a label is spent, and there is a way around."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader

from lightning_diffal import ActiveLearning
from tests.plugin.counting import Counted, Recorder, Small, Trains, asks_first, check_only_labeled_were_drawn
from tests.plugin.toy_model import quiet

N = 40
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(N, 8, generator=GENERATOR)
IMAGES = torch.randn(N, 1, 6, 6, generator=GENERATOR)


class Regressor(Small):
    def __init__(self):
        super().__init__(classes=1)

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self(batch[0])[:, 0], batch[1].float())


class MultiLabel(Small):
    def training_step(self, batch, batch_idx):
        return F.binary_cross_entropy_with_logits(self(batch[0]), batch[1].float())


class Segmenter(Trains):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 3, 1))

    def forward(self, x):
        return self.net(x)


MASKS = IMAGES[:, 0].gt(0).long()
BOXES = {"boxes": torch.tensor([[0.0, 0.0, 3.0, 3.0]]), "labels": torch.tensor([1])}

TASKS = {
    "multi-label": (lambda i: (X[i], (X[i, :4] > 0).long()), MultiLabel),
    "multi-label in a dictionary": (lambda i: {"x": X[i], "labels": (X[i, :4] > 0).float()}, MultiLabel),
    "segmentation": (lambda i: (IMAGES[i], MASKS[i]), Segmenter),
    "segmentation in a dictionary": (lambda i: {"image": IMAGES[i], "label": MASKS[i][None]}, Segmenter),
    "segmentation by key": (lambda i: {"image": IMAGES[i], "mask": MASKS[i]}, Segmenter),
    "detection": (lambda i: (IMAGES[i], BOXES), Segmenter),
    "regression": (lambda i: (X[i], float(X[i, 0])), Regressor),
    "regression with tensors": (lambda i: (X[i], X[i, :1] * 3), Regressor),
    "regression to several numbers": (lambda i: (X[i], X[i, :3]), Regressor),
    "regression to whole numbers": (lambda i: (X[i], torch.tensor([20.0 + i])), Regressor),
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("layer", [None, "backbone"])
def test_a_task_without_classes_is_refused_by_name_before_the_first_fit(tmp_path, task, layer):
    item, model = TASKS[task]
    if layer is not None and model is Segmenter:
        layer = "net.0"
    name = task.split()[0]
    active, dataset = asks_first(layer=layer), Counted(map(item, range(N)))
    recorder = Recorder(dataset)
    with pytest.raises(Exception, match=rf"(?s){name}.*one class (for each|a) point.*embedding=.*label="):
        active.fit(quiet(tmp_path, active, recorder), model(), DataLoader(dataset, batch_size=8))
    assert not recorder.fits
    assert not (tmp_path / "active_learning" / "rounds.jsonl").exists()


def largest_norm(snapshot, size):
    """A score of one's own that needs no class."""
    norms = snapshot.embeddings.norm(dim=1)
    return snapshot.unlabeled[norms[snapshot.unlabeled].argsort(descending=True)[:size]]


largest_norm.needs = frozenset({"embeddings"})


@pytest.mark.parametrize("task", ["segmentation", "regression", "multi-label"])
def test_the_way_around_that_the_message_names_works(tmp_path, task):
    item, model = TASKS[task]
    dataset = Counted(map(item, range(N)))
    recorder, seen = Recorder(dataset), []

    class Notes(model):
        def training_step(self, batch, batch_idx):
            seen.append(batch[1])
            return super().training_step(batch, batch_idx)

    active = ActiveLearning(
        8,
        20,
        initial=12,
        selector=largest_norm,
        embedding=lambda module, batch: module(batch[0]).flatten(1),
        label=(lambda item: 0, lambda item, label: item),
    )
    history = active.fit(quiet(tmp_path, active, recorder, max_epochs=1), Notes(), DataLoader(dataset, batch_size=8))
    assert history.labels == [12, 20]
    check_only_labeled_were_drawn(recorder, tmp_path)
    assert seen[0].shape[1:] == torch.as_tensor(item(0)[1]).shape, "the targets are the dataset's own"
