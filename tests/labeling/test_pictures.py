"""What people see of an item: its file, its text, or a PNG of its numbers."""

import io
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

from lightning_diffal import People
from lightning_diffal.labeling.pictures import as_png, item_path
from lightning_diffal.pool.dataset.items import LabelField

FIELD = LabelField(add=True)


def shown(tmp_path, dataset, index=0, **options):
    return People(["a", "b"], **options).show(tmp_path, "query_000", dataset, index, FIELD)


def decoded(png):
    return np.asarray(Image.open(io.BytesIO(png)))


@pytest.mark.parametrize(
    ("value", "pixels"),
    [
        (torch.tensor([[0.0, 1.0], [0.5, 0.25]]), [[0, 255], [128, 64]]),
        (torch.tensor([[-1.0, 1.0], [0.0, 0.0]]), [[0, 255], [128, 128]]),
        (torch.tensor([[[0, 255], [7, 8]]], dtype=torch.uint8), [[0, 255], [7, 8]]),
        (np.array([[0, 200]], dtype=np.int32), [[0, 200]]),
        (torch.full((2, 2), float("nan")), [[0, 0], [0, 0]]),
    ],
)
def test_numbers_become_the_pixels_that_another_library_decodes(value, pixels):
    assert decoded(as_png(value)).tolist() == pixels


def test_colors_are_kept_in_either_order_of_axes():
    picture = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    for value in (picture, torch.from_numpy(picture).permute(2, 0, 1), Image.fromarray(picture)):
        assert np.array_equal(decoded(as_png(value)), picture)


@dataclass
class Files:
    samples: list

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return torch.zeros(1, 4, 4), 0


def test_the_path_of_an_item_is_found_through_subsets_and_in_pairs(tmp_path):
    paths = [tmp_path / f"{number}.png" for number in range(4)]
    for path in paths:
        path.write_bytes(as_png(torch.zeros(2, 2)))
    files = Files([(str(path), 0) for path in paths])
    assert item_path(ConcatDataset([Subset(files, [3, 1]), files]), 1) == paths[1]
    assert shown(tmp_path, files, 2).path == str(paths[2])
    assert item_path(Files([("gone.png", 0)]), 0) is None


def test_items_without_a_file_are_text_or_rendered(tmp_path):
    assert shown(tmp_path, [("a text", 1)]).text == "a text"
    assert shown(tmp_path, [{"text": "another", "id": 7}]).text == "another"
    assert shown(tmp_path, [(torch.tensor([0.25, 3.0]), 1)]).text == "[0.25 3.  ]"
    item = shown(tmp_path, [(torch.ones(1, 4, 4), 1)])
    assert (item.path, decoded(item.file(tmp_path).read_bytes()).shape) == ("query_000/0.png", (4, 4))
    assert shown(tmp_path, [(torch.zeros(9), 1)], render=lambda item: item[0].view(3, 3)).path == "query_000/0.png"
    with pytest.raises(ValueError, match=r"People\(render=...\): it gave int 5"):
        shown(tmp_path, [(torch.zeros(9), 1)], render=lambda item: 5)


@pytest.mark.parametrize(
    ("where", "item", "labeled"),
    [
        (None, torch.zeros(2), (torch.zeros(2), 1)),
        (None, {"x": 0.5, "id": 7}, {"x": 0.5, "id": 7, "label": 1}),
        ("kind", {"x": 0.5}, {"x": 0.5, "kind": 1}),
        (None, {"x": 0.5, "target": 0}, {"x": 0.5, "target": 1}),
        (None, (0.5, 0), (0.5, 1)),
        (2, (0.5, 7), (0.5, 7, 1)),
        ("y", Files([]), 1),
    ],
)
def test_a_label_is_put_where_the_batch_expects_it(where, item, labeled):
    got = LabelField(where, add=True).replace(item, 1)
    if isinstance(item, Files):
        assert (got.y, hasattr(item, "y")) == (labeled, False)
    elif isinstance(item, torch.Tensor):
        assert got[1] == 1
        assert got[0] is item
    else:
        assert got == labeled
