"""How many of the first fifty flags are labels that were flipped: `active.audit()` beside cleanlab.

    python benchmarks/bench_audit_vs_cleanlab.py --data data

MNIST, 10,000 points of which 1,000 have a label, 50 of them flipped to another class. All use the same 64 principal
components of the inputs. cleanlab ranks by the probabilities of a model that was trained without the point, by fivefold
cross-validation: logistic regression, and a network of one hidden layer. Needs cleanlab and scikit-learn.
"""

import argparse
import statistics
import warnings
from pathlib import Path

import numpy as np
import torch
from cleanlab.rank import get_label_quality_scores
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.neural_network import MLPClassifier

from lightning_diffal import build_graph
from lightning_diffal.plugin.audit import rank_suspicious

POINTS, LABELED, FLIPPED, FLAGS = 10_000, 1_000, 50, 50


def principal_components(inputs: torch.Tensor, count: int) -> torch.Tensor:
    centered = inputs - inputs.mean(dim=0)
    _, vectors = torch.linalg.eigh(centered.T @ centered)
    components: torch.Tensor = centered @ vectors[:, -count:]
    return components


def precisions(features: torch.Tensor, truth: torch.Tensor, seed: int) -> dict[str, float]:
    """The share of flipped labels among the first flags of each method, for one draw of labels and flips."""
    generator = torch.Generator().manual_seed(seed)
    labeled = torch.randperm(POINTS, generator=generator)[:LABELED]
    flipped = labeled[:FLIPPED]
    given = torch.full((POINTS,), -1)
    given[labeled] = truth[labeled]
    given[flipped] = (truth[flipped] + torch.randint(1, 10, (FLIPPED,), generator=generator)) % 10
    wrong = set(flipped.tolist())

    def share(order: list[int]) -> float:
        return len(wrong & set(order[:FLAGS])) / FLAGS

    found = {}
    for name, rows in (("audit", torch.arange(POINTS)), ("audit, labeled points alone", labeled)):
        ranking = rank_suspicious(build_graph(features[rows], None), given[rows], 10)
        found[name] = share(rows[ranking.rows].tolist())
    x, y = features[labeled].numpy(), given[labeled].numpy()
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    models = {
        "cleanlab, logistic regression": LogisticRegression(max_iter=1000),
        "cleanlab, network": MLPClassifier((128,), early_stopping=False, max_iter=200, random_state=seed),
    }
    for name, model in models.items():
        probabilities = cross_val_predict(model, x, y, cv=5, method="predict_proba")
        for method in ("self_confidence", "normalized_margin"):
            order = np.argsort(get_label_quality_scores(y, probabilities, method=method), kind="stable")
            found[f"{name}, {method}"] = share(labeled[torch.from_numpy(order)].tolist())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with np.load(given.data / "mnist.npz") as file:
        inputs = torch.from_numpy(file["x_train"][:POINTS]).float().reshape(POINTS, -1) / 255
        truth = torch.from_numpy(file["y_train"][:POINTS]).long()
    features = principal_components(inputs, 64)
    results = [precisions(features, truth, seed) for seed in range(given.seeds)]
    print(f"| ranked by | flipped among the first {FLAGS}, mean of {given.seeds} seeds | lowest and highest |")
    print("|---|---|---|")
    for name in results[0]:
        values = [result[name] for result in results]
        print(f"| {name} | {statistics.mean(values):.2f} | {min(values):.2f} to {max(values):.2f} |")


if __name__ == "__main__":
    main()
