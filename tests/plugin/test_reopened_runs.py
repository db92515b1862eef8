"""Diffused labels and audits of a run that another process made: all they need is in its folder."""

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader, SubsetRandomSampler

from lightning_diffal import ActiveLearning, People, build_graph
from lightning_diffal.labeling.query_files import read_questions
from lightning_diffal.selectors import CoverageSelector, RandomSelector
from tests.diffusion.test_graph_labels import dense_masses
from tests.plugin.test_features import CountingEncoder
from tests.plugin.toy_model import Clouds, Data, Net, quiet

pytestmark = pytest.mark.filterwarnings("ignore")
WRONG = [3, 31]


def learner(folder, **options):
    defaults = {"query_size": 10, "budget": 50, "initial": 40, "selector": RandomSelector(), "features": "inputs"}
    return ActiveLearning(**defaults | {"folder": folder} | options)


def fit(active, folder, data=None, model=None, **options):
    options = {"max_epochs": 1, "limit_val_batches": 0} | options
    return active.fit(quiet(folder, active, **options), model or Net(), datamodule=data or Data())


class Killed(Net):
    """Dies in the second round."""

    def on_train_start(self):
        super().on_train_start()
        if len(self.diary) == 2:
            raise RuntimeError("killed")


def check_labels(found, labels, points=None):
    """Against a dense diffusion of the labels over the graph of the clouds.

    Args:
        labels: All that are known, by index.
        points: The indices that are predicted.
    """
    points = list(range(120)) if points is None else points
    known = torch.full((120,), -1)
    known[list(labels)] = torch.tensor(list(labels.values()))
    mass = dense_masses(build_graph(Clouds().x[points], None), known[points].numpy(), 3, 40)
    assert found.indices.tolist() == points
    assert torch.equal(found.labels, torch.tensor(mass.argmax(axis=1)))
    assert found.indices[found.known].tolist() == sorted(labels)


def labels_in(history):
    pairs = [pair for record in history.records for pair in zip(record.indices, record.labels, strict=True)]
    return {index: label for index, label in pairs if label is not None}


def test_a_run_that_is_over(tmp_path):
    first = learner(tmp_path)
    labels = labels_in(fit(first, tmp_path))
    expected = first.predict_labels()
    assert len(labels) == 50
    check_labels(expected, labels)
    by_fit, by_hand, by_folder = (learner(tmp_path) for _ in range(3))
    fit(by_fit, tmp_path)
    quiet(tmp_path, by_hand, limit_val_batches=0).fit(Net(), datamodule=Data())
    for active in (by_fit, by_hand, by_folder):
        found = active.predict_labels()
        for part in ("indices", "labels", "confidence", "expected_accuracy", "known"):
            assert torch.equal(getattr(found, part), getattr(expected, part)), part


def test_a_folder_by_default_is_known_from_the_fit(tmp_path):
    for _ in range(2):
        active = learner(None)
        labels = labels_in(fit(active, tmp_path))
        check_labels(active.predict_labels(), labels)


def test_a_run_that_was_killed(tmp_path):
    active = learner(tmp_path)
    with pytest.raises(RuntimeError, match="killed"):
        fit(active, tmp_path, model=Killed())
    again = learner(tmp_path)
    check_labels(again.predict_labels(), labels_in(active.history))
    assert len(active.history.records) == 2


def test_ranks_that_the_run_has_started_itself(tmp_path):
    active = learner(None)
    trainer = {"strategy": "ddp_fork", "devices": 2, "max_epochs": 1, "limit_val_batches": 0}
    history = active.fit(lambda: quiet(tmp_path, active, **trainer), Net(), datamodule=Data())
    check_labels(active.predict_labels(), labels_in(history))


def test_a_loader_that_draws_some_of_the_points(tmp_path):
    points = list(range(20, 110))
    data = Data(shuffle=False, sampler=SubsetRandomSampler(points))
    labels = labels_in(fit(learner(tmp_path), tmp_path, data))
    check_labels(learner(tmp_path).predict_labels(), labels, points)


