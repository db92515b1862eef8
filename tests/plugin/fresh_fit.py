"""Round 2 of a run beside the same fit on a Trainer, callbacks and a model that have never been used."""

from dataclasses import dataclass, field

import torch

from tests.plugin.toy_model import Data, Net, learner, quiet

FIRST, SECOND = 9, 17
"""Labels of round 1 and of round 2."""


@dataclass
class Fit:
    """What a fit came to."""

    steps: int = 0
    epochs: int = 0
    rates: list = field(default_factory=list)
    """The learning rate of each parameter group after every batch."""
    weights: dict = field(default_factory=dict)


class TracedNet(Net):
    """Notes the learning rates and the outcome of every fit."""

    def __init__(self, configure=None, **options):
        super().__init__(**options)
        self.fits = []
        self.configure = configure or (lambda module: torch.optim.SGD(module.parameters(), 0.1, momentum=0.9))

    def on_train_start(self):
        super().on_train_start()
        self.fits.append(Fit())

    def on_train_batch_end(self, *_):
        groups = [group for optimizer in self.trainer.optimizers for group in optimizer.param_groups]
        self.fits[-1].rates.append([float(group["lr"]) for group in groups])

    def on_train_epoch_end(self):
        super().on_train_epoch_end()
        self.fits[-1].epochs += 1

    def on_fit_end(self):
        if self.fits:
            self.fits[-1].steps = self.trainer.global_step
            self.fits[-1].weights = {name: value.detach().clone() for name, value in self.state_dict().items()}

    def configure_optimizers(self):
        return self.configure(self)


def both(tmp_path, make_model=TracedNet, make_callbacks=list, make_data=lambda: Data(batch_size=4), **options):
    """Round 2 on the Trainer of round 1, and the same round on everything fresh."""
    active, model = learner(budget=SECOND, folder=tmp_path / "run"), make_model()
    trainer = quiet(tmp_path / "run", active, *make_callbacks(), **{"max_epochs": 3} | options)
    assert active.fit(trainer, model, datamodule=make_data()).labels == [FIRST, SECOND]
    return model.fits[-1], fresh(tmp_path, make_model, make_callbacks, make_data, **options)


def fresh(tmp_path, make_model, make_callbacks, make_data, **options):
    """Round 2 alone: a folder that knows the labels and nothing else, a new model, a new Trainer, new callbacks."""
    (tmp_path / "fresh").mkdir()
    lines = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "fresh" / "rounds.jsonl").write_text("".join(lines[:2]))
    active, model = learner(budget=SECOND, folder=tmp_path / "fresh"), make_model()
    trainer = quiet(tmp_path / "fresh", active, *make_callbacks(), **{"max_epochs": 3} | options)
    active.fit(trainer, model, datamodule=make_data())
    return model.fits[-1]  # finders of rates and batch sizes fit on their own account before


def assert_same(ours, expected):
    assert ours.steps == expected.steps > 0
    assert ours.epochs == expected.epochs
    assert ours.rates == expected.rates
    assert ours.weights.keys() == expected.weights.keys()
    for name, value in expected.weights.items():
        assert torch.equal(ours.weights[name], value), name
