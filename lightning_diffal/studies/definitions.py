"""The studies: those of the paper, section 6 and appendix A, with its numbers; ours; and the digits of the demo."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from lightning_diffal.studies.networks import VGG, Architecture, Convolutional, FullyConnected
from lightning_diffal.studies.optimizers import SGD, Adam


@dataclass(frozen=True, kw_only=True)
class Study:
    """Data, network, training and labels: everything but the selector and the seed."""

    name: str
    dataset: str
    """NAME of NAME.npz, "digits", or "checkerboard"."""
    network: Architecture
    optimizer: SGD | Adam
    batch_size: int
    epochs: int = 100
    """Of each fit, from the untrained weights."""
    pool: int
    """Points that may be queried, equally many of each class unless `imbalance` is given."""
    candidates: int | None = None
    """Unlabeled points that a query sees, drawn anew each time; None for all."""
    first: int
    """Initial labels of each class. The paper gives this number for the checkerboard only."""
    query_size: int
    budget: int
    """Labels in total, the first ones included."""
    neighbors: int
    steps: int
    mini_batch: int = 1
    shrink_below: float | None = None
    soft_start: bool = False
    passes: int = 20
    """Forward passes of dropout selectors. The paper gives no number; 50 is usual and costs more than twice."""
    features: bool = False
    """Whether the network is trained on features of VGG-16's frozen convolutions."""
    squares: int | None = None
    """Checkerboard only: squares on a side."""
    test: int | None = None
    """Checkerboard only: test points."""
    batch_of_pool: int = 2_500
    """Batch size of the embedding pass and of the test."""
    components: int | None = None
    """Train on so many leading principal components of the inputs, which are an encoder's features."""
    imbalance: int | None = None
    """How many times as large the first class of the pool is as the last; those between fall geometrically."""
    graph_features: str = "inputs"
    """`features` of the callback, for selectors that use them and for `learn_from_graph`; "none" is the embedding."""
    learn_from_graph: bool = False
    """Whether fits also train on unlabeled points with diffused labels."""

    def fits(self, num_classes: int) -> int:
        """Number of rounds, the last one without a query."""
        return 1 + max(0, -(-(self.budget - self.first * num_classes) // self.query_size))

    def check(self, num_classes: int) -> None:
        """Refuse numbers that contradict each other, in terms of the command line."""
        first = self.first * num_classes
        if self.budget < first:
            raise ValueError(
                f"--budget {self.budget}: there are {first} initial labels already, {self.first} of each class."
            )
        if self.pool < self.budget:
            raise ValueError(f"--budget {self.budget}: the pool has {self.pool} points. --pool makes it larger.")
        if self.pool <= self.neighbors:
            raise ValueError(f"--neighbors {self.neighbors}: a pool of {self.pool} points has fewer neighbors.")

    def settings(self) -> dict[str, Any]:
        """As values JSON can hold; those of a run, `graph_features` and `learn_from_graph`, are added by `plan`."""
        known = asdict(self) | {"network": repr(self.network), "optimizer": repr(self.optimizer)}
        # Without what is not used, so that result files from before these settings existed keep their names.
        unused = {name for name in ("components", "imbalance", "candidates") if known[name] is None}
        return {
            name: value for name, value in known.items() if name not in {*unused, "graph_features", "learn_from_graph"}
        }


MNIST_FC = Study(
    name="mnist-fc",
    dataset="mnist",
    network=FullyConnected(widths=(100, 50), batch_norm=True),
    optimizer=Adam(lr=0.001),
    batch_size=8,
    pool=10_000,
    first=2,
    query_size=20,
    budget=300,
    neighbors=10,
    steps=5,
)

PAPER_STUDIES = (
    Study(
        name="checkerboard",
        dataset="checkerboard",
        network=FullyConnected(widths=(30, 30)),
        optimizer=SGD(lr=0.001, momentum=0.9),
        batch_size=1,
        pool=2_000,
        first=4,
        query_size=5,
        budget=128,
        neighbors=10,
        steps=4,
        squares=4,
        test=200,
    ),
    MNIST_FC,
    replace(
        MNIST_FC,
        name="mnist-conv",
        network=Convolutional(channels=16, kernel=5, head=FullyConnected(widths=(20, 20), batch_norm=True)),
        batch_of_pool=500,
    ),
    Study(
        name="cifar10",
        dataset="cifar10",
        network=FullyConnected(widths=(512, 20), dropout=True),
        optimizer=Adam(lr=0.0003, halved_every=30),
        batch_size=100,
        pool=50_000,
        first=20,
        query_size=200,
        budget=2_000,
        neighbors=20,
        steps=4,
        mini_batch=10,
        shrink_below=0.1,
        features=True,
    ),
    Study(
        name="svhn",
        dataset="svhn",
        network=VGG(head=FullyConnected(widths=(512, 512), dropout=True)),
        optimizer=SGD(lr=0.005, momentum=0.9, weight_decay=0.0005),
        batch_size=50,
        epochs=50,
        pool=20_000,
        first=20,
        query_size=200,
        budget=2_000,
        neighbors=20,
        steps=5,
        shrink_below=0.1,
        soft_start=True,
        batch_of_pool=250,
    ),
)
# Not in the paper: small enough for a demo of a minute. Network and selector parameters are those of mnist-fc, but
# for T = round(log_K N).
DIGITS = replace(
    MNIST_FC, name="digits", dataset="digits", epochs=40, pool=1_200, first=1, query_size=10, budget=100, steps=3
)
OUR_STUDIES = (
    # What people do today: a small head on the features of a modern encoder. cifar10_efficientnet.npz holds 1,280
    # features of EfficientNet-Lite0 for each image.
    Study(
        name="cifar10-efficientnet",
        dataset="cifar10_efficientnet",
        network=FullyConnected(widths=(128,), dropout=True),
        optimizer=Adam(lr=0.001),
        batch_size=20,
        epochs=60,
        pool=20_000,
        first=2,
        query_size=20,
        budget=300,
        neighbors=15,
        steps=3,
        components=256,
    ),
    # 1,000 points of the first class, 10 of the last.
    replace(MNIST_FC, name="mnist-lt", pool=2_482, imbalance=100),
    DIGITS,
)
STUDIES = {study.name: study for study in (*PAPER_STUDIES, *OUR_STUDIES)}
