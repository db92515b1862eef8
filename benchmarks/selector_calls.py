"""Calls to be timed of every selector, ours and those of other libraries: from the same data to indices of the pool.

What a library needs only once, such as imports, is done before: a `Call` is what remains to be timed.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

CLASSES, SIZE, PASSES, NEIGHBORS = 10, 100, 10, 20
RADIUS, TAU = 0.5, 0.001
MODULES = {
    "scikit-activeml": "skactiveml",
    "small-text": "small_text",
    "baal": "baal",
    "graphlearning": "graphlearning",
}


class Data:
    """The arguments of both sides."""

    def __init__(self, selector: str, file: Path) -> None:
        data = np.load(file)
        self.embedding, self.logits, self.known = data["embedding"], data["logits"], data["known"]
        self.labeled, self.unlabeled = np.flatnonzero(self.known >= 0), self.find_unlabeled()
        self.passes: Any = None  # (passes, n, c)
        self.graph: Any = None
        if selector == "bald":
            rng = np.random.default_rng(2)
            noise = [rng.normal(size=self.logits.shape).astype(np.float32) for _ in range(PASSES)]
            self.passes = np.stack([softmax(self.logits + each) for each in noise])
        if selector == "poisson":
            self.graph = graph_of(self.embedding, file.with_suffix(".graph"))

    def find_unlabeled(self) -> Any:
        return np.flatnonzero(self.known < 0)


def graph_of(embedding: Any, file: Path) -> Any:
    """The graph for both sides, kept in a file: at a million points it takes minutes."""
    import torch  # noqa: PLC0415

    from lightning_diffal import NeighborGraph, build_graph  # noqa: PLC0415

    if not file.exists():
        graph = build_graph(torch.from_numpy(embedding), NEIGHBORS, symmetric=True)
        torch.save((graph.crow, graph.col, graph.weight), file)
    return NeighborGraph(*torch.load(file))


def softmax(logits: Any) -> Any:
    power = np.exp(logits - logits.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


Call = Callable[[], Any]


def ours(code: str, data: Data) -> Call:
    """One of our selectors, by the expression a user would write."""
    import torch  # noqa: PLC0415

    from lightning_diffal import selectors  # noqa: PLC0415
    from lightning_diffal.selectors.uncertainty import entropy  # noqa: PLC0415

    selector = eval(code, vars(selectors))
    labels = torch.from_numpy(data.known)
    parts = {"embeddings": torch.from_numpy(data.embedding), "logits": torch.from_numpy(data.logits)}
    needed: dict[str, Any] = {name: part for name, part in parts.items() if name in selector.needs}
    passes = None if data.passes is None else torch.from_numpy(data.passes)

    def call() -> Any:
        stochastic = None
        if passes is not None:  # what the callback sums up pass by pass
            entropies = torch.stack([entropy(probabilities) for probabilities in passes])
            stochastic = selectors.StochasticPasses(passes.mean(dim=0), entropies.mean(dim=0))
        snapshot = selectors.Snapshot(labels=labels, num_classes=CLASSES, stochastic=stochastic, **needed)
        return selector(snapshot, SIZE, generator=torch.Generator().manual_seed(0)).indices

    return call


def our_poisson(data: Data) -> Call:
    import torch  # noqa: PLC0415

    from lightning_diffal.selectors import take_lowest  # noqa: PLC0415
    from lightning_diffal.selectors.poisson import reweighted_laplace  # noqa: PLC0415

    labels, unlabeled = torch.from_numpy(data.known), torch.from_numpy(data.unlabeled)
    return lambda: take_lowest(reweighted_laplace(data.graph, labels, CLASSES, TAU), unlabeled, SIZE).indices


OURS: dict[str, Callable[[Data], Call]] = {
    "random": partial(ours, "RandomSelector()"),
    "uncertainty": partial(ours, "UncertaintySelector()"),
    "margin": partial(ours, "MarginSelector()"),
    "entropy": partial(ours, "EntropySelector()"),
    "bald": partial(ours, f"BALDSelector(passes={PASSES})"),
    "coreset": partial(ours, "CoresetSelector()"),
    "badge": partial(ours, "BADGESelector()"),
    "typiclust": partial(ours, "TypiClustSelector()"),
    "probcover": partial(ours, f"ProbCoverSelector(radius={RADIUS})"),
    "probcover, δ found": partial(ours, "ProbCoverSelector()"),
    "poisson": our_poisson,
    "poisson with graph": partial(ours, f"PoissonSelector(neighbors={NEIGHBORS})"),
    "dirichlet with graph": partial(ours, f"DirichletSelector(neighbors={NEIGHBORS})"),
    "local max with graph": partial(ours, f"LocalMaxSelector(of=MarginSelector(), neighbors={NEIGHBORS})"),
    "diffusion with graph": partial(ours, "DiffusionSelector()"),
}


def activeml(name: str, data: Data, model: str | None = None, **options: Any) -> Call:
    """A strategy of scikit-activeml; `model` is the argument by which it takes a classifier or an ensemble, if any."""
    from skactiveml import pool  # noqa: PLC0415

    strategy = getattr(pool, name)(random_state=0, **options)
    target = np.where(data.known >= 0, data.known, np.nan).astype(float)
    arguments: dict[str, Any] = {} if model is None else {f"fit_{model}": False}
    if model == "clf":
        arguments[model] = activeml_classifier(lambda: softmax(data.logits[data.unlabeled]))
    elif model == "ensemble":
        arguments[model] = [activeml_classifier(partial(np.take, p, data.unlabeled, axis=0)) for p in data.passes]
    return lambda: strategy.query(data.embedding, target, batch_size=SIZE, **arguments)


def activeml_classifier(probabilities: Callable[[], Any]) -> Any:
    """A fitted classifier of scikit-activeml that returns our model's probabilities of the unlabeled points."""
    from skactiveml.base import SkactivemlClassifier  # noqa: PLC0415

    class Model(SkactivemlClassifier):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:  # noqa: N803
            return self

        def predict_proba(self, X: Any) -> Any:  # noqa: N803
            return probabilities()

    model = Model(classes=list(range(CLASSES)))
    model.classes_ = np.arange(CLASSES)  # what a fitted one has
    return model