def test_points_that_people_skipped_are_left_out_and_nothing_is_encoded_again(tmp_path):
    def people(**options):
        encoder = CountingEncoder(tmp_path / "calls", width=2)
        return learner(tmp_path, oracle=People(["a", "b", "c"]), features=encoder, **options)

    truth = Clouds().targets.tolist()
    for skipped in (0, 1):
        active = people()
        asked = fit(active, tmp_path).waiting.indices
        active.answer({index: None if index == asked[0] else truth[index] for index in asked})
        assert len(people().predict_labels().indices) == 120 - skipped
    history = fit(people(), tmp_path)
    labels = labels_in(history)
    found = people().predict_labels()
    assert len(found.indices) == 118
    assert sorted(found.indices[found.known].tolist()) == sorted(labels)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sum(int(call.split()[0]) for call in calls) == 120, "one pass over the pool"


@pytest.mark.parametrize("with_loader", [False, True])
def test_an_audit_shows_the_items(tmp_path, with_loader):
    dataset = Clouds(90)
    dataset.x += 20 * torch.nn.functional.one_hot(dataset.targets, 3)[:, :2]
    truth = dataset.targets.tolist()

    class InSetup(Data):
        def __init__(self):
            super().__init__(dataset)
            self.dataset = None

        def setup(self, stage):
            self.dataset = dataset

    def auditor():
        return learner(
            tmp_path,
            initial=list(range(50)),
            oracle=lambda indices: [(truth[index] + (index in WRONG)) % 3 for index in indices],
        )

    expected, answers = None, []
    for _ in range(2):
        active = auditor()
        trainer = quiet(tmp_path, active, max_epochs=1, limit_val_batches=0)
        if with_loader:
            active.fit(trainer, Net(), DataLoader(dataset, 8, shuffle=True))
        else:
            active.fit(trainer, Net(), datamodule=InSetup())
        answers.append(active.audit(limit=2))
        assert [(question.index, question.label) for question in read_questions(tmp_path, "audit")] == [
            (question.index, question.label) for question in answers[-1]
        ]
    expected, again = answers
    assert sorted(question.index for question in expected) == WRONG
    assert again == expected
    assert all(question.text or question.path for question in again)
    alone = auditor().audit(limit=2)
    assert [question.index for question in alone] == [question.index for question in expected]
    assert all(question.text is None and question.path is None for question in alone), "no dataset was shown to it"


def test_another_dataset_is_not_taken_for_that_of_the_run(tmp_path):
    fit(learner(tmp_path), tmp_path)
    other = Clouds()
    other.x = other.x + 1
    active = learner(tmp_path)
    fit(active, tmp_path, Data(other))
    with pytest.raises(ValueError, match="another dataset"):
        active.audit()


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(MisconfigurationException, match=r"predict_labels\(\): there is no run.*folder=\.\.\. of the"):
        learner(None).predict_labels()
    with pytest.raises(MisconfigurationException, match=r"audit\(\): there is no run in .*nowhere"):
        learner(tmp_path / "nowhere").audit()
    plain = learner(tmp_path / "plain", features=None)
    fit(plain, tmp_path / "plain")
    with pytest.raises(MisconfigurationException, match=r"predict_labels\(\): there are no fixed features"):
        plain.predict_labels()
    with pytest.raises(MisconfigurationException, match=r"audit\(\): .*features=.*the embedding of a query"):
        learner(tmp_path / "plain", features=None).audit()
    fit(learner(tmp_path), tmp_path)
    with pytest.raises(ValueError, match="another run, with features='inputs, 64 components'"):
        learner(tmp_path, features=Clouds().x).predict_labels()
    (tmp_path / "features.npz").write_bytes(b"no features")
    with pytest.raises(MisconfigurationException, match=r"features\.npz is not there or damaged.*active\.fit"):
        learner(tmp_path).predict_labels()


def test_features_chosen_by_comparison(tmp_path):
    options = {"features": "auto", "budget": 60, "selector": CoverageSelector()}
    active = learner(tmp_path, **options)
    fit(active, tmp_path)
    accuracy = active.history.records[-2].feature_accuracy
    assert set(accuracy) == {"inputs", "model", "embedding"}
    best, other = ("inputs", "model") if accuracy["inputs"] >= accuracy["model"] else ("model", "inputs")
    expected = active.predict_labels()
    assert torch.equal(active.state.features, active.state.feature_sets[best])
    found = learner(tmp_path, **options).predict_labels()
    assert torch.equal(found.confidence, expected.confidence)
    (tmp_path / f"{best}.npz").unlink()
    assert (tmp_path / f"{other}.npz").exists()
    with pytest.raises(MisconfigurationException, match=rf"{best}\.npz is not there or damaged"):
        learner(tmp_path, **options).predict_labels()
