"""Samplers of the user's own: batch size, class balance and number of draws are kept over the labeled points."""

import random
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, WeightedRandomSampler

from tests.plugin.counting import Counted, Recorder, Small, asks_first, check_only_labeled_were_drawn, labeled_by_fit
from tests.plugin.toy_model import quiet

N, CLASSES = 300, 4
# Class 0 has half of the points, the others share the rest.
LABELS = [0 if index % 2 else 1 + (index // 2) % 3 for index in range(N)]


def pool():
    generator = torch.Generator().manual_seed(0)
    return Counted((torch.randn(8, generator=generator), LABELS[index]) for index in range(N))


def fits(tmp_path, make_loader, budget=60, initial=40, query_size=20, max_epochs=3, **options):
    """The batches of every epoch of every fit, as lists of indices."""
    dataset = pool()
    recorder, sizes = Recorder(dataset), []

    class Sized(Small):
        def training_step(self, batch, batch_idx):
            if batch_idx == 0:
                sizes.append([])
            sizes[-1].append(len(batch[0]))
            return super().training_step(batch, batch_idx)

    active = asks_first(budget=budget, initial=initial, query_size=query_size, **options)
    random.seed(0)
    np.random.seed(0)
    active.fit(quiet(tmp_path, active, recorder, max_epochs=max_epochs), Sized(), make_loader(dataset))
    check_only_labeled_were_drawn(recorder, tmp_path)
    every = iter(sizes)
    return [[batches(epoch, next(every)) for epoch in fit] for fit in recorder.fits]


def batches(drawn, sizes):
    assert len(drawn) == sum(sizes)
    ends = np.cumsum(sizes)
    return [drawn[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def classes_of(indices):
    return Counter(LABELS[index] for index in indices)


INVERSE = [1 / LABELS.count(label) for label in LABELS]


@pytest.mark.parametrize(("draws", "expected"), [(64, [64, 64]), (N, [40, 60]), (2 * N, [80, 120])])
def test_a_weighted_sampler_keeps_its_number_of_draws(tmp_path, draws, expected):
    found = fits(tmp_path, lambda d: DataLoader(d, batch_size=8, sampler=WeightedRandomSampler(INVERSE, draws)))
    for fit, count in zip(found, expected, strict=True):
        assert [sum(map(len, epoch)) for epoch in fit] == [count] * 3


def test_a_weighted_sampler_keeps_its_class_balance_over_labels_that_are_not_drawn_alike(tmp_path):
    # 60 labels: 45 of class 0, which has half of the pool and a quarter of the weight.
    zeros = [index for index in range(N) if LABELS[index] == 0][:45]
    initial = zeros + [index for index in range(N) if LABELS[index]][:15]
    found = fits(
        tmp_path,
        lambda d: DataLoader(d, batch_size=50, sampler=WeightedRandomSampler(INVERSE, 1000)),
        initial=initial,
        budget=60,
        max_epochs=2,
    )
    drawn = classes_of(index for epoch in found[0] for batch in epoch for index in batch)
    share = drawn[0] / sum(drawn.values())
    assert abs(share - 0.25) < 4 * (0.25 * 0.75 / 2000) ** 0.5


def test_a_weighted_sampler_without_replacement_draws_each_labeled_point_at_most_once(tmp_path):
    found = fits(
        tmp_path, lambda d: DataLoader(d, batch_size=8, sampler=WeightedRandomSampler(INVERSE, 64, replacement=False))
    )
    for fit, count in zip(found, [40, 60], strict=True):
        for epoch in fit:
            drawn = [index for batch in epoch for index in batch]
            assert len(set(drawn)) == len(drawn) == count


def test_labeled_points_without_weight_are_refused_by_their_number(tmp_path):
    weights = torch.zeros(N)
    weights[-1] = 1
    with pytest.raises(ValueError, match=r"WeightedRandomSampler: .* 40 labeled points .* weight 0"):
        fits(
            tmp_path,
            lambda d: DataLoader(d, batch_size=8, sampler=WeightedRandomSampler(weights, 64)),
            initial=list(range(40)),
        )


@pytest.mark.parametrize(("draws", "expected"), [(50, [50, 50]), (N, [40, 60])])
def test_a_random_sampler_keeps_its_number_of_draws(tmp_path, draws, expected):
    found = fits(
        tmp_path,
        lambda d: DataLoader(d, batch_size=8, sampler=RandomSampler(d, replacement=True, num_samples=draws)),
    )
    for fit, count in zip(found, expected, strict=True):
        assert [sum(map(len, epoch)) for epoch in fit] == [count] * 3


class BalancedBatches(BatchSampler):
    """`per_class` points of `classes` classes in each batch, as the tutorials of metric learning write it."""

    def __init__(self, labels, classes, per_class, length):
        self.labels, self.classes, self.per_class, self.length = labels, classes, per_class, length
        self.indices_of = {label: np.flatnonzero(np.array(labels) == label) for label in sorted(set(labels))}

    def __iter__(self):
        for _ in range(self.length):
            chosen = random.sample(sorted(self.indices_of), self.classes)
            yield [int(index) for label in chosen for index in random.choices(self.indices_of[label], k=self.per_class)]

    def __len__(self):
        return self.length


class FromLabels(BalancedBatches):
    """Keeps the labels alone, and looks up their points in every epoch."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        del self.indices_of

    def __iter__(self):
        self.indices_of = {label: np.flatnonzero(np.array(self.labels) == label) for label in sorted(set(self.labels))}
        yield from super().__iter__()
        del self.indices_of


@pytest.mark.parametrize("kind", [BalancedBatches, FromLabels])
def test_a_class_balanced_batch_sampler_keeps_batch_size_and_balance(tmp_path, kind):
    found = fits(tmp_path, lambda d: DataLoader(d, batch_sampler=kind(LABELS, 2, 5, 12)))
    for fit in found:
        for epoch in fit:
            assert [len(batch) for batch in epoch] == [10] * 12
            assert all(sorted(classes_of(batch).values()) == [5, 5] for batch in epoch)


def test_a_class_balanced_epoch_over_the_pool_becomes_one_over_the_labeled_points(tmp_path):
    found = fits(tmp_path, lambda d: DataLoader(d, batch_sampler=BalancedBatches(LABELS, 2, 5, N // 10)))
    for fit, count in zip(found, [40, 60], strict=True):
        for epoch in fit:
            assert [len(batch) for batch in epoch] == [10] * (count // 10)
            assert all(sorted(classes_of(batch).values()) == [5, 5] for batch in epoch)


def test_m_per_class_of_pytorch_metric_learning(tmp_path):
    samplers = pytest.importorskip("pytorch_metric_learning.samplers")
    # Four classes, three points of each; one epoch is 120 draws.
    found = fits(
        tmp_path,
        lambda d: DataLoader(
            d, batch_size=12, sampler=samplers.MPerClassSampler(LABELS, m=3, batch_size=12, length_before_new_iter=120)
        ),
    )
    for fit in found:
        for epoch in fit:
            assert [len(batch) for batch in epoch] == [12] * 10
            assert all(classes_of(batch) == {0: 3, 1: 3, 2: 3, 3: 3} for batch in epoch)


@pytest.mark.filterwarnings("ignore:The classifier has 4 outputs and all 40 first labels")
def test_classes_without_a_label_yet_are_left_out_of_balanced_batches(tmp_path):
    known = [index for index in range(N) if LABELS[index] in (0, 1)][:40]
    found = fits(
        tmp_path, lambda d: DataLoader(d, batch_sampler=BalancedBatches(LABELS, 4, 3, 6)), initial=known, budget=40
    )
    for epoch in found[0]:
        assert [len(batch) for batch in epoch] == [12] * 6


class FewAtRandom(Sampler):
    """Draws some points of the pool in each epoch, by an order nobody knows."""

    def __init__(self, size, draws):
        self.size, self.draws = size, draws

    def __iter__(self):
        yield from random.sample(range(self.size), self.draws)

    def __len__(self):
        return self.draws


def test_a_sampler_nobody_knows_keeps_its_number_of_draws(tmp_path):
    found = fits(tmp_path, lambda d: DataLoader(d, batch_size=8, sampler=FewAtRandom(N, 64)))
    for fit in found:
        for epoch in fit:
            assert [len(batch) for batch in epoch] == [8] * 8


def test_an_epoch_of_few_draws_is_warned_about_before_the_first_step(tmp_path):
    with pytest.warns(UserWarning, match=r"An epoch draws 16 of .*40 labeled points"):
        found = fits(
            tmp_path, lambda d: DataLoader(d, batch_size=8, sampler=WeightedRandomSampler(INVERSE, 16)), budget=40
        )
    assert [sum(map(len, epoch)) for epoch in found[0]] == [16] * 3


def test_every_labeled_point_is_drawn_once_by_an_order_of_the_users(tmp_path):
    class Backwards(Sampler):
        def __init__(self, size):
            self.size = size

        def __iter__(self):
            yield from reversed(range(self.size))

        def __len__(self):
            return self.size

    found = fits(tmp_path, lambda d: DataLoader(d, batch_size=8, sampler=Backwards(N)))
    for fit, labeled in zip(found, labeled_by_fit(tmp_path), strict=False):
        for epoch in fit:
            assert [index for batch in epoch for index in batch] == sorted(labeled, reverse=True)


class Seeded(BatchSampler):
    """Draws with a generator of its own, and keeps its labels."""

    def __init__(self, labels):
        self.labels, self.generator, self.epochs = labels, torch.Generator().manual_seed(7), []

    def __iter__(self):
        drawn = torch.randint(len(self.labels), (6, 5), generator=self.generator).tolist()
        self.epochs.append(drawn)
        yield from drawn

    def __len__(self):
        return 6


def test_looking_at_a_sampler_does_not_draw_from_its_generator(tmp_path):
    kept = Seeded(LABELS)
    fits(tmp_path, lambda d: DataLoader(d, batch_sampler=kept), budget=40, max_epochs=2)
    expected = Seeded(LABELS)
    assert kept.epochs[-2:] == [list(expected), list(expected)]
