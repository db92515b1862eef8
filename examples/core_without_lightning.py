"""The core without Lightning: query labels on a checkerboard, and compare diffusion with random choice.

Points in a plane are their own embedding, and the sign of the diffused labels is the classifier. Twenty queries of five
points, once chosen by diffusion and once at random, from the same eight first labels.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from lightning_diffal import UNLABELED, batch_query, build_graph, diffuse

QUERY, STEPS, NEIGHBORS = 5, 4, 10


def checkerboard(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """2,000 points, their classes, and labels of the first eight, four of each class."""
    points = 4 * torch.rand(2000, 2, generator=torch.Generator().manual_seed(seed))
    truth = points.floor().sum(dim=1).long() % 2
    labels = torch.full((2000,), UNLABELED)
    for side in (0, 1):
        labels[(truth == side).nonzero()[:4, 0]] = side
    return points, truth, labels


def learn(seed: int, rounds: int, method: str) -> tuple[list[float], Tensor]:
    """Accuracy on the unlabeled points after each round, and the points in the order they were asked."""
    points, truth, labels = checkerboard(seed)
    graph = build_graph(points, neighbors=NEIGHBORS)
    generator = torch.Generator().manual_seed(seed)
    accuracy, asked = [], []
    for _ in range(rounds + 1):
        unlabeled = (labels == UNLABELED).nonzero()[:, 0]
        right = diffuse(graph, labels, 2, steps=100).argmax(dim=1) == truth
        accuracy.append(float(right[unlabeled].float().mean()))
        if method == "diffusion":
            indices = batch_query(graph, labels, 2, size=QUERY, steps=STEPS, answer=lambda i: truth[i]).indices
        else:
            indices = unlabeled[torch.randperm(len(unlabeled), generator=generator)[:QUERY]]
        labels[indices] = truth[indices]
        asked.append(indices)
    return accuracy, torch.cat(asked[:-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("out"))
    arguments = parser.parse_args()
    count = torch.arange(arguments.rounds + 1) * QUERY + 8
    figure = Figure(figsize=(12, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    means = {}
    for method, board, color in (("diffusion", left, "tab:blue"), ("random", middle, "tab:orange")):
        runs = [learn(seed, arguments.rounds, method) for seed in range(arguments.seeds)]
        curves = torch.tensor([accuracy for accuracy, _ in runs])
        means[method], spread = curves.mean(dim=0), curves.std(dim=0, correction=0)
        points, truth, _ = checkerboard(0)
        board.scatter(*points.T, c=truth, s=4, cmap="Greys", vmin=-1, vmax=2)
        board.scatter(*points[runs[0][1]].T, s=18, color=color)
        board.set(title=f"asked: {method}", aspect="equal", xticks=[], yticks=[])
        right.plot(count, means[method], color=color, label=method)
        right.fill_between(count, means[method] - spread, means[method] + spread, color=color, alpha=0.2)
    right.set(xlabel="labels", ylabel="accuracy on the rest", title=f"mean and deviation of {arguments.seeds} seeds")
    right.legend(loc="lower right")
    arguments.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out / "core.png", dpi=100)
    print("| labels | diffusion | random |\n|---|---|---|")
    for row in range(0, len(count), 4):
        print(f"| {count[row]} | {means['diffusion'][row]:.3f} | {means['random'][row]:.3f} |")
    print(f"\nFigure: {arguments.out / 'core.png'}")


if __name__ == "__main__":
    main()
