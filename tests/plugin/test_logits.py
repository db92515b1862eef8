"""Logits are what the model returns; the layer that computed them is the classifier, and its input the embedding."""

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.nn import functional as F  # noqa: N812, as torch's documentation does
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from lightning_diffal import DiffusionActiveLearning
from tests.plugin.counting import Counted, Small, Snapshots, Trains, asks_first
from tests.plugin.toy_model import quiet

N, CLASSES = 60, 4


def points(seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(N) % CLASSES
    return torch.randn(N, 8, generator=generator) + 2 * F.one_hot(labels, 8), labels


def pool():
    return Counted((x, int(y)) for x, y in zip(*points(), strict=True))


def snapshot_of(tmp_path, model, dataset=None, **options):
    """What the selector was given after the first fit, the model in eval mode after it."""
    selector = Snapshots("embeddings", "logits")
    active = asks_first(**{"selector": selector, "pool_batch_size": 10} | options)
    loader = DataLoader(dataset or pool(), batch_size=10, shuffle=True)
    quiet(tmp_path, active, max_epochs=1).fit(model, loader)
    model.eval()
    return selector.given[0]


def by_hand(part):
    with torch.no_grad():
        return part(points()[0])


class CosineLayer(nn.Module):
    """A classifier that is no nn.Linear: scaled cosines to one prototype a class."""

    def __init__(self, width, classes, scale=16.0):
        super().__init__()
        self.prototypes, self.scale = nn.Parameter(torch.randn(classes, width)), scale

    def forward(self, z):
        return self.scale * F.linear(F.normalize(z), F.normalize(self.prototypes))


class LinearInside(CosineLayer):
    """The same with an nn.Linear inside, on normalized features."""

    def __init__(self, width, classes, scale=16.0):
        super().__init__(width, classes, scale)
        self.linear = nn.Linear(width, classes, bias=False)
        del self.prototypes

    def forward(self, z):
        return self.scale * self.linear(F.normalize(z))


@pytest.mark.parametrize("layer", [CosineLayer, LinearInside])
def test_a_cosine_layer_is_the_classifier(tmp_path, layer):
    model = Small()
    model.head = layer(16, CLASSES)
    snapshot = snapshot_of(tmp_path, model)
    assert snapshot.num_classes == CLASSES
    assert torch.allclose(snapshot.embeddings, by_hand(model.backbone), atol=1e-5)
    assert torch.allclose(snapshot.logits, by_hand(model), atol=1e-4)


def test_a_parametrized_linear_is_the_classifier(tmp_path):
    model = Small()
    model.head = nn.utils.parametrizations.weight_norm(nn.Linear(16, CLASSES))
    snapshot = snapshot_of(tmp_path, model)
    assert torch.allclose(snapshot.embeddings, by_hand(model.backbone), atol=1e-5)
    assert torch.allclose(snapshot.logits, by_hand(model), atol=1e-5)


class WithProjection(Small):
    """A projection head for a contrastive loss runs after the classifier."""

    def __init__(self, returns):
        super().__init__()
        self.projection, self.returns = nn.Linear(16, 6), returns

    def forward(self, x):
        z = self.backbone(x)
        return self.returns(z, self.head(z), self.projection(z))

    def training_step(self, batch, batch_idx):
        z = self.backbone(batch[0])
        return cross_entropy(self.head(z), batch[1]) + self.projection(z).square().mean()


class Outputs:
    def __init__(self, logits, projection):
        self.logits, self.projection = logits, projection


@pytest.mark.parametrize(
    "returns",
    [
        lambda z, logits, projection: logits,
        lambda z, logits, projection: (logits, projection),
        lambda z, logits, projection: (projection, logits),
        lambda z, logits, projection: {"projection": projection, "logits": logits},
        lambda z, logits, projection: Outputs(logits, projection),
    ],
    ids=["tensor", "tuple", "tuple with the projection first", "dictionary", "object"],
)
def test_a_projection_head_that_runs_last_is_not_the_classifier(tmp_path, returns):
    model = WithProjection(returns)
    dataset = pool()
    dataset.classes = ["a", "b", "c", "d"]  # which of a tuple's tensors fits
    snapshot = snapshot_of(tmp_path, model, dataset)
    assert snapshot.num_classes == CLASSES
    assert torch.allclose(snapshot.embeddings, by_hand(model.backbone), atol=1e-5)
    assert torch.allclose(snapshot.logits, by_hand(lambda x: model.head(model.backbone(x))), atol=1e-5)


@pytest.mark.parametrize(
    "end", [nn.Softmax(1), nn.LogSoftmax(1), nn.Unflatten(1, (1, CLASSES)), nn.Unflatten(1, (CLASSES, 1, 1))], ids=repr
)
def test_what_follows_the_last_linear_does_not_change_its_logits(tmp_path, end):
    class Ends(Small):
        def forward(self, x):
            return end(super().forward(x))

        def training_step(self, batch, batch_idx):
            return cross_entropy(self.head(self.backbone(batch[0])), batch[1])

    model = Ends()
    snapshot = snapshot_of(tmp_path, model)
    assert torch.allclose(snapshot.logits, by_hand(lambda x: model.head(model.backbone(x))), atol=1e-5)
    assert torch.allclose(snapshot.embeddings, by_hand(model.backbone), atol=1e-5)


def test_a_normalization_behind_the_classifier_is_no_classifier(tmp_path):
    model = Small()
    model.head = nn.Sequential(nn.Linear(16, CLASSES), nn.BatchNorm1d(CLASSES), nn.Identity())
    snapshot = snapshot_of(tmp_path, model)
    assert torch.allclose(snapshot.logits, by_hand(model), atol=1e-5)
    assert torch.allclose(snapshot.embeddings, by_hand(model.backbone), atol=1e-5)


def test_a_temperature_scales_the_logits_and_not_the_embedding(tmp_path):
    class Tempered(Small):
        def forward(self, x):
            return super().forward(x) / 0.5

    model = Tempered()
    snapshot = snapshot_of(tmp_path, model)
    assert torch.allclose(snapshot.logits, by_hand(model), atol=1e-5)
    assert torch.allclose(snapshot.embeddings, by_hand(model.backbone), atol=1e-5)


def test_predicted_classes_are_no_logits(tmp_path):
    class Predicts(Small):
        def predict_step(self, batch, batch_idx):
            return self(batch[0]).argmax(dim=1)

    model = Predicts()
    snapshot = snapshot_of(tmp_path, model)
    assert torch.allclose(snapshot.logits, by_hand(model), atol=1e-5)


@pytest.mark.parametrize("returns", ["logit", "flat logit", "probability"])
def test_one_output_is_a_binary_classifier(tmp_path, returns):
    class Binary(Small):
        def __init__(self):
            super().__init__(classes=1)

        def forward(self, x):
            logit = super().forward(x)
            return {"logit": logit, "flat logit": logit[:, 0], "probability": logit[:, 0].sigmoid()}[returns]

        def training_step(self, batch, batch_idx):
            logit = self.head(self.backbone(batch[0]))[:, 0]
            return F.binary_cross_entropy_with_logits(logit, batch[1].float())

    model = Binary()
    dataset = Counted((x, int(y) % 2) for x, y in zip(*points(), strict=True))
    snapshot = snapshot_of(tmp_path, model, dataset)
    assert snapshot.num_classes == 2
    assert torch.allclose(snapshot.embeddings, by_hand(model.backbone), atol=1e-5)
    sigmoid = by_hand(lambda x: model.head(model.backbone(x))[:, 0].sigmoid())
    assert torch.allclose(snapshot.probabilities[:, 1], sigmoid, atol=1e-5)


class Functional(Small):
    """Its classifier is a function of parameters, not a layer."""

    def __init__(self):
        super().__init__()
        self.head, self.prototypes = nn.Identity(), nn.Parameter(torch.randn(CLASSES, 16))

    def forward(self, x):
        return 16 * F.linear(F.normalize(self.backbone(x)), F.normalize(self.prototypes))


def test_a_classifier_that_is_no_layer_is_refused_with_what_to_write(tmp_path):
    model = Functional()
    with pytest.raises(MisconfigurationException, match=r"no layer .* logits.*layer='backbone'.*embedding="):
        snapshot_of(tmp_path, model)
    assert not (tmp_path / "active_learning").exists()
    snapshot = snapshot_of(tmp_path / "layer", model, layer="backbone")
    assert torch.allclose(snapshot.embeddings, by_hand(model.backbone), atol=1e-5)
    assert torch.allclose(snapshot.logits, by_hand(model), atol=1e-4)


def test_a_network_whose_classifier_is_no_layer_is_not_the_classifier_itself(tmp_path):
    class Outer(Trains):
        def __init__(self):
            super().__init__()
            self.network = Functional()

        def forward(self, x):
            return self.network(x)

    with pytest.raises(MisconfigurationException, match=r"no layer computed the logits.*embedding="):
        snapshot_of(tmp_path, Outer())


def test_a_wide_classifier_that_is_no_layer_is_not_replaced_by_another_layer(tmp_path):
    model = Functional()
    model.prototypes = nn.Parameter(torch.randn(9, 16))
    dataset = pool()
    dataset.classes = ["a", "b", "c", "d"]
    with pytest.raises(MisconfigurationException, match=r"no layer computed the logits"):
        snapshot_of(tmp_path, model, dataset)


def test_a_classifier_that_runs_twice_gives_the_embedding_of_the_pass_that_is_returned(tmp_path):
    class Twice(Small):
        def forward(self, x):
            logits = super().forward(x)
            self.head(self.backbone(x.flip(0)))
            return logits

    model = Twice()
    snapshot = snapshot_of(tmp_path, model)
    assert torch.allclose(snapshot.logits, by_hand(model), atol=1e-5)
    assert torch.allclose(snapshot.embeddings, by_hand(model.backbone), atol=1e-5)


def test_functions_give_embedding_and_logits(tmp_path):
    class Apart(Functional):
        """`forward` gives features only."""

        def forward(self, x):
            return self.backbone(x)

        def classify(self, z):
            return F.linear(z, self.prototypes)

        def training_step(self, batch, batch_idx):
            return cross_entropy(self.classify(self(batch[0])), batch[1])

    model = Apart()
    snapshot = snapshot_of(
        tmp_path,
        model,
        embedding=lambda module, batch: module(batch[0]),
        logits=lambda module, batch: module.classify(module(batch[0])),
    )
    assert torch.allclose(snapshot.embeddings, by_hand(model), atol=1e-5)
    assert torch.allclose(snapshot.logits, by_hand(lambda x: model.classify(model(x))), atol=1e-5)


def test_the_paper_s_callback_takes_the_functions_too(tmp_path):
    active = DiffusionActiveLearning(
        8, 20, initial=12, neighbors=5, embedding=lambda module, batch: module.backbone(batch[0])
    )
    history = active.fit(quiet(tmp_path, active, max_epochs=1), Functional(), DataLoader(pool(), batch_size=10))
    assert history.labels == [12, 20]


def test_classes_that_nothing_counts_are_asked_for_before_a_label_is_spent(tmp_path):
    class Features(Functional):
        """`forward` takes what no batch has."""

        def forward(self, x, y, z):
            raise NotImplementedError

        def training_step(self, batch, batch_idx):
            return cross_entropy(F.linear(self.backbone(batch[0]), self.prototypes), batch[1])

    def embedding(module, batch):
        return module.backbone(batch[0])

    options = {"initial": 12, "neighbors": 5, "embedding": embedding}
    loader = DataLoader(pool(), batch_size=10)
    active = DiffusionActiveLearning(8, 20, **options)
    with pytest.raises(MisconfigurationException, match=r"how many classes there are\. num_classes=.*logits="):
        active.fit(quiet(tmp_path, active, max_epochs=1), Features(), loader)
    assert not (tmp_path / "active_learning" / "rounds.jsonl").exists()
    active = DiffusionActiveLearning(8, 20, num_classes=4, **options)
    assert active.fit(quiet(tmp_path, active, max_epochs=1), Features(), loader).labels == [12, 20]


@pytest.mark.parametrize("argument", ["embedding", "logits"])
def test_a_function_that_gives_no_row_for_each_point_is_refused(tmp_path, argument):
    with pytest.raises(MisconfigurationException, match=rf"{argument}=.* shape \(16,\).* 10 points.*\(10, "):
        snapshot_of(tmp_path, Small(), **{argument: lambda module, batch: torch.ones(16)})
    with pytest.raises(ValueError, match=rf"ActiveLearning\({argument}=3\): a function of \(module, batch\)"):
        asks_first(**{argument: 3})


class PerToken(Trains):
    """As GPT-2's: a score for each token, of which the last one's is returned."""

    def __init__(self, pooled=True):
        super().__init__()
        self.embed, self.score, self.pooled = nn.Embedding(50, 12), nn.Linear(12, CLASSES, bias=False), pooled

    def forward(self, tokens):
        scores = self.score(self.embed(tokens).cumsum(dim=1))  # (b, t, c)
        last = (tokens > 0).sum(dim=1) - 1
        return scores[torch.arange(len(tokens)), last] if self.pooled else scores

    def training_step(self, batch, batch_idx):
        loss = self(batch[0])
        return cross_entropy(loss if self.pooled else loss[:, -1], batch[1])


def sentences():
    generator = torch.Generator().manual_seed(0)
    lengths = [3 + index % 7 for index in range(N)]
    return Counted((torch.randint(1, 50, (n,), generator=generator), i % CLASSES) for i, n in enumerate(lengths))


def padded(items):
    tokens, labels = zip(*items, strict=True)
    return nn.utils.rnn.pad_sequence(tokens, batch_first=True), torch.tensor(labels)


def test_the_embedding_of_a_per_token_classifier_is_that_of_the_token_it_returns(tmp_path):
    selector, model, dataset = Snapshots("embeddings", "logits"), PerToken(), sentences()
    loader = DataLoader(dataset, batch_size=10, shuffle=True, collate_fn=padded)
    quiet(tmp_path, asks_first(selector=selector), max_epochs=1).fit(model, loader)
    snapshot = selector.given[0]
    model.eval()
    with torch.no_grad():
        expected = torch.stack([model.embed(tokens).sum(dim=0) for tokens, _ in dataset.items])
        logits = model.score(expected)
    assert snapshot.embeddings.shape == (N, 12)
    assert torch.allclose(snapshot.embeddings, expected, atol=1e-5)
    assert torch.allclose(snapshot.logits, logits, atol=1e-5)


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        ("logits", r"shape \(10, \d+, 4\).*\(10, classes\).*logits="),
        ("embeddings", r"'score' takes Tensor of shape \(10, \d+, 12\).* each token.*layer=.*embedding="),
    ],
)
def test_one_class_for_each_token_is_refused_before_a_label_is_spent(tmp_path, needs, message):
    active, model = asks_first(selector=Snapshots(needs), pool_batch_size=10), PerToken(pooled=False)
    loader = DataLoader(sentences(), batch_size=10, shuffle=True, collate_fn=padded)
    with pytest.raises(MisconfigurationException, match=message):
        quiet(tmp_path, active, max_epochs=1).fit(model, loader)
    assert not (tmp_path / "active_learning").exists()


