"""A second look at labels: labeled points whose neighbors disagree with them, most suspicious first."""

from dataclasses import asdict, dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from lightning_diffal.diffusion.graph_labels import STEPS
from lightning_diffal.diffusion.leave_one_out import leave_one_out
from lightning_diffal.graph.neighbor_graph import NeighborGraph
from lightning_diffal.labeling.people import People
from lightning_diffal.labeling.query_files import AUDIT
from lightning_diffal.labeling.question import Question
from lightning_diffal.labels import num_classes_found
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.known_pool import KnownPool
from lightning_diffal.pool.dataset.items import MapStyle


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


def audit(config: RunConfig, pool: KnownPool, dataset: MapStyle | None, limit: int | None) -> list[Question]:
    """The suspicious labels of a run as questions, also in `audit.csv` and `audit.json` of its folder.

    Args:
        dataset: What people see the points of; without it, they see their indices.
    """
    labels, num_classes, folder = pool.labels, num_classes_found(pool.labels), pool.folder
    graph = pool.build_graph(pool.points, None, backend="exact")
    ranking = rank_suspicious(graph, labels.to(graph.device), num_classes)
    people = config.people or People([str(number) for number in range(num_classes)])
    found = []
    for row, predicted, suspicion in zip(
        ranking.rows.tolist()[:limit], ranking.predicted.tolist(), ranking.suspicion.tolist(), strict=False
    ):
        index = pool.indices[row]
        shown: dict[str, Any] = {"index": index}
        if dataset is not None:
            shown = asdict(people.show(folder, AUDIT, dataset, index, config.label_field))
        found.append(
            Question(
                **shown,
                diffused=people.name_of(predicted),
                label=people.name_of(int(labels[row])),
                reason="audit",
                score=round(suspicion, 6),
            )
        )
    people.write(folder, AUDIT, found)
    return found
