"""Diffused coverage against the same greedy choice with dense matrices."""

import math
from dataclasses import replace

import pytest
import torch

from lightning_diffal import UNLABELED, Snapshot, build_graph
from lightning_diffal.diffusion import coverage, stored_columns
from lightning_diffal.diffusion.graph_against_models import ModelPredictions
from lightning_diffal.diffusion.graph_labels import graph_labels
from lightning_diffal.diffusion.lazy_walk import LazyWalk
from lightning_diffal.diffusion.sparse_rows import Entries
from lightning_diffal.graph.neighbor_graph import symmetrized
from lightning_diffal.selectors import CoverageSelector, MarginSelector
from lightning_diffal.selectors.coverage import graph_quality, imbalance


def dense_walk(graph, steps):
    """S and W as dense matrices."""
    n = graph.num_nodes
    weight = torch.zeros(n, n, dtype=torch.float64)
    weight[graph.source, graph.col] = graph.weight.double()
    symmetric = (weight + weight.T) / 2
    symmetric += symmetric.sum(dim=1).mean() / 2 * torch.eye(n, dtype=torch.float64)
    step = symmetric / symmetric.sum(dim=1, keepdim=True)
    whole = math.floor(steps)
    low, high = (torch.linalg.matrix_power(step, power) for power in (whole, whole + 1))
    return (1 - (steps - whole)) * low + (steps - whole) * high, weight


