"""The embedding of other libraries' models is the input of their classifier, whatever kind of layer that is."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from tests.plugin.counting import Counted, Snapshots, Trains, asks_first
from tests.plugin.toy_model import quiet

N, CLASSES = 16, 3
pytestmark = pytest.mark.filterwarnings("ignore")  # of other packages


class Wrapped(Trains):
    """What tutorials put around a model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)

    def training_step(self, batch, batch_idx):
        return cross_entropy(self(batch[0]), batch[1])


def snapshot_of(tmp_path, module, dataset, collate=None, loader=DataLoader, batch_size=4):
    selector = Snapshots("embeddings", "logits")
    active = asks_first(selector=selector, query_size=2, budget=8, initial=6)
    options = {"collate_fn": collate} if collate else {}
    trainer = quiet(tmp_path, active, max_epochs=1)
    trainer.fit(module, loader(dataset, batch_size=batch_size, shuffle=True, **options))
    module.eval()
    return selector.given[0]


def images(size=32):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 3, size, size, generator=generator)
    return x, Counted((x[index], index % CLASSES) for index in range(N))


@pytest.mark.parametrize(
    "name", ["test_byobnet", "test_convnext", "test_efficientnet", "test_nfnet", "test_resnet", "test_vit"]
)
def test_timm(tmp_path, name):
    timm = pytest.importorskip("timm")
    size = timm.get_pretrained_cfg(name).input_size[-1] if "vit" in name else 32
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=CLASSES)
    x, dataset = images(size)
    snapshot = snapshot_of(tmp_path, Wrapped(model), dataset)
    with torch.no_grad():
        features = model.forward_features(x)
        assert torch.allclose(snapshot.embeddings, model.forward_head(features, pre_logits=True), atol=1e-4)
        assert torch.allclose(snapshot.logits, model(x), atol=1e-4)


class HuggingFace(Trains):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **inputs):
        assert "labels" not in inputs or self.training
        return self.model(**inputs)

    def training_step(self, batch, batch_idx):
        return self(**batch).loss


SMALL = {"vocab_size": 50, "num_labels": CLASSES, "pad_token_id": 0}
BERT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
TEXT = {
    "bert": SMALL | BERT,
    "roberta": SMALL | BERT | {"max_position_embeddings": 32},
    "distilbert": SMALL | {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24},
    "gpt2": SMALL | {"n_embd": 16, "n_layer": 1, "n_head": 2},
    "llama": SMALL | BERT,
}
CLASSIFIERS = {"bert": "classifier", "roberta": "classifier.out_proj", "distilbert": "classifier"}


def pad(items):
    ids = [item["input_ids"] for item in items]
    mask = [torch.ones_like(row) for row in ids]
    return {
        "input_ids": nn.utils.rnn.pad_sequence(ids, batch_first=True),
        "attention_mask": nn.utils.rnn.pad_sequence(mask, batch_first=True),
        "labels": torch.tensor([item["labels"] for item in items]),
    }


@pytest.mark.parametrize("kind", TEXT)
def test_transformers_on_texts_of_other_lengths_in_every_batch(tmp_path, kind):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **TEXT[kind])
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    items = [{"input_ids": torch.randint(1, 50, (4 + index % 7,)), "labels": index % CLASSES} for index in range(N)]
    snapshot = snapshot_of(tmp_path, HuggingFace(model), Counted(items), pad)
    inputs = []
    layer = model.get_submodule(CLASSIFIERS.get(kind, "score"))
    layer.register_forward_hook(lambda _, given, __: inputs.append(given[0]))
    with torch.no_grad():
        logits = torch.cat([model(item["input_ids"][None]).logits for item in items])  # one by one: nothing is padded
    expected = torch.cat([given[:, -1] if given.ndim == 3 else given for given in inputs])
    assert torch.allclose(snapshot.logits, logits, atol=1e-4)
    assert torch.allclose(snapshot.embeddings, expected, atol=1e-4)


def test_an_image_model_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(image_size=16, patch_size=8, num_labels=CLASSES, **BERT)
    model = transformers.ViTForImageClassification(config)
    x = torch.randn(N, 3, 16, 16)
    items = [{"pixel_values": x[index], "labels": index % CLASSES} for index in range(N)]
    snapshot = snapshot_of(tmp_path, HuggingFace(model), Counted(items))
    with torch.no_grad():
        expected = model.vit(x).last_hidden_state[:, 0]
        assert torch.allclose(snapshot.embeddings, expected, atol=1e-4)


