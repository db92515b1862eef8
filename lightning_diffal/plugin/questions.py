"""A question to people: the points of a query, with what the model and the graph say about them."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from lightning_diffal.diffusion.diffuse import default_steps, diffuse
from lightning_diffal.graph.neighbor_graph import build_graph
from lightning_diffal.labeling.people import People
from lightning_diffal.labeling.query_files import query_name
from lightning_diffal.labeling.question import Neighbor, Question, Reason
from lightning_diffal.labels import num_classes_found
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.data.loaders import UnlabeledView
from lightning_diffal.plugin.distributed.rank_zero import from_rank_zero
from lightning_diffal.plugin.model.embedding import Embedded
from lightning_diffal.plugin.query import pool_source
from lightning_diffal.plugin.state import RunState
from lightning_diffal.pool.record import Record


def write_question(trainer: Any, config: RunConfig, state: RunState, record: Record, embedded: Embedded | None) -> None:
    """Write the files of a question on rank 0, before the ledger says that it was asked.

    Args:
        embedded: What the model says of all candidates; None for the first labels, which need no model.
    """
    people, folder = config.people, config.folder_for(trainer)
    if people is None or folder is None or not record.indices:
        return
    dataset = pool_source(trainer, config, state).dataset
    if isinstance(dataset, UnlabeledView):
        dataset = dataset.dataset

    def write() -> None:
        view = PointView(people, state, embedded) if embedded is not None else None
        name = query_name(record.round)

        def show(index: int) -> dict[str, Any]:
            return asdict(people.show(folder, name, dataset, index, config.label_field))

        questions = []
        for index, score, reached in zip(record.indices, record.scores, record.reached, strict=True):
            known = view.describe(index, reached) if view is not None else {}
            near = view.nearest_labeled(index) if view is not None else []
            neighbors = [Neighbor(**show(point), label=people.name_of(label)) for point, label in near]
            questions.append(Question(**show(index), score=score, neighbors=neighbors, **known))
        people.write(folder, name, questions)

    from_rank_zero(trainer, write)


class PointView:
    """What the model and the diffused labels say about single points of the pool.

    Neighbors are those of the fixed features, or else of the embedding.
    """

    def __init__(self, people: People, state: RunState, embedded: Embedded) -> None:
        assert embedded.logits is not None
        self.people = people
        self.row = {index: row for row, index in enumerate(state.candidates)}
        self.index, self.labels = state.candidates, state.pool.labels[torch.tensor(state.candidates)]
        if state.features is not None:
            self.points, self.build_graph = state.features.to(embedded.logits.device), state.build_feature_graph
        else:
            assert embedded.embeddings is not None
            self.points, self.build_graph = embedded.embeddings.float(), build_graph
        self.probabilities = embedded.logits.float().softmax(dim=1)
        self.labeled = (self.labels >= 0).nonzero()[:, 0]
        self.chi = self.diffused()

    def diffused(self) -> Tensor:
        """χ of the known labels over the graph of the points, zero where none has come."""
        labels = self.labels.to(self.points.device)
        num_classes = max(len(self.people.classes), self.probabilities.shape[1], num_classes_found(labels))
        if len(labels) < 3 or not len(self.labeled):
            return torch.zeros(len(labels), num_classes)
        graph = self.build_graph(self.points, None, backend="exact")
        return diffuse(graph, labels, num_classes, steps=default_steps(graph)).cpu()

    def describe(self, index: int, reached: bool | None) -> dict[str, Any]:
        row = self.row[index]
        probability, prediction = self.probabilities[row].max(dim=0)
        by_graph = bool((self.chi[row] != 0).any())
        reason: Reason = "refine" if (by_graph if reached is None else reached) else "explore"
        return {
            "prediction": self.people.name_of(int(prediction)),
            "probability": round(float(probability), 4),
            "diffused": self.people.name_of(int(self.chi[row].argmax())) if by_graph else None,
            "reason": reason,
        }

    def nearest_labeled(self, index: int) -> list[tuple[int, int]]:
        """The nearest labeled points and their labels, nearest first."""
        if not len(self.labeled):
            return []
        distances = torch.cdist(self.points[self.row[index]][None], self.points[self.labeled])[0].cpu()
        order = distances.argsort(stable=True)[: self.people.neighbors]
        rows = self.labeled[order].tolist()
        return [(self.index[row], int(self.labels[row])) for row in rows]
