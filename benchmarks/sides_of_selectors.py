"""Every selector, ours and those of other libraries, as work to be timed: from the same data to indices of the pool."""

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
    """What both sides are given."""

    def __init__(self, selector: str, file: Path) -> None:
        data = np.load(file)
        self.embedding, self.logits, self.known = data["embedding"], data["logits"], data["known"]
        self.labeled, self.unlabeled = np.flatnonzero(self.known >= 0), self.find_unlabeled()
        self.passes: Any = None  # (passes, n, c)
        self.graph: Any = None
        if selector == "bald":
            rng = np.random.default_rng(2)
            noise = [rng.normal(size=self.logits.shape).astype(np.float32) for _ in range(PASSES)]
            self.passes = np.stack([softmax(self.logits + one) for one in noise])
        if selector == "poisson":
            self.graph = graph_of(self.embedding, file.with_suffix(".graph"))

    def find_unlabeled(self) -> Any:
        return np.flatnonzero(self.known < 0)


def graph_of(embedding: Any, file: Path) -> Any:
    """The graph that both sides are given, kept in a file: at a million points it takes minutes."""
    import torch  # noqa: PLC0415

    from lightning_diffal import NeighborGraph, build_graph  # noqa: PLC0415

    if not file.exists():
        graph = build_graph(torch.from_numpy(embedding), NEIGHBORS, symmetric=True)
        torch.save((graph.crow, graph.col, graph.weight), file)
    return NeighborGraph(*torch.load(file))