class GraphNet(Trains):
    """Graph classification as in PyG's introduction."""

    def __init__(self, whole_batch):
        super().__init__()
        geometric = pytest.importorskip("torch_geometric.nn")
        self.conv, self.lin = geometric.GCNConv(7, 16), geometric.Linear(16, CLASSES)
        self.pool, self.whole_batch = geometric.global_mean_pool, whole_batch

    def embed(self, data):
        return self.pool(self.conv(data.x, data.edge_index).relu(), data.batch)

    def training_step(self, data, batch_idx):
        return cross_entropy(self.lin(self.embed(data)), data.y)


class TakesData(GraphNet):
    def forward(self, data):
        return self.lin(self.embed(data))


class TakesAttributes(GraphNet):
    def forward(self, x, edge_index, batch):
        return self.lin(self.pool(self.conv(x, edge_index).relu(), batch))


@pytest.mark.parametrize("kind", [TakesData, TakesAttributes])
def test_torch_geometric(tmp_path, kind):
    geometric = pytest.importorskip("torch_geometric")
    loader = pytest.importorskip("torch_geometric.loader").DataLoader
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for number in range(N):
        nodes = 3 + number % 4
        edges = torch.randint(nodes, (2, 2 * nodes), generator=generator)
        features = torch.randn(nodes, 7, generator=generator)
        graphs.append(geometric.data.Data(x=features, edge_index=edges, y=torch.tensor([number % CLASSES])))
    module = kind(whole_batch=True)
    snapshot = snapshot_of(tmp_path, module, Counted(graphs), loader=loader)
    with torch.no_grad():
        batch = geometric.data.Batch.from_data_list(graphs)
        assert torch.allclose(snapshot.embeddings, module.embed(batch), atol=1e-5)
        assert torch.allclose(snapshot.logits, module.lin(module.embed(batch)), atol=1e-5)


def test_the_labels_of_people_reach_a_graph(tmp_path):
    geometric = pytest.importorskip("torch_geometric")
    loader = pytest.importorskip("torch_geometric.loader").DataLoader
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    graphs = [geometric.data.Data(x=torch.full((3, 7), float(i)), edge_index=edges) for i in range(N)]
    seen = {}

    class Notes(TakesData):
        def training_step(self, data, batch_idx):
            seen.update(zip(data.x[::3, 0].tolist(), data.label.tolist(), strict=True))
            data.y = data.label
            return super().training_step(data, batch_idx)

    active = asks_first(
        query_size=2,
        budget=8,
        initial=6,
        oracle=lambda indices: [index % CLASSES for index in indices],
        label=(lambda item: item.label, with_label),
    )
    active.fit(quiet(tmp_path, active, max_epochs=1), Notes(True), loader(Counted(graphs), batch_size=4))
    assert len(seen) == 8
    assert all(label == int(index) % CLASSES for index, label in seen.items())


def with_label(item, label):
    labeled = item.clone()
    labeled.label = torch.tensor([label])
    return labeled


def test_monai_with_a_cache(tmp_path):
    data = pytest.importorskip("monai.data")
    transforms = pytest.importorskip("monai.transforms")
    nets = pytest.importorskip("monai.networks.nets")
    x, _ = images(16)
    items = [{"image": x[index].numpy(), "label": index % CLASSES} for index in range(N)]
    pipeline = transforms.Compose([transforms.ToTensord("image"), transforms.RandFlipd("image", prob=0.5)])
    dataset = data.CacheDataset(items, pipeline, progress=False)
    module = Wrapped(nets.DenseNet(2, 3, CLASSES, init_features=8, growth_rate=4, block_config=(2,)))

    class Dictionaries(Wrapped):
        def training_step(self, batch, batch_idx):
            return cross_entropy(self(batch["image"]), batch["label"])

    active = asks_first(query_size=2, budget=10, initial=6)
    module = Dictionaries(module.model)
    history = active.fit(quiet(tmp_path, active, max_epochs=1), module, data.DataLoader(dataset, batch_size=4))
    assert history.labels == [6, 8, 10]
