import pytest
import torch
import torchvision

from lightning_diffal.studies import vgg_features
from tests.studies.small_studies import write_npz, write_vgg

MEAN, STD = ([[[value]] for value in values] for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


@pytest.fixture
def folder(tmp_path):
    write_npz(tmp_path, "images", n=12, shape=(32, 32, 3))
    vgg_features.load_features.cache_clear()
    return tmp_path


def test_features_are_those_of_torchvisions_vgg16(folder):
    weights = write_vgg(folder)
    images = torch.tensor(write_npz(folder, "images", n=12, shape=(32, 32, 3))["x_test"]).permute(0, 3, 1, 2) / 255
    with torch.device("meta"):
        theirs = torchvision.models.vgg16(weights=None).features
    theirs.load_state_dict({name.removeprefix("features."): value for name, value in weights.items()}, assign=True)
    with torch.no_grad():
        expected = theirs((images - torch.tensor(MEAN)) / torch.tensor(STD)).flatten(1)
    found = vgg_features.load_features("images", folder)
    assert found.train.x.shape == (12, 512)
    torch.testing.assert_close(found.test.x, expected)


def test_they_are_computed_once_for_the_same_weights_and_data(folder, monkeypatch):
    write_vgg(folder)
    first = vgg_features.load_features("images", folder)
    vgg_features.load_features.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(vgg_features, "compute", None)
        again = vgg_features.load_features("images", folder)
    assert torch.equal(first.train.x, again.train.x)
    assert first.digest == again.digest


def test_other_weights_and_other_data_are_not_taken_from_the_cache(folder):
    write_vgg(folder)
    first = vgg_features.load_features("images", folder)
    write_vgg(folder, seed=1)
    vgg_features.load_features.cache_clear()
    weights_changed = vgg_features.load_features("images", folder)
    write_npz(folder, "images", n=12, shape=(32, 32, 3), seed=1)
    vgg_features.load_features.cache_clear()
    data_changed = vgg_features.load_features("images", folder)
    assert len({first.digest, weights_changed.digest, data_changed.digest}) == 3
    assert not torch.allclose(first.train.x, weights_changed.train.x)
    assert len(list((folder / "features").iterdir())) == 3, "and no temporary file is left"


def test_wrong_weights_are_refused_by_the_name_of_their_file(folder):
    (folder / vgg_features.WEIGHTS).write_bytes(b"these are no weights")
    with pytest.raises(ValueError, match=r"vgg16_features\.safetensors"):
        vgg_features.load_features("images", folder)


def test_small_images_are_refused_before_anything_is_computed(folder):
    write_vgg(folder)
    write_npz(folder, "small", shape=(28, 28))
    with pytest.raises(ValueError, match=r"\(1, 28, 28\).*at least 32 × 32"):
        vgg_features.load_features("small", folder)
