"""Real Trainers and the real callback, at toy size."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from lightning_diffal.selectors.diffusion import DiffusionSelector
from lightning_diffal.studies.definitions import STUDIES
from lightning_diffal.studies.execute import execute
from lightning_diffal.studies.networks import FullyConnected
from lightning_diffal.studies.optimizers import SGD, Adam
from lightning_diffal.studies.run_spec import pool_and_test_set
from lightning_diffal.studies.selector_registry import PAPER_SELECTORS, SELECTORS
from lightning_diffal.studies.training import Classifier
from tests.studies.small_studies import BOARD, one_run, read, without_seconds, write_npz, write_vgg

pytestmark = pytest.mark.filterwarnings("ignore")  # of Lightning, about small runs


def first_weights(run, finished):
    """Execute a run; its result and the weights it started from."""
    found = []

    def progress(rounds):
        finished.append(rounds)
        if not found:
            found.append(torch.load(run.run_folder / "untrained.ckpt", weights_only=False)["state_dict"])

    return execute(run, progress), found[0]


@pytest.mark.long
def test_all_selectors_of_a_seed_share_first_labels_weights_and_data(tmp_path):
    results, weights = {}, {}
    for name in SELECTORS:
        finished = []
        path, weights[name] = first_weights(one_run(BOARD, name, tmp_path), finished)
        results[name] = read(path)
        assert finished[0] == 0
        assert finished[-1] == 3
        assert finished == sorted(finished)
    for name, result in results.items():
        assert result.initial == results["diffusion"].initial, name
        assert [step.labels for step in result.rounds] == [4, 8, 12]
        assert [len(step.asked) for step in result.rounds] == [4, 4, 0]
        assert weights[name].keys() == weights["diffusion"].keys() or "dropout" in name or name == "bald"
        for ours, theirs in zip(weights[name].values(), weights["diffusion"].values(), strict=True):
            assert torch.equal(ours, theirs), name
    # Trained on the same four labels from the same weights, the first fits agree to the last digit.
    plain = [result for name, result in results.items() if "dropout" not in name and name != "bald"]
    assert len({result.rounds[0].accuracy for result in plain}) == 1
    assert len({tuple(result.rounds[0].asked) for result in plain}) > 5, "and the choices are each their own"
    assert len(PAPER_SELECTORS) == 8
    assert not list((tmp_path / ".runs").glob("*/*")), "no ledger is left behind"


def test_accuracy_and_calibration_are_those_of_the_trained_network_on_the_whole_test_set(tmp_path, monkeypatch):
    study = replace(BOARD, budget=4, batch_of_pool=7)  # 20 test points in batches of 7, 7 and 6
    run, kept = one_run(study, "random", tmp_path), tmp_path / "kept.ckpt"
    monkeypatch.setattr(shutil, "rmtree", lambda folder: shutil.copy(folder / "trained-1.ckpt", kept))
    measured = read(execute(run)).rounds[0]
    network = study.network.build((2,), 2, dropout=False)
    weights = torch.load(kept, weights_only=False)["state_dict"]
    network.load_state_dict({name.removeprefix("layers."): value for name, value in weights.items()})
    _, test = pool_and_test_set(study, 0, tmp_path)
    with torch.no_grad():
        outputs = torch.cat([network(x[None]) for x in test.x]).softmax(dim=1).double()
    confidence, predicted = outputs.max(dim=1)
    correct = (predicted == test.targets).double()
    assert measured.accuracy == float(correct.mean())
    gaps = [
        abs(float((confidence[members] - correct[members]).sum()))
        for members in ((confidence * 15).floor() == place for place in range(16))
    ]
    assert measured.calibration_error == pytest.approx(sum(gaps) / 20, abs=1e-5)


def test_results_hold_the_coordinates_of_labeled_points(tmp_path):
    result = read(execute(one_run(BOARD, "random", tmp_path)))
    pool, _ = pool_and_test_set(BOARD, 0, tmp_path)
    labeled = result.initial + [index for step in result.rounds for index in step.asked]
    assert sorted(map(int, result.points)) == sorted(labeled)
    for index in labeled:
        column, row = (int(4 * place) for place in result.points[str(index)])
        assert (column + row) % 2 == int(pool.targets[index])


def test_other_seeds_are_other_pools_labels_and_weights(tmp_path):
    results, weights = zip(
        *(first_weights(one_run(BOARD, "random", tmp_path, seed=s), []) for s in (0, 1)), strict=True
    )
    assert read(results[0]).initial != read(results[1]).initial
    assert not torch.equal(weights[0]["layers.0.weight"], weights[1]["layers.0.weight"])
    assert not torch.equal(pool_and_test_set(BOARD, 0, tmp_path)[0].x, pool_and_test_set(BOARD, 1, tmp_path)[0].x)


def test_the_same_run_twice_comes_to_the_same(tmp_path):
    paths = [execute(one_run(BOARD, "dropout-entropy", tmp_path / place)) for place in "ab"]
    assert without_seconds(paths[0]) == without_seconds(paths[1])


def test_with_learning_from_the_graph_each_step_has_diffused_labels_beside_the_labeled_ones(tmp_path, monkeypatch):
    corners = np.random.default_rng(0).normal(size=(3, 8)) * 4
    sizes = {"train": 150, "test": 20}
    rows = {
        f"x_{part}": corners[np.arange(n) % 3] + np.random.default_rng(n).normal(size=(n, 8))
        for part, n in sizes.items()
    }
    write_npz(tmp_path, "clusters", n=150, **rows)
    numbers = {"dataset": "clusters", "pool": 150, "first": 4, "query_size": 6, "budget": 18, "epochs": 2}
    study, steps = replace(STUDIES["mnist-fc"], **numbers), []
    forward = Classifier.training_step

    def record(self, batch, batch_idx):
        steps.append((self.num_labeled, len(batch[0])))
        return forward(self, batch, batch_idx)

    monkeypatch.setattr(Classifier, "training_step", record)
    for learning in (False, True):
        result = read(execute(one_run(replace(study, learn_from_graph=learning), "coverage", tmp_path)))
        assert [step.labels for step in result.rounds] == [12, 18]
    assert steps == [(12, 12)] * 2 + [(18, 18)] * 2 + [(12, 48)] * 2 + [(18, 72)] * 2


def test_any_data_set_runs_with_a_network_of_the_paper(tmp_path):
    write_npz(tmp_path, "fashion", n=90, shape=(12, 10))
    small = {"dataset": "fashion", "pool": 60, "first": 1, "query_size": 5, "budget": 8, "epochs": 1}
    for name in ("mnist-fc", "mnist-conv"):
        result = read(execute(one_run(replace(STUDIES[name], **small), "diffusion", tmp_path)))
        assert [step.labels for step in result.rounds] == [3, 8]
        assert result.settings["num_classes"] == 3
        assert not result.points


def test_cifar10_trains_on_features_with_dropout_and_a_falling_learning_rate(tmp_path, monkeypatch):
    write_npz(tmp_path, "cifar10", n=40, shape=(32, 32, 3))
    write_vgg(tmp_path)
    optimizer = replace(STUDIES["cifar10"].optimizer, halved_every=2)
    numbers = {"pool": 40, "first": 1, "query_size": 5, "budget": 8, "epochs": 5, "passes": 2, "neighbors": 5}
    study = replace(STUDIES["cifar10"], optimizer=optimizer, **numbers)
    rates, modules, widths = [], [], []

    def record(self):
        rates.append(self.steps.param_groups[0]["lr"])
        modules.extend(type(layer) for layer in self.layers)
        widths.append(self.layers[0].in_features)

    monkeypatch.setattr(Classifier, "on_train_epoch_start", record)
    for name in ("diffusion", "dropout-uncertainty"):
        assert [step.labels for step in read(execute(one_run(study, name, tmp_path))).rounds] == [3, 8]
    fits = [rates[start : start + 5] for start in range(0, 20, 5)]
    assert fits == [pytest.approx([3e-4, 3e-4, 1.5e-4, 1.5e-4, 0.75e-4])] * 4, "every fit starts at the full rate"
    assert modules.count(torch.nn.Dropout) == 2 * 20
    assert set(widths) == {512}, "features, not pixels"


def test_vgg_is_trained_from_scratch_and_starts_softly_after_its_first_query(tmp_path):
    write_npz(tmp_path, "svhn", n=12, shape=(32, 32, 3), classes=2)
    study = replace(STUDIES["svhn"], pool=12, first=1, query_size=1, budget=4, epochs=1, neighbors=2, steps=1)
    result = read(execute(one_run(study, "diffusion", tmp_path)))
    assert result.rounds[0].unreached > 0
    assert result.rounds[1].unreached == 0, "every point starts with the network's prediction"


def test_the_learning_rate_is_halved_as_often_as_the_paper_says():
    network = FullyConnected(widths=()).build((2,), 2, dropout=False)
    optimizers, schedulers = Adam(lr=0.0003, halved_every=30).configure(network.parameters())
    rates = []
    for _ in range(100):
        rates.append(optimizers[0].param_groups[0]["lr"])
        optimizers[0].step()
        schedulers[0].step()
    assert [rates[epoch] for epoch in (0, 29, 30, 60, 90)] == pytest.approx([3e-4, 3e-4, 1.5e-4, 7.5e-5, 3.75e-5])


def test_training_is_what_a_plain_loop_over_the_same_batches_would_be(tmp_path, monkeypatch):
    """The Trainer, the callback and the manual steps add nothing: one point, so that there is no order of batches."""
    study = replace(BOARD, first=1, budget=2, batch_size=2, epochs=5, optimizer=SGD(lr=0.1, momentum=0.9))
    run, kept = one_run(study, "random", tmp_path), tmp_path / "kept.ckpt"
    monkeypatch.setattr(shutil, "rmtree", lambda folder: shutil.copy(folder / "trained-1.ckpt", kept))
    path, start = first_weights(run, [])
    labeled = read(path).initial
    pool, _ = pool_and_test_set(study, 0, tmp_path)
    network = study.network.build((2,), 2, dropout=False)
    network.load_state_dict({name.removeprefix("layers."): value for name, value in start.items()})
    velocity = [torch.zeros_like(part) for part in network.parameters()]
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(network(pool.x[labeled]), pool.targets[labeled])
        for part, gradient, speed in zip(
            network.parameters(), torch.autograd.grad(loss, list(network.parameters())), velocity, strict=True
        ):
            speed.mul_(0.9).add_(gradient)
            part.data -= 0.1 * speed
    trained = torch.load(kept, weights_only=False)["state_dict"]
    for name, value in network.state_dict().items():
        torch.testing.assert_close(trained[f"layers.{name}"], value)


def test_with_as_many_candidates_as_are_asked_for_every_selector_asks_for_those(tmp_path):
    study = replace(BOARD, candidates=BOARD.query_size, neighbors=3)
    asked = [
        set(read(execute(one_run(study, name, tmp_path))).rounds[0].asked) for name in ("diffusion", "random", "margin")
    ]
    assert asked[0] == asked[1] == asked[2]


def test_without_candidates_results_keep_the_names_they_had(tmp_path):
    whole, part = (one_run(replace(BOARD, candidates=count), "diffusion", tmp_path) for count in (None, 12))
    assert "candidates" not in whole.settings
    assert whole.result != part.result


def test_the_recall_of_an_approximate_graph_is_in_the_result(tmp_path, monkeypatch):
    approximate = DiffusionSelector(neighbors=5, backend="approximate")
    monkeypatch.setitem(SELECTORS, "approximate", lambda study: approximate)
    recalls = {
        name: [step.graph_recall for step in read(execute(one_run(BOARD, name, tmp_path))).rounds]
        for name in ("diffusion", "approximate")
    }
    assert recalls == {"diffusion": [None, None, None], "approximate": [1.0, 1.0, None]}