def brute_force(snapshot, size, selector):
    """The query, with every gain computed for every choice."""
    points = snapshot.embeddings if snapshot.features is None else snapshot.features
    graph, n = build_graph(points, selector.neighbors), len(snapshot.labels)
    known = snapshot.labels != UNLABELED
    per_label = n / (int(known.sum()) + size)
    base = max(2, len(graph.col) // n)
    believed = 1.0 if snapshot.logits is None else trust(graph, snapshot)
    walk, weight = dense_walk(graph, believed * max(1, selector.reach * math.log(per_label) / math.log(base)))
    rate = selector.rate * per_label
    unsure = torch.ones(n, dtype=torch.float64)
    if snapshot.logits is not None:
        one_hot = torch.eye(snapshot.num_classes, dtype=torch.float64)[snapshot.labels[known].long()]
        q = snapshot.logits.double().softmax(dim=1)
        q[known] = one_hot
        diffused = weight @ q / weight.sum(dim=1, keepdim=True)
        q = believed * diffused + (1 - believed) * q
        q[known] = one_hot
        ordered = torch.nn.functional.pad(q, (0, 1)).sort(dim=1, descending=True).values
        unsure = 1 - (ordered[:, 0] - ordered[:, 1])
        unsure[unsure < 2.0**-40] = 0  # rounding errors
        power = 2 * (believed * skill(graph, snapshot) + 1 - believed)
        unsure = unsure ** (power if selector.power is None else selector.power)
        class_share = q.mean(dim=0)
        balance = 1 - float(class_share.pow(-class_share).prod()) / len(class_share)  # the exponential of the entropy
        balance = believed * balance if selector.class_balance is None else selector.class_balance
        unsure = unsure * (q / class_share.clamp(min=1e-300) ** balance).sum(dim=1)
    reached = 1 - torch.exp(-rate * walk)
    cover = torch.nn.functional.pad(reached[:, known], (0, 1)).amax(dim=1)
    unsure = unsure * ~known
    unit = 2.0**-40 * float((unsure * (1 - cover)).sum()) or 1.0
    chosen = []
    for _ in range(size):
        gain = ((unsure[:, None] * (reached - cover[:, None]).clamp(min=0)).sum(dim=0) / unit).round()
        gain[known] = -1
        best = int(gain.argmax())
        chosen.append(best)
        known[best] = True
        cover = torch.maximum(cover, reached[:, best])
        unsure[best] = 0
    return chosen


def predicted_by_graph(graph, snapshot, points):
    """Whether each label is predicted from all others: one diffusion for each label left out."""
    right = []
    for point in points:
        others = snapshot.labels.clone()
        others[point] = UNLABELED
        right.append(int(graph_labels(graph, others, snapshot.num_classes).labels[point] == snapshot.labels[point]))
    return right


def skill(graph, snapshot):
    """How much better than a guess a label is predicted from all others."""
    known = (snapshot.labels != UNLABELED).nonzero()[:, 0]
    right = sum(predicted_by_graph(graph, snapshot, known.tolist()))
    guess = int(snapshot.labels[known].bincount().max()) if len(known) else 0
    return max(0, right - guess) / (len(known) - guess) if guess < len(known) else 0.0


def trust(graph, snapshot):
    """How far the graph is believed, by the definition."""
    earlier = snapshot.earlier
    if earlier is None:
        return 1.0
    model = (earlier.predicted == snapshot.labels[earlier.rows]).double()
    lead = torch.tensor(predicted_by_graph(graph, snapshot, earlier.rows.tolist())) - model
    error = float(lead.std()) / math.sqrt(len(lead))
    return min(1.0, max(0.0, (float(lead.mean()) + error + 0.1) / 0.1))


def pool(n, d=3, known=8, classes=4, seed=0, model=True, **changes):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.full((n,), UNLABELED)
    labels[torch.randperm(n, generator=generator)[:known]] = torch.randint(classes, (known,), generator=generator)
    parts = {
        "labels": labels,
        "num_classes": classes,
        "features": torch.randn(n, d, generator=generator),
        "logits": 3 * torch.randn(n, classes, generator=generator) if model else None,
    }
    return Snapshot(**parts | changes)


def clusters_apart(n=90):
    points = torch.randn(n, 2, generator=torch.Generator().manual_seed(1))
    return points + 1000 * (torch.arange(n) % 3)[:, None]


def striped_pool(n):
    """Labels that diffuse rightly: the exponent of the uncertainty is above 1."""
    snapshot = pool(n, d=1, known=n // 4)
    truth = (snapshot.features[:, 0] > 0).long() + (snapshot.features[:, 0] > 1).long()
    return pool(n, d=1, known=n // 4, labels=torch.where(snapshot.labels == UNLABELED, UNLABELED, truth))


def with_earlier(snapshot, right):
    """Models of earlier rounds that were right about this share of the labeled points."""
    rows = snapshot.labeled.flip(0)
    generator = torch.Generator().manual_seed(0)
    predicted = torch.where(
        torch.rand(len(rows), generator=generator) < right, snapshot.labels[rows], (snapshot.labels[rows] + 1) % 4
    )
    return replace(snapshot, earlier=ModelPredictions(rows, predicted))


CASES = {
    "models that know more than the graph": (with_earlier(pool(300, known=40), 0.9), 12, {}),
    "models that know a little more than the graph": (with_earlier(pool(300, known=60, seed=5), 0.5), 12, {}),
    "models that know less than the graph": (with_earlier(striped_pool(200), 0.3), 10, {"neighbors": 6}),
    "two dozen labels": (pool(300, known=24), 12, {}),
    "one dimension, long walks": (pool(250, d=1, known=3), 10, {"neighbors": 3}),
    "walks of several steps": (pool(200, known=5), 10, {"neighbors": 4, "reach": 1.8, "rate": 2.0, "power": 1.0}),
    "no uncertainty": (pool(200, known=9), 10, {"power": 0}),
    "classes that count the same": (pool(200, known=9), 10, {"class_balance": 1.0}),
    "no balance": (pool(200, known=9), 10, {"class_balance": 0.0}),
    "labels that follow the features": (striped_pool(200), 10, {"neighbors": 6}),
    "three components": (pool(90, features=clusters_apart()), 10, {"neighbors": 4}),
    "coinciding points": (pool(120, features=torch.arange(120.0)[:, None] // 7), 15, {"neighbors": 5}),
    "all points coincide": (pool(40, features=torch.zeros(40, 2), model=False), 10, {"neighbors": 5}),
    "all labeled but five": (pool(80, known=75), 5, {}),
    "no labels": (pool(150, known=0), 12, {"neighbors": 6}),
    "no labels, no model": (pool(150, known=0, model=False), 12, {"neighbors": 6}),
    "one class": (pool(60, classes=1), 6, {}),
    "more classes than are diffused together": (pool(100, classes=37), 9, {}),
    "two points": (pool(2, known=0), 2, {}),
    "a query of all": (pool(50, known=7), 43, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_query_is_that_of_computing_every_gain_every_time(case):
    snapshot, size, parameters = CASES[case]
    selector = CoverageSelector(**parameters)
    assert selector(snapshot, size).indices.tolist() == brute_force(snapshot, size, selector)


@pytest.mark.parametrize(("seed", "stored"), [(0, 0), (1, 500), (2, 2000), (3, 20000)])
def test_rough_bounds_and_little_memory_change_no_choice(monkeypatch, seed, stored):
    # Columns of so few walks that nearly all has to be bounded, computed few at a time; all, some or none are kept.
    changes = {"NEGLIGIBLE": (20.0, 0.0), "MAX_DROPPED": 0.1, "FIRST_COLUMNS": (3, 1), "BLOCK_ENTRIES": 300}
    for name, value in changes.items():
        monkeypatch.setattr(coverage, name, value)
    monkeypatch.setattr(stored_columns, "STORED_ENTRIES", stored)
    snapshot, selector = pool(250, known=4 * seed, seed=seed), CoverageSelector(neighbors=5)
    assert selector(snapshot, 15).indices.tolist() == brute_force(snapshot, 15, selector)


@pytest.mark.parametrize("case", ["one dimension, long walks", "labels that follow the features", "coinciding points"])
def test_products_by_torch_as_on_a_gpu_choose_the_same(monkeypatch, case):
    snapshot, size, parameters = CASES[case]
    expected = CoverageSelector(**parameters)(snapshot, size)
    monkeypatch.setattr(Entries, "times", Entries.torch_times)
    query = CoverageSelector(**parameters)(snapshot, size)
    assert query.indices.tolist() == expected.indices.tolist()
    torch.testing.assert_close(query.scores, expected.scores)


@pytest.mark.parametrize("case", ["coinciding points", "all points coincide", "no labels, no model"])
def test_of_equal_gains_the_lowest_index_is_chosen_without_stored_columns(monkeypatch, case):
    monkeypatch.setattr(stored_columns, "STORED_ENTRIES", 0)
    monkeypatch.setattr(coverage, "FIRST_AGAIN", 1)
    snapshot, size, parameters = CASES[case]
    selector = CoverageSelector(**parameters)
    assert selector(snapshot, size).indices.tolist() == brute_force(snapshot, size, selector)


def test_products_columns_and_bounds_of_the_walk_match_its_dense_matrix():
    graph = build_graph(pool(120).features.double(), 5)
    for steps in (1.0, 1.4, 2.0, 3.7):
        dense, _ = dense_walk(graph, steps)
        walk = LazyWalk(symmetrized(graph), steps)
        vector = torch.rand(120, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        torch.testing.assert_close(walk.times(vector), dense @ vector)
        torch.testing.assert_close(walk.transposed_times(vector), dense.T @ vector)
        nodes = torch.tensor([7, 3, 100])
        for below in (0.0, 0.02):
            entries, complete = walk.columns(nodes, below)
            found = torch.zeros(3, 120, dtype=torch.float64)
            found[torch.repeat_interleave(entries.length), entries.col.long()] = entries.value
            assert complete.tolist() == [
                bool((found[i] - dense[:, j]).abs().max() < 1e-12) for i, j in enumerate(nodes)
            ]
            assert (found <= dense[:, nodes].T + 1e-12).all()
            assert found.sum() > 0.5 * dense[:, nodes].sum()
        for rows, near in walk.edge_bounds(torch.arange(120)):
            node = rows.repeat_interleave(near.length)
            exact = dense[near.col.long(), node]
            assert (near.value <= exact + 1e-12).all()
            assert steps > 1 or torch.allclose(near.value, exact)


def test_columns_are_computed_for_few_of_many_points():
    snapshot = pool(4000, d=2, known=200)
    graph = build_graph(snapshot.features, 10)
    weight = torch.rand(4000, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    greedy = coverage.GreedyCoverage(LazyWalk(symmetrized(graph), 1.3), weight, snapshot.labeled, 18.0)
    for _ in range(20):
        greedy.choose_next()
    assert 20 <= sum(greedy.computed) < 1000, "of 4,000 points for each of 20 choices"


def test_a_line_that_bounds_the_gain_is_above_it_and_touches_it():
    left = torch.linspace(0, 1, 101, dtype=torch.float64)
    cover = torch.linspace(0, 30, 3001, dtype=torch.float64)
    line = coverage.steepest(left)[:, None] * cover
    above = line - (left[:, None] - torch.exp(-cover)).clamp(min=0)
    assert (above >= -1e-12).all()
    assert (above[left > 0, 1:].amin(dim=1) < 1e-4).all()


def quality_of(snapshot):
    graph = build_graph(snapshot.features, 6)
    return graph_quality(graph.symmetric, torch.arange(graph.num_nodes), snapshot), graph


def test_the_graph_is_believed_unless_models_knew_more():
    snapshot = pool(300, known=60, seed=5)
    trusts = [quality_of(with_earlier(snapshot, right))[0].trust for right in (0.2, 0.4, 0.9)]
    assert trusts[0] == 1.0
    assert 0 < trusts[1] < 1
    assert trusts[2] == 0.0


def test_where_models_know_all_and_the_graph_nothing_the_margin_is_asked_for():
    snapshot = with_earlier(pool(300, known=60, seed=5), 1.0)
    margin = MarginSelector()(snapshot, 15)
    assert CoverageSelector(neighbors=6)(snapshot, 15).indices.tolist() == margin.indices.tolist()


def test_uncertainty_counts_where_labels_follow_the_features_alone():
    skills = []
    for snapshot in (pool(200, known=50), striped_pool(200)):
        quality, graph = quality_of(snapshot)
        skills.append(quality.skill)
        assert quality.skill == pytest.approx(skill(graph, snapshot))
    assert skills[0] < 0.25
    assert skills[1] > 0.75


def test_a_class_that_is_predicted_rarely_is_asked_for_first():
    # Two clusters, 180 points and 20, each certain but for a little: without balance the larger one has more to cover.
    generator = torch.Generator().manual_seed(0)
    rare = torch.arange(200) >= 180
    features = torch.randn(200, 2, generator=generator) + 100 * rare[:, None]
    logits = torch.stack([torch.where(rare, -2.0, 2.0), torch.where(rare, 2.0, -2.0)], dim=1)
    labels = torch.full((200,), UNLABELED)
    labels[0], labels[180] = 0, 1
    snapshot = Snapshot(labels=labels, num_classes=2, features=features, logits=logits)
    asked = {
        balance: int(rare[CoverageSelector(neighbors=5, power=1.0, class_balance=balance)(snapshot, 20).indices].sum())
        for balance in (0.0, None, 1.0)
    }
    assert asked[0.0] < asked[None] < asked[1.0]


def test_the_balance_is_by_how_much_the_sizes_of_classes_differ():
    assert imbalance(torch.full((7,), 30.0)) == pytest.approx(0, abs=1e-6)
    assert imbalance(torch.tensor([50.0, 50.0, 0.0, 0.0])) == pytest.approx(0.5)
    assert imbalance(torch.tensor([99.0, 1.0])) > imbalance(torch.tensor([70.0, 30.0])) > 0.05


def test_features_come_before_embeddings_and_half_precision_is_enough():
    snapshot, selector = pool(100), CoverageSelector(neighbors=6)
    half = pool(100, features=snapshot.features.half(), logits=snapshot.logits.half())
    expected = brute_force(pool(100, features=half.features.float(), logits=half.logits.float()), 8, selector)
    assert selector(half, 8).indices.tolist() == expected
    beside = pool(100, features=half.features, logits=half.logits, embeddings=torch.randn(100, 4))
    assert selector(beside, 8).indices.tolist() == expected
    alone = pool(100, features=None, logits=half.logits, embeddings=half.features)
    assert selector(alone, 8).indices.tolist() == expected


def test_two_threads_choose_the_same():
    snapshot, selector = pool(600, d=4, known=10), CoverageSelector()
    one = selector(snapshot, 10)
    torch.set_num_threads(2)
    try:
        two = selector(snapshot, 10)
    finally:
        torch.set_num_threads(1)
    assert one.indices.tolist() == two.indices.tolist()
    assert torch.equal(one.scores, two.scores), "gains are compared, and returned, in whole units"
    assert one.scores.diff().ge(0).all(), "gains fall"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": 0.0}, r"CoverageSelector\(rate=0.0\): a positive number is needed"),
        ({"reach": float("nan")}, r"CoverageSelector\(reach=nan\)"),
        ({"power": "two"}, r"CoverageSelector\(power='two'\): a positive number is needed"),
        ({"power": -1.0}, r"CoverageSelector\(power=-1.0\)"),
        ({"class_balance": 2}, r"CoverageSelector\(class_balance=2\): a number from 0 to 1"),
        ({"neighbors": 0}, r"CoverageSelector\(neighbors=0\): a whole number"),
    ],
)
def test_bad_parameters_are_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        CoverageSelector(**arguments)
    with pytest.raises(ValueError, match=r"CoverageSelector\(neighbors=9\): a pool of 9 points"):
        CoverageSelector(neighbors=9).check_pool(9)
