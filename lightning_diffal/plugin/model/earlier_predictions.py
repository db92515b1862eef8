"""What the models of earlier rounds predicted before the labels were there."""

import torch

from lightning_diffal.diffusion.graph_against_models import ModelPredictions
from lightning_diffal.labels import UNLABELED
from lightning_diffal.plugin.state import RunState


def earlier_predictions(state: RunState, device: torch.device) -> ModelPredictions:
    """What the models of earlier rounds said of the points they asked about, by row of the candidates."""
    records = [record for record in state.ledger.records if record.predicted]
    known = [pair for record in records for pair in zip(record.indices, record.predicted, strict=True)]
    asked, predicted = torch.tensor(known, dtype=torch.long).reshape(-1, 2).T
    labeled = state.pool.labels[asked] != UNLABELED  # people may have given some up, which are no candidates
    asked, predicted = asked[labeled], predicted[labeled]
    rows = torch.searchsorted(torch.tensor(state.candidates), asked)
    return ModelPredictions(rows.to(device), predicted.to(device))
