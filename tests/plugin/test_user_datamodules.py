"""DataModules and models as users write them, none of them changed for us."""

import lightning as L  # noqa: N812
import pytest
import torch
import torchmetrics
from PIL import Image
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, random_split
from torchvision import transforms
from torchvision.datasets import ImageFolder

from lightning_diffal import DiffusionActiveLearning
from tests.plugin.toy_model import quiet

# 1. An image folder with transforms and random_split, and a small convolutional network


class FolderData(L.LightningDataModule):
    def __init__(self, root, batch_size=8):
        super().__init__()
        self.save_hyperparameters()
        self.augment = transforms.Compose(
            [transforms.RandomHorizontalFlip(), transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.5] * 3)]
        )

    def setup(self, stage=None):
        full = ImageFolder(self.hparams.root, transform=self.augment)
        self.train, self.val = random_split(full, [0.8, 0.2])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=self.hparams.batch_size)


class ConvNet(L.LightningModule):
    def __init__(self, num_classes):
        super().__init__()
        self.save_hyperparameters()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.classifier = nn.Linear(32, num_classes)
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=num_classes)

    def forward(self, x):
        return self.classifier(self.features(x))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        assert len(images) > 1
        return cross_entropy(self(images), labels)

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        self.accuracy(self(images), labels)
        self.log("val/acc", self.accuracy, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 3e-3)


@pytest.mark.filterwarnings("ignore:.*gives other items each time")
def test_an_image_folder_with_transforms_and_random_split(tmp_path):
    generator = torch.Generator().manual_seed(0)
    for kind, color in {"blue": (40, 40, 200), "green": (40, 200, 40), "red": (200, 40, 40)}.items():
        (tmp_path / "images" / kind).mkdir(parents=True)
        for number in range(30):
            noise = torch.randint(-40, 41, (12, 12, 3), generator=generator)
            pixels = (torch.tensor(color) + noise).clamp(0, 255).to(torch.uint8)
            Image.fromarray(pixels.numpy()).save(tmp_path / "images" / kind / f"{number}.png")
    active = DiffusionActiveLearning(query_size=6, budget=21)
    trainer = quiet(tmp_path, active, max_epochs=8)
    history = active.fit(trainer, ConvNet(3), datamodule=FolderData(tmp_path / "images"))
    assert history.labels == [6, 12, 18, 21]
    assert history.main_metric() == "val/acc"
    assert history.metric()[-1] > 0.8
    names = {index: active.state.dataset.dataset.samples[active.state.dataset.indices[index]][0] for index in range(72)}
    for record in active.state.ledger.records:
        for index, label in zip(record.indices, record.labels, strict=True):
            assert ["blue", "green", "red"][label] in names[index]


# 2. Dictionaries, a collate function that pads, and a module that wants them by name


class Sentences(Dataset):
    def __init__(self, n=90):
        generator = torch.Generator().manual_seed(0)
        self.rows = []
        for number in range(n):
            label = number % 3
            length = int(torch.randint(3, 9, (1,), generator=generator))
            tokens = torch.randint(1, 6, (length,), generator=generator) + 6 * label
            self.rows.append({"tokens": tokens.tolist(), "label": label, "id": f"row-{number}"})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def pad(rows):
    longest = max(len(row["tokens"]) for row in rows)
    return {
        "input_ids": torch.tensor([row["tokens"] + [0] * (longest - len(row["tokens"])) for row in rows]),
        "attention_mask": torch.tensor([[1] * len(r["tokens"]) + [0] * (longest - len(r["tokens"])) for r in rows]),
        "labels": torch.tensor([row["label"] for row in rows]),
        "ids": [row["id"] for row in rows],
    }


class TextData(L.LightningDataModule):
    def prepare_data(self):
        pass

    def setup(self, stage):
        if stage == "fit":
            self.train, self.val = Sentences(), Sentences(30)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=4, shuffle=True, collate_fn=pad, num_workers=0)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=10, collate_fn=pad)


class Bag(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8, padding_idx=0)
        self.mix = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1))
        self.out = nn.Linear(16, 3)

    def forward(self, input_ids, attention_mask, labels=None):
        mean = (self.words(input_ids) * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)
        logits = self.out(self.mix(mean))
        return {"logits": logits, "loss": None if labels is None else cross_entropy(logits, labels)}

    def training_step(self, batch, batch_idx):
        batch.pop("ids")
        return self(**batch)["loss"]

    def validation_step(self, batch, batch_idx):
        batch.pop("ids")
        said = self(**batch)["logits"].argmax(1)
        self.log("val_accuracy", (said == batch["labels"]).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.02)


def test_dictionaries_with_a_custom_collate(tmp_path):
    active = DiffusionActiveLearning(query_size=6, budget=24, initial=6, layer="mix")
    trainer = quiet(tmp_path, active, max_epochs=15)
    history = active.fit(trainer, Bag(), datamodule=TextData())
    assert history.labels == [6, 12, 18, 24]
    assert history.metric()[-1] > 0.8


# 3. A table with BatchNorm, and counts that leave a batch of one


class TableData(L.LightningDataModule):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.features = torch.randn(200, 6, generator=generator)
        self.classes = (self.features[:, 0] + self.features[:, 1] > 0).long()

    def train_dataloader(self):
        dataset = torch.utils.data.TensorDataset(self.features[:160], self.classes[:160])
        return DataLoader(dataset, 16, True, generator=torch.Generator().manual_seed(3))

    def val_dataloader(self):
        return DataLoader(torch.utils.data.TensorDataset(self.features[160:], self.classes[160:]), 16)


class TableNet(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.hidden = nn.Linear(6, 12)
        self.norm2 = nn.BatchNorm1d(12)
        self.logit = nn.Linear(12, 1)
        self.automatic_optimization = False
        self.seen = []

    def forward(self, x):
        return self.logit(torch.relu(self.norm2(self.hidden(self.norm(x))))).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        self.seen.append(len(x))
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(nn.functional.binary_cross_entropy_with_logits(self(x), y.float()))
        optimizer.step()

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log_dict({"val_acc": ((self(x) > 0) == y).float().mean()})

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)


def test_a_table_with_batch_norm_and_a_batch_of_one(tmp_path):
    active, model = DiffusionActiveLearning(query_size=16, budget=65, initial=17), TableNet()
    trainer = quiet(tmp_path, active, max_epochs=10)
    history = active.fit(trainer, model, datamodule=TableData())
    assert history.labels == [17, 33, 49, 65]
    assert min(model.seen) > 1
    assert max(model.seen) == 17
    assert history.metric()[-1] > 0.8
