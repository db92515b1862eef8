"""Over which features do labels diffuse best? The share of a pool whose diffused label is right, from few labels.

    python benchmarks/bench_labels_over_features.py DIR/mnist.npz DIR/cifar10_efficientnet.npz

Arrays x_train and y_train of a file, the first 10,000 points; five random draws of the labels, their mean and standard
deviation. The untrained network is Linear, ReLU, Linear, ReLU of 300 and 100 units, as torch makes it.
"""

import argparse
import statistics
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from lightning_diffal import UNLABELED, build_graph
from lightning_diffal.diffusion.graph_labels import graph_labels
from lightning_diffal.numerics.pca import principal_components

POINTS, DRAWS, DIMENSIONS = 10_000, 5, 64


def untrained(points: Tensor) -> Tensor:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(points.shape[1], 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU())
    with torch.no_grad():
        embedding: Tensor = network(points)
    return embedding


def accuracy(features: Tensor, truth: Tensor, labels: int) -> str:
    graph, found = build_graph(features, None).symmetric, []
    for draw in range(DRAWS):
        known = torch.randperm(len(truth), generator=torch.Generator().manual_seed(draw))[:labels]
        given = torch.full_like(truth, UNLABELED).index_copy(0, known, truth[known])
        right = graph_labels(graph, given, int(truth.max()) + 1).labels == truth
        found.append(float(right[given == UNLABELED].float().mean()))
    return f"{statistics.fmean(found):.2f} ± {statistics.stdev(found):.2f}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("files", nargs="+", type=Path)
    arguments.add_argument("--points", type=int, default=POINTS)
    options = arguments.parse_args()
    print("| data | features | 60 labels | 300 labels |\n|---|---|---|---|")
    for path in options.files:
        with np.load(path) as file:
            points = torch.from_numpy(file["x_train"][: options.points].astype(np.float32)).flatten(1)
            truth = torch.from_numpy(file["y_train"][: options.points].astype(np.int64)).flatten()
        points = points / 255 if float(points.max()) > 100 else points
        reduced = principal_components(points, DIMENSIONS)
        kinds = {
            "as they are": points,
            f"{DIMENSIONS} components": reduced,
            f"{DIMENSIONS} components, unit length": normalize(reduced, dim=1),
            "penultimate layer of an untrained network": untrained(points),
        }
        for name, features in kinds.items():
            cells = " | ".join(accuracy(features, truth, labels) for labels in (60, 300))
            print(f"| {path.stem} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