def small_text(name: str, data: Data) -> Call:
    import small_text as module  # noqa: PLC0415

    class Model:
        def predict_proba(self, dataset: Any, dropout_sampling: int = 1) -> Any:
            return softmax(data.logits) if data.passes is None else np.swapaxes(data.passes, 0, 1)

    strategy, known = getattr(module, name)(), data.known[data.labeled]
    # small-text's own learner finds the unlabeled points at every query, too.
    return lambda: strategy.query(Model(), data.embedding, data.find_unlabeled(), data.labeled, known, n=SIZE)


def small_text_coreset(data: Data) -> Call:
    from small_text import greedy_coreset  # noqa: PLC0415

    return lambda: data.unlabeled[
        greedy_coreset(data.embedding, data.unlabeled, data.labeled, SIZE, distance_metric="euclidean", normalized=True)
    ]


def baal(name: str, data: Data) -> Call:
    from baal.active import heuristics  # noqa: PLC0415

    heuristic = getattr(heuristics, name)()

    def call() -> Any:
        probabilities = softmax(data.logits) if data.passes is None else np.moveaxis(data.passes, 0, 2)
        unlabeled = data.find_unlabeled()  # as baal's own dataset does
        return unlabeled[np.asarray(heuristic(probabilities[unlabeled]))[:SIZE]]

    return call


def graphlearning_score(method: str, data: Data) -> Call:
    from graphlearning.active_learning import unc_sampling  # noqa: PLC0415

    acquisition = unc_sampling(method)

    def call() -> Any:
        unlabeled = data.find_unlabeled()
        values = acquisition.compute(softmax(data.logits), unlabeled)
        return unlabeled[(-values).argsort()[:SIZE]]  # as its active_learner does

    return call


def graphlearning_poisson(tau: float, data: Data) -> Call:
    """Its Poisson-reweighted Laplace learning, on the graph in the data or else on one of its own."""
    import graphlearning  # noqa: PLC0415
    from scipy.sparse import csr_matrix  # noqa: PLC0415

    laplace = partial(graphlearning.ssl.laplace, reweighting="poisson", tau=tau)
    given: Any = None
    if data.graph is not None:
        parts = (data.graph.weight.double().numpy(), data.graph.col.numpy(), data.graph.crow.numpy())
        given = laplace(csr_matrix(parts, 2 * (len(data.known),)))

    def call() -> Any:
        model = given or laplace(graphlearning.weightmatrix.knn(data.embedding, NEIGHBORS))
        norm = np.linalg.norm(model.fit(data.labeled, data.known[data.labeled])[data.unlabeled], axis=1)
        return data.unlabeled[np.argsort(norm)[:SIZE]]

    return call


PEERS: dict[tuple[str, str], Callable[[Data], Call]] = {
    ("random", "scikit-activeml"): partial(activeml, "RandomSampling"),
    ("random", "small-text"): partial(small_text, "RandomSampling"),
    ("random", "baal"): partial(baal, "Random"),
    ("uncertainty", "scikit-activeml"): partial(activeml, "UncertaintySampling", model="clf"),
    ("uncertainty", "small-text"): partial(small_text, "LeastConfidence"),
    ("uncertainty", "baal"): partial(baal, "Certainty"),
    ("uncertainty", "graphlearning"): partial(graphlearning_score, "least_confidence"),
    ("margin", "scikit-activeml"): partial(activeml, "UncertaintySampling", model="clf", method="margin_sampling"),
    ("margin", "small-text"): partial(small_text, "BreakingTies"),
    ("margin", "baal"): partial(baal, "Margin"),
    ("margin", "graphlearning"): partial(graphlearning_score, "smallest_margin"),
    ("entropy", "scikit-activeml"): partial(activeml, "UncertaintySampling", model="clf", method="entropy"),
    ("entropy", "small-text"): partial(small_text, "PredictionEntropy"),
    ("entropy", "baal"): partial(baal, "Entropy"),
    ("bald", "scikit-activeml"): partial(activeml, "GreedyBALD", model="ensemble"),
    ("bald", "small-text"): partial(small_text, "BALD"),
    ("bald", "baal"): partial(baal, "BALD"),
    ("coreset", "scikit-activeml"): partial(activeml, "CoreSet"),
    ("coreset", "small-text"): small_text_coreset,
    ("badge", "scikit-activeml"): partial(activeml, "Badge", model="clf"),
    ("typiclust", "scikit-activeml"): partial(activeml, "TypiClust", k=20),
    ("probcover", "scikit-activeml"): partial(activeml, "ProbCover", n_classes=CLASSES, deltas=[RADIUS]),
    ("probcover, δ found", "scikit-activeml"): partial(activeml, "ProbCover", n_classes=CLASSES),
    ("poisson", "graphlearning"): partial(graphlearning_poisson, TAU),
    # τ of ours has decayed to 0 after 100 labels.
    ("poisson with graph", "graphlearning"): partial(graphlearning_poisson, 0.0),
}
