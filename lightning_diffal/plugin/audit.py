"""A second look at labels: labeled points whose neighbors disagree with them, most suspicious first."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_diffal.diffusion.graph_labels import STEPS
from lightning_diffal.diffusion.leave_one_out import leave_one_out
from lightning_diffal.graph.neighbor_graph import NeighborGraph, build_graph
from lightning_diffal.labeling.people import People
from lightning_diffal.labeling.query_files import AUDIT
from lightning_diffal.labeling.question import Question
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.diffused_labels import candidate_labels
from lightning_diffal.plugin.state import RunState


@dataclass(frozen=True, eq=False)
class Ranking:
    """Labeled points that the other labels contradict, most suspicious first."""

    rows: Int[Tensor, " s"]
    predicted: Int[Tensor, " s"]
    """The class that diffuses to each from the other labels."""
    suspicion: Float[Tensor, " s"]
    """1 - h_y / max_c h_c of the diffused mass h, y the label that the point has: in (0, 1]."""


def rank_suspicious(graph: NeighborGraph, labels: Int[Tensor, " n"], num_classes: int, steps: int = STEPS) -> Ranking:
    """Labeled points whose label is not the one that diffuses to them from all other labels, least supported first.

    Args:
        labels: Class of each node, -1 where unknown.

    Cost: that of `leave_one_out` of all labeled points.
    """
    points = max(1, int((labels >= 0).sum()))
    left_out = leave_one_out(graph, labels, num_classes, steps=steps, max_points=points)
    wrong = (~left_out.correct & (left_out.predicted >= 0)).nonzero()[:, 0]
    order = wrong[left_out.support[wrong].argsort(stable=True)]
    return Ranking(left_out.rows[order], left_out.predicted[order], 1 - left_out.support[order])


def audit(config: RunConfig, state: RunState | None, embeddings: Tensor | None, limit: int | None) -> list[Question]:
    """The suspicious labels of a run as questions, also in `audit.csv` and `audit.json` of its folder."""
    points = None if state is None else embeddings if state.features is None else state.features
    if state is None or points is None:
        raise MisconfigurationException(
            "active.audit(): there is nothing to find neighbors by. features=... of the callback gives fixed features; "
            "without them it needs the embedding of a query of this process, as active.fit(...) makes it."
        )
    labels, num_classes = candidate_labels(state)
    graph = build_graph(points.float(), None, backend="exact")
    ranking = rank_suspicious(graph, labels.to(graph.device), num_classes)
    people = config.people or People([str(number) for number in range(max(num_classes, 2))])
    folder = state.ledger.folder
    found = []
    for row, predicted, suspicion in zip(
        ranking.rows.tolist()[:limit], ranking.predicted.tolist(), ranking.suspicion.tolist(), strict=False
    ):
        index = state.candidates[row]
        shown: dict[str, Any] = {"index": index}
        if folder is not None:
            shown = asdict(people.show(folder, AUDIT, state.dataset, index, config.label_field))
        found.append(
            Question(
                **shown,
                diffused=people.name_of(predicted),
                label=people.name_of(int(labels[row])),
                reason="audit",
                score=round(suspicion, 6),
            )
        )
    if folder is not None:
        people.write(Path(folder), AUDIT, found)
    return found