def softmax(logits: Any) -> Any:
    power = np.exp(logits - logits.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


Work = Callable[[], Any]


def ours(code: str) -> Callable[[Data], Work]:
    """One of our selectors, by the expression a user would write."""

    def prepare(data: Data) -> Work:
        import torch  # noqa: PLC0415

        from lightning_diffal import selectors  # noqa: PLC0415
        from lightning_diffal.selectors.uncertainty import entropy  # noqa: PLC0415

        selector = eval(code, vars(selectors))
        labels = torch.from_numpy(data.known)
        parts = {"embeddings": torch.from_numpy(data.embedding), "logits": torch.from_numpy(data.logits)}
        needed: dict[str, Any] = {name: part for name, part in parts.items() if name in selector.needs}
        passes = None if data.passes is None else torch.from_numpy(data.passes)

        def work() -> Any:
            stochastic = None
            if passes is not None:  # what the callback adds up pass by pass
                entropies = [entropy(one) for one in passes]
                stochastic = selectors.StochasticPasses(passes.mean(dim=0), torch.stack(entropies).mean(dim=0))
            snapshot = selectors.Snapshot(labels=labels, num_classes=CLASSES, stochastic=stochastic, **needed)
            return selector(snapshot, SIZE, generator=torch.Generator().manual_seed(0)).indices

        return work

    return prepare


def our_poisson(data: Data) -> Work:
    import torch  # noqa: PLC0415

    from lightning_diffal.selectors import take_lowest  # noqa: PLC0415
    from lightning_diffal.selectors.poisson import reweighted_laplace  # noqa: PLC0415

    labels, unlabeled = torch.from_numpy(data.known), torch.from_numpy(data.unlabeled)
    return lambda: take_lowest(reweighted_laplace(data.graph, labels, CLASSES, TAU), unlabeled, SIZE).indices


OURS: dict[str, Callable[[Data], Work]] = {
    "random": ours("RandomSelector()"),
    "uncertainty": ours("UncertaintySelector()"),
    "margin": ours("MarginSelector()"),
    "entropy": ours("EntropySelector()"),
    "bald": ours(f"BALDSelector(passes={PASSES})"),
    "coreset": ours("CoresetSelector()"),
    "badge": ours("BADGESelector()"),
    "typiclust": ours("TypiClustSelector()"),
    "probcover": ours(f"ProbCoverSelector(radius={RADIUS})"),
    "probcover, δ found": ours("ProbCoverSelector()"),
    "poisson": our_poisson,
    "poisson with graph": ours(f"PoissonSelector(neighbors={NEIGHBORS})"),
    "dirichlet with graph": ours(f"DirichletSelector(neighbors={NEIGHBORS})"),
    "local max with graph": ours(f"LocalMaxSelector(of=MarginSelector(), neighbors={NEIGHBORS})"),
    "diffusion with graph": ours("DiffusionSelector()"),
}


def activeml(make: Callable[[Any, Any], Any], uses_model: bool = False) -> Callable[[Data], Work]:
    def prepare(data: Data) -> Work:
        from skactiveml import pool  # noqa: PLC0415

        strategy, target = make(pool, data), target_of(data)
        model = {"clf": says(lambda: softmax(data.logits[data.unlabeled])), "fit_clf": False} if uses_model else {}
        return lambda: strategy.query(data.embedding, target, batch_size=SIZE, **model)

    return prepare


def activeml_bald(data: Data) -> Work:
    from skactiveml.pool import GreedyBALD  # noqa: PLC0415

    strategy, target = GreedyBALD(random_state=0), target_of(data)
    ensemble = [says(partial(np.take, one, data.unlabeled, axis=0)) for one in data.passes]
    return lambda: strategy.query(data.embedding, target, ensemble=ensemble, fit_ensemble=False, batch_size=SIZE)


def target_of(data: Data) -> Any:
    return np.where(data.known >= 0, data.known, np.nan).astype(float)


def says(probabilities: Callable[[], Any]) -> Any:
    """A classifier of scikit-activeml that knows nothing but what our model says of the points without a label."""
    from skactiveml.base import SkactivemlClassifier  # noqa: PLC0415

    class Model(SkactivemlClassifier):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:  # noqa: N803
            return self

        def predict_proba(self, X: Any) -> Any:  # noqa: N803
            return probabilities()

    model = Model(classes=list(range(CLASSES)))
    model.classes_ = np.arange(CLASSES)  # what a fitted one has
    return model


def small_text(name: str) -> Callable[[Data], Work]:
    def prepare(data: Data) -> Work:
        import small_text as module  # noqa: PLC0415

        class Model:
            def predict_proba(self, dataset: Any, dropout_sampling: int = 1) -> Any:
                return softmax(data.logits) if data.passes is None else np.swapaxes(data.passes, 0, 1)

        strategy = getattr(module, name)()
        known = data.known[data.labeled]

        def work() -> Any:
            unlabeled = data.find_unlabeled()  # as small-text's own learner does at every query
            return strategy.query(Model(), data.embedding, unlabeled, data.labeled, known, n=SIZE)

        return work

    return prepare


def small_text_coreset(data: Data) -> Work:
    from small_text import greedy_coreset  # noqa: PLC0415

    return lambda: data.unlabeled[
        greedy_coreset(data.embedding, data.unlabeled, data.labeled, SIZE, distance_metric="euclidean", normalized=True)
    ]


def baal(name: str) -> Callable[[Data], Work]:
    def prepare(data: Data) -> Work:
        from baal.active import heuristics  # noqa: PLC0415

        heuristic = getattr(heuristics, name)()

        def work() -> Any:
            given = softmax(data.logits) if data.passes is None else np.moveaxis(data.passes, 0, 2)
            unlabeled = data.find_unlabeled()  # as baal's own dataset does
            return unlabeled[np.asarray(heuristic(given[unlabeled]))[:SIZE]]

        return work

    return prepare


def graphlearning_score(method: str) -> Callable[[Data], Work]:
    def prepare(data: Data) -> Work:
        from graphlearning.active_learning import unc_sampling  # noqa: PLC0415

        acquisition = unc_sampling(method)

        def work() -> Any:
            unlabeled = data.find_unlabeled()
            values = acquisition.compute(softmax(data.logits), unlabeled)
            return unlabeled[(-values).argsort()[:SIZE]]  # as its active_learner does

        return work

    return prepare


def graphlearning(tau: float) -> Callable[[Data], Work]:
    """Its Poisson-reweighted Laplace learning, on the graph that is given or else on one of its own."""

    def prepare(data: Data) -> Work:
        import graphlearning as gl  # noqa: PLC0415
        from scipy.sparse import csr_matrix  # noqa: PLC0415

        def model_on(weights: Any) -> Any:
            return gl.ssl.laplace(weights, reweighting="poisson", tau=tau)

        given = None
        if data.graph is not None:
            parts = (data.graph.weight.double().numpy(), data.graph.col.numpy(), data.graph.crow.numpy())
            given = model_on(csr_matrix(parts, 2 * (len(data.known),)))

        def work() -> Any:
            model = given or model_on(gl.weightmatrix.knn(data.embedding, NEIGHBORS))
            u = model.fit(data.labeled, data.known[data.labeled])
            norm = np.linalg.norm(u[data.unlabeled], axis=1)
            return data.unlabeled[np.argsort(norm)[:SIZE]]

        return work

    return prepare


PEERS: dict[tuple[str, str], Callable[[Data], Work]] = {
    ("random", "scikit-activeml"): activeml(lambda pool, data: pool.RandomSampling(random_state=0)),
    ("random", "small-text"): small_text("RandomSampling"),
    ("random", "baal"): baal("Random"),
    ("uncertainty", "scikit-activeml"): activeml(lambda pool, data: pool.UncertaintySampling(random_state=0), True),
    ("uncertainty", "small-text"): small_text("LeastConfidence"),
    ("uncertainty", "baal"): baal("Certainty"),
    ("uncertainty", "graphlearning"): graphlearning_score("least_confidence"),
    ("margin", "scikit-activeml"): activeml(
        lambda pool, data: pool.UncertaintySampling(method="margin_sampling", random_state=0), True
    ),
    ("margin", "small-text"): small_text("BreakingTies"),
    ("margin", "baal"): baal("Margin"),
    ("margin", "graphlearning"): graphlearning_score("smallest_margin"),
    ("entropy", "scikit-activeml"): activeml(
        lambda pool, data: pool.UncertaintySampling(method="entropy", random_state=0), True
    ),
    ("entropy", "small-text"): small_text("PredictionEntropy"),
    ("entropy", "baal"): baal("Entropy"),
    ("bald", "scikit-activeml"): activeml_bald,
    ("bald", "small-text"): small_text("BALD"),
    ("bald", "baal"): baal("BALD"),
    ("coreset", "scikit-activeml"): activeml(lambda pool, data: pool.CoreSet(random_state=0)),
    ("coreset", "small-text"): small_text_coreset,
    ("badge", "scikit-activeml"): activeml(lambda pool, data: pool.Badge(random_state=0), True),
    ("typiclust", "scikit-activeml"): activeml(lambda pool, data: pool.TypiClust(k=20, random_state=0)),
    ("probcover", "scikit-activeml"): activeml(
        lambda pool, data: pool.ProbCover(n_classes=CLASSES, deltas=[RADIUS], random_state=0)
    ),
    ("probcover, δ found", "scikit-activeml"): activeml(
        lambda pool, data: pool.ProbCover(n_classes=CLASSES, random_state=0)
    ),
    ("poisson", "graphlearning"): graphlearning(TAU),
    ("poisson with graph", "graphlearning"): graphlearning(0.0),  # to which ours has fallen after 100 labels
}
