"""What a snapshot may hold is checked once, for all selectors."""

import pytest
import torch

from lightning_diffal import UNLABELED, Snapshot
from lightning_diffal.selectors import (
    CoresetSelector,
    MarginSelector,
    ProbCoverSelector,
    StochasticPasses,
    TypiClustSelector,
)
from tests.selectors.test_contract import ask, snapshot_of

NAN, INF = float("nan"), float("inf")
HALVES = torch.full((4, 2), 0.5)


def rows_with(value, shape=(4, 2)):
    rows = torch.zeros(shape)
    rows[2, 1] = value
    return rows


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"logits": rows_with(NAN)},
            r"logits=...\): 1 of 4 rows hold NaN or infinity, the first is row 2. Did",
        ),
        ({"logits": rows_with(INF)}, r"logits=...\): 1 of 4 rows hold NaN or infinity"),
        ({"logits": torch.full((4, 2), -INF)}, r"logits=...\): 4 of 4 rows hold NaN or infinity, the first is row 0"),
        ({"embeddings": rows_with(NAN)}, r"embeddings=...\): 1 of 4 rows hold NaN or infinity, the first is row 2"),
        ({"embeddings": rows_with(-INF)}, r"embeddings=...\): 1 of 4 rows"),
        ({"stochastic": StochasticPasses(HALVES + rows_with(NAN), torch.zeros(4))}, r"probabilities=...\): 1 of 4"),
        (
            {"stochastic": StochasticPasses(torch.zeros(4, 2), torch.zeros(4))},
            r"stochastic.probabilities=...\): 4 of 4 rows are not probabilities that sum to 1, the first is row 0. Log",
        ),
        (
            {"stochastic": StochasticPasses(torch.tensor([[1.5, -0.5]] * 4), torch.zeros(4))},
            r"rows are not probabilities",
        ),
        ({"stochastic": StochasticPasses(HALVES, torch.full((4,), NAN))}, r"expected_entropy=...\): 4 of 4"),
        ({"logits": torch.zeros(4, 3)}, r"logits=...\): a floating-point tensor of shape \(4, 2\) is needed, "),
        ({"logits": torch.zeros(5, 2)}, r"torch.float32 of shape \(5, 2\) was given"),
        (
            {"embeddings": torch.zeros(3, 7)},
            r"embeddings=...\): a floating-point tensor of shape \(4, d\)",
        ),
        ({"embeddings": torch.zeros(4, 0)}, r"shape \(4, 0\) was given"),
        ({"embeddings": torch.zeros(4, 2, dtype=torch.long)}, "torch.int64 of shape"),
        ({"embeddings": torch.zeros(4, 2, device="meta")}, r"embeddings=...\): it is on meta, the labels are on cpu"),
        (
            {"labels": torch.tensor([0, 1, 2, UNLABELED])},
            r"Snapshot\(labels=...\): 1 of 4 labels are outside",
        ),
        ({"labels": torch.zeros(4)}, r"Snapshot\(labels=...\): integers are needed"),
    ],
)
def test_what_no_selector_could_use_is_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        Snapshot(**{"labels": torch.full((4,), UNLABELED), "num_classes": 2} | parts)


def test_a_class_may_be_ruled_out_by_its_logit():
    snapshot = Snapshot(labels=torch.full((4,), UNLABELED), num_classes=2, logits=rows_with(-INF))
    assert snapshot.probabilities[2].tolist() == [1, 0]


def test_logits_are_taken_as_logits_whatever_their_values():
    plain, truth = snapshot_of()
    given, _ = snapshot_of(logits=plain.probabilities)  # rows that sum to 1
    query = ask(MarginSelector(), given, 5, truth)
    assert torch.allclose(
        query.scores, MarginSelector().certainty(plain.probabilities.softmax(dim=1))[query.indices], atol=1e-6
    )


@pytest.mark.parametrize("labeled", [[], [0], [7], [0, 1, 2, 5, 7], [1, 2, 3, 4], list(range(7)), list(range(8))])
def test_labeled_and_unlabeled_points_are_listed_ascending(labeled):
    labels = torch.full((8,), UNLABELED)
    labels[labeled] = 1
    snapshot = Snapshot(labels=labels, num_classes=2)
    assert snapshot.labeled.tolist() == labeled
    assert snapshot.unlabeled.tolist() == [i for i in range(8) if i not in labeled]
    assert snapshot.num_unlabeled == 8 - len(labeled)


@pytest.mark.parametrize("kind", [TypiClustSelector, ProbCoverSelector, CoresetSelector])
def test_selectors_on_features_choose_as_they_would_by_an_embedding_of_those_values(kind):
    generator = torch.Generator().manual_seed(0)
    features, embeddings = torch.randn(2, 60, 4, generator=generator)
    labels = torch.full((60,), -1).index_fill(0, torch.arange(5), 0)
    expected = kind()(Snapshot(labels=labels, num_classes=2, embeddings=features * 2.0**50), 6)
    both = Snapshot(labels=labels, num_classes=2, embeddings=embeddings, features=features * 2.0**50)
    found = kind(on="features")(both, 6)
    assert found.indices.tolist() == expected.indices.tolist() != kind()(both, 6).indices.tolist()
    assert torch.equal(found.scores, expected.scores)
    assert kind(on="features").needs == {"features"}
    assert repr(kind(on="features")).startswith(f"{kind.__name__}(on='features'")
    with pytest.raises(ValueError, match=rf"{kind.__name__}\(on='pixels'\): \"embeddings\" or \"features\" is needed"):
        kind(on="pixels")
