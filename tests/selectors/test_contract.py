"""The contract of every selector. A new selector is one line in the list."""

import dataclasses
from functools import update_wrapper

import pytest
import torch

from lightning_diffal import UNLABELED, Snapshot
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors import (
    BADGESelector,
    BAITSelector,
    BALDSelector,
    CoresetSelector,
    CoverageSelector,
    DiffusionSelector,
    DirichletSelector,
    EntropySelector,
    LocalMaxSelector,
    MarginSelector,
    PoissonSelector,
    ProbCoverSelector,
    RandomSelector,
    StochasticPasses,
    TypiClustSelector,
    UHerdingSelector,
    UncertaintySelector,
)
from lightning_diffal.selectors.base import Selector, as_selector, choose

# Not random and, on this pool, without ties.
DETERMINISTIC = [
    DiffusionSelector(neighbors=6, steps=3),
    DiffusionSelector(neighbors=6, steps=3, mini_batch=4, soft_start=True, shrink_below=0.1),
    UncertaintySelector(),
    MarginSelector(),
    EntropySelector(),
    UncertaintySelector(passes=5),
    EntropySelector(passes=5),
    BALDSelector(passes=5),
    CoresetSelector(),
    PoissonSelector(neighbors=6),
    DirichletSelector(neighbors=6),
    CoverageSelector(neighbors=6),
    BAITSelector(),
    UHerdingSelector(),
    LocalMaxSelector(of=MarginSelector(), neighbors=6),
    LocalMaxSelector(of=BALDSelector(passes=5), neighbors=6),
    LocalMaxSelector(of=DiffusionSelector(neighbors=6, steps=3), neighbors=6),
]
SELECTORS = [
    *DETERMINISTIC,
    RandomSelector(),
    BADGESelector(),
    TypiClustSelector(),
    TypiClustSelector(max_clusters=3),
    ProbCoverSelector(),
    ProbCoverSelector(radius=2.5),
    ProbCoverSelector(counted=30),
]
# What a selector uses where it is there, and does without where it is not.
OPTIONAL = {CoverageSelector: {"features", "logits"}, UHerdingSelector: {"features", "logits"}}
every_selector = pytest.mark.parametrize("selector", SELECTORS, ids=repr)