# The classifier's width


def test_a_classifier_narrower_than_the_classes_is_refused_with_the_numbers(tmp_path):
    with pytest.raises(MisconfigurationException, match=r"label 3 .* 3 outputs.*classes 0 to 2"):
        snapshot_of(tmp_path, Small(classes=3))
    assert not (tmp_path / "active_learning" / "rounds.jsonl").exists()


def test_a_classifier_wider_than_the_classes_is_warned_about_with_the_numbers(tmp_path):
    dataset = pool()
    dataset.classes = ["a", "b", "c", "d"]
    with pytest.warns(UserWarning, match=r"32 outputs .* 4 classes"):
        snapshot_of(tmp_path, Small(classes=32), dataset)


def test_a_classifier_wider_than_the_first_labels_suggest_is_warned_about(tmp_path):
    with pytest.warns(UserWarning, match=r"32 outputs and all 12 first labels are of the first 4 classes"):
        snapshot_of(tmp_path, Small(classes=32))


def test_a_class_that_the_classifier_lacks_is_refused_when_it_is_answered(tmp_path):
    active = asks_first(oracle=lambda indices: [4 if index == 3 else index % 4 for index in indices], initial=10)
    with pytest.raises(ValueError, match=r"about point 3: label 4 is not one of the 4 classes"):
        active.fit(quiet(tmp_path, active, max_epochs=1), Small(), DataLoader(pool(), batch_size=10))


# A selector with **keywords


def test_a_selector_with_keywords_may_ask_for_answers_while_people_are_the_oracle(tmp_path):
    answers = []

    def greedy(snapshot, size, **keywords):
        answers.append(keywords["answer"](snapshot.unlabeled[:2]))
        return snapshot.unlabeled[:size]

    greedy.needs = frozenset({"embeddings"})
    active = asks_first(selector=greedy, oracle=lambda indices: [index % 4 for index in indices])
    active.fit(quiet(tmp_path, active, max_epochs=1), Small(), DataLoader(pool(), batch_size=10))
    assert len(answers[0]) == 2
