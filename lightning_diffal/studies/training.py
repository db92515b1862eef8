"""How the networks are trained: a LightningModule as users write them, and a Trainer that does nothing else."""

from pathlib import Path
from typing import Any

import lightning as L  # noqa: N812
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

from lightning_diffal.studies.optimizers import SGD, Adam

ACCURACY, CALIBRATION_ERROR = "accuracy", "calibration_error"
STEPS_PER_BATCH = 64


class Classifier(L.LightningModule):
    """Cross entropy in training; accuracy and calibration error over the whole test set in validation.

    With networks and batches as small as the paper's, the loops and hooks around a step cost more than the step
    itself. So optimization is manual in Lightning's sense, and a batch of the loader is `STEPS_PER_BATCH` batches of
    training, one step after another: the same points in the same order, and the same weights. Points with diffused
    labels, which follow the labeled ones of a batch, are spread evenly over its steps.

    Args:
        batch_size: Points of a step.
    """

    def __init__(self, layers: nn.Module, optimizer: SGD | Adam, batch_size: int, num_classes: int) -> None:
        super().__init__()
        self.layers, self.optimizer, self.batch_size, self.automatic_optimization = layers, optimizer, batch_size, False
        self.accuracy = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        self.calibration_error = MulticlassCalibrationError(num_classes, validate_args=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]

    def on_train_start(self) -> None:
        self.steps: Any = self.optimizers(use_pl_optimizer=False)
        loader: Any = self.trainer.train_dataloader
        self.num_labeled = len(loader.dataset)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        seen = batch_idx * STEPS_PER_BATCH * self.batch_size
        labeled = min(STEPS_PER_BATCH * self.batch_size, self.num_labeled - seen)
        for x, y in zip(*(split_evenly(part, labeled, self.batch_size) for part in batch), strict=True):
            loss = cross_entropy(self.layers(x), y)
            self.steps.zero_grad()
            loss.backward()
            self.steps.step()

    def on_train_epoch_end(self) -> None:
        scheduler: Any = self.lr_schedulers()
        if scheduler is not None:
            scheduler.step()

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        logits = self.layers(batch[0])
        self.accuracy.update(logits, batch[1])
        self.calibration_error.update(logits.softmax(dim=1), batch[1])
        self.log_dict({ACCURACY: self.accuracy, CALIBRATION_ERROR: self.calibration_error})

    def configure_optimizers(self) -> Any:
        return self.optimizer.configure(self.parameters())


def split_evenly(part: Tensor, labeled: int, batch_size: int) -> list[Tensor]:
    """The first `labeled` rows in batches of `batch_size`, each with its share of the rows behind them."""
    batches = list(part[:labeled].split(batch_size))
    if len(part) == labeled:
        return batches
    extra = part[labeled:].tensor_split(len(batches))
    return [torch.cat(both) for both in zip(batches, extra, strict=True)]


def silent_trainer(epochs: int, folder: Path, callbacks: list[L.Callback]) -> L.Trainer:
    """A Trainer that trains, validates on the test set after the last epoch, and prints and writes nothing."""
    return L.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=1,
        max_epochs=epochs,
        check_val_every_n_epoch=epochs,
        default_root_dir=folder,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