def snapshot_of(n=60, known=9, classes=3, seed=0, **changes):
    """A pool of three clouds, of which the first `known` points of a random order are labeled."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(n) % classes
    embeddings = torch.randn(n, 5, generator=generator) + 3 * torch.nn.functional.one_hot(truth, 5)
    labels = torch.full((n,), UNLABELED)
    labeled = torch.randperm(n, generator=generator)[:known]
    labels[labeled] = truth[labeled]
    logits = embeddings[:, :classes] + torch.randn(n, classes, generator=generator)
    parts = {
        "labels": labels,
        "num_classes": classes,
        "embeddings": embeddings,
        "logits": logits,
        "stochastic": stochastic_of(logits + torch.randn(5, n, classes, generator=generator)),
        "queries_before": 1,
    }
    return Snapshot(**parts | changes), truth


def distant_classes(n, dimensions, ratio, seed=0):
    """Ten classes of width 1, so far apart that products in float32 do not resolve near points."""
    generator = torch.Generator().manual_seed(seed)
    centers = ratio * torch.randn(10, dimensions, generator=generator)
    return centers[torch.arange(n) % 10] + torch.randn(n, dimensions, generator=generator)


def stochastic_of(logits):
    """What passes with these logits (passes, n, c) come to."""
    probabilities = logits.softmax(dim=2)
    expected_entropy = torch.distributions.Categorical(probs=probabilities).entropy().mean(dim=0)
    return StochasticPasses(probabilities.mean(dim=0), expected_entropy)


def changed(snapshot, **changes):
    return dataclasses.replace(snapshot, **changes)


def reordered(snapshot, order):
    parts = {name: getattr(snapshot, name)[order] for name in ("labels", "embeddings", "logits")}
    passes = snapshot.stochastic
    parts["stochastic"] = StochasticPasses(passes.probabilities[order], passes.expected_entropy[order])
    return changed(snapshot, **parts)


def ask(selector, snapshot, size, truth, seed=0):
    generator = torch.Generator("cpu").manual_seed(seed)
    return choose(selector, snapshot, size, answer=lambda i: truth[i], generator=generator, timer=StageTimer())


@every_selector
def test_it_chooses_exactly_that_many_different_unlabeled_points(selector):
    snapshot, truth = snapshot_of()
    indices = ask(selector, snapshot, 7, truth).indices
    assert len(indices) == len(set(indices.tolist())) == 7
    assert (snapshot.labels[indices] == UNLABELED).all()


@every_selector
def test_it_is_a_selector_that_can_be_called_with_a_snapshot_and_a_size_alone(selector):
    snapshot, _ = snapshot_of()
    assert as_selector(selector) is selector
    assert selector.asks_during_query == isinstance(selector, DiffusionSelector)
    query = selector(snapshot, 5)
    seeded = torch.Generator("cpu").manual_seed(0)
    expected = choose(selector, snapshot, 5, answer=None, generator=seeded, timer=StageTimer())
    assert query.indices.tolist() == expected.indices.tolist()


def test_its_repr_equals_that_in_existing_ledgers():
    assert [repr(made()) for made in dict.fromkeys(map(type, SELECTORS)) if made is not LocalMaxSelector] == [
        "DiffusionSelector(mini_batch=1, neighbors=None, steps=None, soft_start=False, shrink_below=None, "
        "backend='auto')",
        "UncertaintySelector(passes=None)",
        "MarginSelector(passes=None)",
        "EntropySelector(passes=None)",
        "BALDSelector(passes=50)",
        "CoresetSelector()",
        "PoissonSelector(neighbors=None, tau=0.001, decay=True)",
        "DirichletSelector(neighbors=None, tau=0.1, prior=1.0)",
        "CoverageSelector(neighbors=None, rate=1.0, reach=1.0, power=None, class_balance=None)",
        "BAITSelector(regularization=1.0)",
        "UHerdingSelector(on='features', temperature=1.0, counted=50000)",
        "RandomSelector()",
        "BADGESelector()",
        "TypiClustSelector(neighbors=20, max_clusters=500)",
        "ProbCoverSelector(radius=None, purity=0.95, counted=50000)",
    ]
    assert (
        repr(LocalMaxSelector(of=MarginSelector()))
        == "LocalMaxSelector(of=MarginSelector(passes=None), neighbors=None)"
    )


@every_selector
def test_the_same_seed_gives_the_same_query_and_the_global_generator_is_not_touched(selector):
    snapshot, truth = snapshot_of()
    before = torch.get_rng_state()
    once, again = ask(selector, snapshot, 7, truth, seed=3), ask(selector, snapshot, 7, truth, seed=3)
    assert torch.equal(once.indices, again.indices)
    assert torch.equal(torch.get_rng_state(), before)


@every_selector
def test_fewer_points_than_asked_for_are_all_taken(selector):
    snapshot, truth = snapshot_of(known=55)
    assert set(ask(selector, snapshot, 20, truth).indices.tolist()) == set(snapshot.unlabeled.tolist())


@every_selector
def test_one_known_class_is_enough(selector):
    snapshot, truth = snapshot_of()
    labels = torch.where(snapshot.labels == 0, snapshot.labels, UNLABELED)
    assert len(ask(selector, changed(snapshot, labels=labels), 5, truth)) == 5


@every_selector
def test_one_class_in_all_is_enough(selector):
    snapshot, truth = snapshot_of(classes=1)
    assert len(ask(selector, snapshot, 5, truth)) == 5


@every_selector
def test_a_constant_embedding_is_enough(selector):
    snapshot, truth = snapshot_of(embeddings=torch.full((60, 5), 0.1))
    assert len(ask(selector, snapshot, 20, truth)) == 20


@every_selector
@pytest.mark.parametrize("exponent", [-100, -40, 40, 100])
def test_the_unit_of_the_embeddings_does_not_matter(selector, exponent):
    # Squares of float32 overflow from 2⁶⁴ on and vanish below 2⁻⁷⁵.
    snapshot, truth = snapshot_of()
    other = changed(snapshot, embeddings=snapshot.embeddings * 2.0**exponent)
    radius = getattr(selector, "radius", None)
    stretched = selector if radius is None else dataclasses.replace(selector, radius=radius * 2.0**exponent)
    assert torch.equal(ask(stretched, other, 7, truth).indices, ask(selector, snapshot, 7, truth).indices)


@every_selector
def test_an_exhausted_pool_gives_an_empty_query(selector):
    snapshot, truth = snapshot_of(known=60)
    assert len(ask(selector, snapshot, 5, truth)) == 0


@every_selector
def test_half_precision_is_enough(selector):
    snapshot, truth = snapshot_of()
    half = changed(snapshot, embeddings=snapshot.embeddings.bfloat16(), logits=snapshot.logits.bfloat16())
    widened = changed(half, embeddings=half.embeddings.float(), logits=half.logits.float())
    query, expected = ask(selector, half, 5, truth), ask(selector, widened, 5, truth)
    assert query.indices.tolist() == expected.indices.tolist(), "bfloat16 numbers are float32 numbers"
    torch.testing.assert_close(query.scores, expected.scores, rtol=0, atol=0, equal_nan=True)


@every_selector
def test_inputs_with_gradients_are_detached(selector):
    snapshot, truth = snapshot_of()
    embeddings, logits, *passes = (
        part.clone().requires_grad_()
        for part in (
            snapshot.embeddings,
            snapshot.logits,
            snapshot.stochastic.probabilities,
            snapshot.stochastic.expected_entropy,
        )
    )
    carrying = changed(snapshot, embeddings=embeddings, logits=logits, stochastic=StochasticPasses(*passes))
    query = ask(selector, carrying, 7, truth)
    assert torch.equal(query.indices, ask(selector, snapshot, 7, truth).indices)
    assert not query.scores.requires_grad


@every_selector
def test_it_needs_exactly_what_it_declares(selector):
    snapshot, truth = snapshot_of()
    snapshot = changed(snapshot, features=snapshot.embeddings)
    parts = ("embeddings", "features", "logits", "stochastic")
    missing = {name: None for name in parts if name not in selector.needs}
    indices = ask(selector, changed(snapshot, **missing), 5, truth).indices
    assert torch.equal(indices, ask(selector, snapshot, 5, truth).indices)
    optional = OPTIONAL.get(type(selector), set())
    for name in optional:
        assert len(ask(selector, changed(snapshot, **{name: None}), 5, truth)) == 5
    for name in selector.needs - optional:
        with pytest.raises(ValueError, match=f"This snapshot has no {name}"):
            ask(selector, changed(snapshot, **{name: None}), 5, truth)


@every_selector
def test_a_number_of_passes_is_declared_with_the_need_for_them(selector):
    assert ("stochastic" in selector.needs) == (selector.passes is not None)


@every_selector
def test_it_makes_every_tensor_on_the_device_of_the_snapshot(selector):
    # As in tests/test_devices.py: a factory that is given no device makes a tensor without data here.
    snapshot, truth = snapshot_of()
    expected = ask(selector, snapshot, 7, truth)
    with torch.device("meta"):
        query = ask(selector, snapshot, 7, truth)
    assert query.indices.tolist() == expected.indices.tolist()
    assert query.scores.device == snapshot.labels.device


@every_selector
def test_no_label_at_all_is_enough(selector):
    snapshot, truth = snapshot_of(known=0, queries_before=0)
    assert len(ask(selector, snapshot, 5, truth)) == 5


@pytest.mark.parametrize("selector", DETERMINISTIC, ids=repr)
def test_a_renumbered_pool_gets_the_renumbered_query(selector):
    snapshot, truth = snapshot_of(n=90, known=20)
    order = torch.randperm(90, generator=torch.Generator().manual_seed(5))
    indices = ask(selector, snapshot, 6, truth).indices
    assert torch.equal(order[ask(selector, reordered(snapshot, order), 6, truth[order]).indices], indices)


def test_a_soft_start_counts_only_after_the_first_query():
    hard, soft = SELECTORS[0], DiffusionSelector(neighbors=6, steps=3, soft_start=True)
    first, truth = snapshot_of(queries_before=0)
    later, _ = snapshot_of(queries_before=1)
    assert torch.equal(ask(soft, first, 7, truth).indices, ask(hard, first, 7, truth).indices)
    assert not torch.equal(ask(soft, later, 7, truth).indices, ask(hard, later, 7, truth).indices)


def test_the_unreached_are_counted_before_the_query():
    snapshot, truth = snapshot_of(known=1)
    query = ask(DiffusionSelector(neighbors=3, steps=1), snapshot, 5, truth)
    assert 40 < query.unreached < 60
    assert ask(DiffusionSelector(neighbors=20, steps=9), snapshot, 5, truth).unreached < query.unreached


# Functions of users


def test_a_function_is_a_selector():
    snapshot, truth = snapshot_of()
    query = ask(lambda snapshot, size: snapshot.unlabeled[-size:], snapshot, 4, truth)
    assert query.indices.tolist() == snapshot.unlabeled[-4:].tolist()


def test_a_selector_gets_the_keywords_it_takes():
    snapshot, truth = snapshot_of()

    def choose_class_zero(snapshot, size, *, answer):
        return [int(i) for i in snapshot.unlabeled if answer(i[None])[0] == 0][:size]

    assert truth[ask(choose_class_zero, snapshot, 4, truth).indices].tolist() == [0] * 4


def test_a_selector_with_any_keywords_gets_all_three():
    snapshot, truth = snapshot_of()

    def by_class(snapshot, size, **keywords):
        with keywords["timer"].stage("query"):
            order = torch.randperm(snapshot.num_unlabeled, generator=keywords["generator"])
        candidates = snapshot.unlabeled[order]
        return candidates[keywords["answer"](candidates) == 1][:size]

    assert as_selector(by_class).asks_during_query
    assert truth[ask(by_class, snapshot, 4, truth).indices].tolist() == [1] * 4


def test_an_object_that_does_not_inherit_keeps_what_it_declares():
    class Last:
        needs, passes = {"stochastic"}, 7

        def check_pool(self, num_points):
            raise ValueError(f"not {num_points}")

        def __call__(self, snapshot, size):
            return snapshot.unlabeled[-size:]

    selector, plain = as_selector(Last()), as_selector(lambda snapshot, size, answer: [])
    assert (selector.needs, selector.passes, selector.asks_during_query) == ({"stochastic"}, 7, False)
    assert (plain.needs, plain.passes, plain.asks_during_query) == ({"embeddings", "logits"}, None, True)
    with pytest.raises(ValueError, match="not 60"):
        selector.check_pool(60)
    plain.check_pool(60)
    with pytest.raises(ValueError, match=r"as_selector\(selector='random'\): a selector or a function"):
        as_selector("random")


def test_a_selector_of_your_own_may_return_indices():
    class Last(Selector):
        def __call__(self, snapshot, size, *, answer=None, generator=None, timer=None):
            return snapshot.unlabeled[-size:].tolist()

    snapshot, truth = snapshot_of()
    assert as_selector(own := Last()) is own
    assert own.needs == {"embeddings", "logits"}
    assert ask(own, snapshot, 4, truth).indices.tolist() == snapshot.unlabeled[-4:].tolist()


def test_a_wrapped_selector_gets_the_keywords_it_takes():
    snapshot, truth = snapshot_of()

    class Wrapper:
        def __init__(self, selector):
            update_wrapper(self, selector)

        def __call__(self, *args, **keywords):
            return self.__wrapped__(*args, **keywords)

    def last(snapshot, size):
        return snapshot.unlabeled[-size:]

    assert ask(Wrapper(last), snapshot, 4, truth).indices.tolist() == snapshot.unlabeled[-4:].tolist()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (lambda s, k: s.unlabeled[: k - 1], r"chose \(3,\) indices: 4 different unlabeled points of the 60"),
        (lambda s, k: s.labeled[:k], "chose labeled points"),
        (lambda s, k: s.unlabeled[[0, 0, 1, 2]], "chose points twice"),
        (lambda s, k: [0, 1, 2, 60], "chose an index outside the pool"),
        (lambda s, k: [-1, 1, 2, 3], "chose an index outside the pool"),
        (lambda s, k: [], r"chose \(0,\) indices"),
        (lambda s, k: None, r"returned NoneType: a tensor or a list of 4 indices is needed, whole numbers, or a Query"),
        (lambda s, k: set(s.unlabeled[:k].tolist()), "returned set"),
        (lambda s, k: s.unlabeled[:k].float(), "returned Tensor: .* whole numbers"),
        (lambda s, k: s.labels == UNLABELED, "returned Tensor: .* whole numbers"),
        (lambda s, k: ["first", "second"], "returned list"),
    ],
)
def test_a_selector_that_chooses_wrongly_is_refused(chosen, message):
    snapshot, truth = snapshot_of()
    with pytest.raises(ValueError, match=message):
        ask(chosen, snapshot, 4, truth)


def test_unknown_needs_are_refused():
    def selector(snapshot, size): ...

    assert as_selector(selector).needs == {"embeddings", "logits"}
    selector.needs = {"gradients"}
    with pytest.raises(
        ValueError, match=r"needs is .*'gradients'.*: a set of strings of \['embeddings', 'features', 'logits'"
    ):
        as_selector(selector)


def test_a_missing_part_of_a_snapshot_is_named():
    with pytest.raises(ValueError, match="This snapshot has no logits"):
        Snapshot(labels=torch.tensor([0]), num_classes=2).probabilities  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mini_batch": 0}, r"DiffusionSelector\(mini_batch=0\): a whole number"),
        ({"neighbors": 2.5}, r"DiffusionSelector\(neighbors=2.5\)"),
        ({"steps": -1}, r"DiffusionSelector\(steps=-1\)"),
        ({"shrink_below": 2}, r"DiffusionSelector\(shrink_below=2\): a fraction"),
        ({"backend": "scipy"}, r"DiffusionSelector\(backend='scipy'\)"),
    ],
)
def test_bad_parameters_are_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        DiffusionSelector(**arguments)
