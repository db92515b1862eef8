"""Labels: one class for each point, or `UNLABELED`."""

from typing import Final

import torch
from torch import Tensor

from lightning_diffal.arguments import check_count, check_integers, check_matrix, skip_type_check

UNLABELED: Final = -1


def num_classes_found(labels: Tensor) -> int:
    """How many classes there are, as far as the labels say: no fewer than two, which a classifier has."""
    return max(2, int(labels.max()) + 1)


@skip_type_check
def check_labels(caller: str, labels: Tensor, num_nodes: int, num_classes: int, device: torch.device) -> None:
    """Refuse labels that are not one integer in [-1, num_classes) for each of `num_nodes` points on `device`."""
    check_count(caller, "num_classes", num_classes)
    check_integers(caller, "labels", labels, f" Unlabeled is {UNLABELED}.")
    if labels.shape != (num_nodes,):
        raise ValueError(
            f"{caller}(labels=...): one label for each of the graph's {num_nodes} points is needed, "
            f"shape {tuple(labels.shape)} was given."
        )
    if labels.device != device:
        raise ValueError(
            f"{caller}(labels=...): labels are on {labels.device}, the graph is on {device}. Move one of them."
        )
    labels = labels.long()  # uint8 has no -1 to compare with
    if num_nodes == 0 or UNLABELED <= int(labels.min()) <= int(labels.max()) < num_classes:
        return
    wrong = ((labels < UNLABELED) | (labels >= num_classes)).nonzero()[:, 0]
    first = int(wrong[0])
    raise ValueError(
        f"{caller}(labels=...): {len(wrong)} of {num_nodes} labels are outside [{UNLABELED}, {num_classes}), "
        f"the first is {int(labels[first])} at index {first}. Classes count from 0; unlabeled is {UNLABELED}."
    )


@skip_type_check
def check_probabilities(
    caller: str, name: str, rows: Tensor, num_nodes: int, num_classes: int, device: torch.device
) -> None:
    """Refuse anything but a distribution over the classes for each node."""
    check_matrix(caller, name, rows, num_nodes, num_classes, device)
    rows = rows.float()
    # A softmax in bfloat16 sums to 1 within about 0.01. NaN fails both comparisons.
    right = ((rows.sum(dim=1) - 1).abs() <= 0.02) & (rows.amin(dim=1) >= 0)
    if not bool(right.all()):
        wrong = (~right).nonzero()[:, 0]
        raise ValueError(
            f"{caller}({name}=...): {len(wrong)} of {len(rows)} rows are not probabilities that sum to 1, "
            f"the first is row {int(wrong[0])}. Logits need a softmax first."
        )
