import numpy as np
import pytest
import torch

from lightning_diffal.studies.components import load_components
from lightning_diffal.studies.data import board_coordinates, checkerboard, class_sizes, draw_pool, load
from tests.studies.small_studies import write_npz


def test_images_of_every_layout_become_channels_first_from_0_to_1(tmp_path):
    gray = write_npz(tmp_path, "gray", shape=(5, 4))["x_train"]
    assert torch.equal(load("gray", tmp_path).train.x, torch.tensor(gray / 255, dtype=torch.float32)[:, None])
    color = write_npz(tmp_path, "color", shape=(5, 4, 3))["x_test"]
    assert torch.equal(load("color", tmp_path).test.x[7, 2], torch.tensor(color[7, :, :, 2] / 255).float())


def test_numbers_that_are_no_bytes_are_left_as_they_are(tmp_path):
    given = {f"x_{part}": np.random.default_rng(0).normal(size=(20, 3)) for part in ("train", "test")}
    write_npz(tmp_path, "rows", n=20, **given)
    assert torch.equal(load("rows", tmp_path).train.x, torch.tensor(given["x_train"]).float())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y_test": None}, "no y_test"),
        ({"y_train": np.zeros(59, int)}, "y_train.*60 points"),
        ({"y_train": np.zeros(60)}, "y_train is float64"),
        ({"y_train": np.full(60, -1)}, "y_train"),
        ({"y_test": np.full(20, 7)}, "3 classes, and the largest of y_test is 7"),
        ({"x_test": np.zeros((20, 5))}, r"points of x_test are \(5,\), of x_train \(6,\)"),
        ({"x_train": np.full((60, 6), np.nan)}, "x_train holds NaN"),
        ({"x_train": np.zeros(60)}, r"x_train is float64 of shape \(60,\)"),
        ({"x_train": np.array(["one"] * 60)[:, None]}, "x_train is <U3"),
    ],
)
def test_a_wrong_file_is_refused_by_its_name_and_the_array(tmp_path, changes, words):
    write_npz(tmp_path, "wrong", **changes)
    with pytest.raises(ValueError, match=rf"wrong\.npz: .*{words}"):
        load("wrong", tmp_path)


def test_what_is_no_npz_is_refused_by_its_name(tmp_path):
    (tmp_path / "text.npz").write_text("these are no arrays")
    with pytest.raises(ValueError, match=r"text\.npz.*x_train, y_train"):
        load("text", tmp_path)


def test_data_that_is_not_there_names_what_is(tmp_path):
    write_npz(tmp_path, "digits")
    with pytest.raises(ValueError, match=r"--dataset letters.*there is digits; torchvision downloads mnist"):
        load("letters", tmp_path)


def test_digits_are_scikit_learns_and_split_without_overlap(tmp_path):
    from sklearn.datasets import load_digits

    source = load("digits", tmp_path)
    assert (len(source.train), len(source.test)) == (1297, 500)
    rows = torch.cat([source.train.x, source.test.x]).mul(16).round().tolist()
    labels = torch.cat([source.train.targets, source.test.targets]).tolist()
    x, y = load_digits(return_X_y=True)
    assert sorted(zip(rows, labels, strict=True)) == sorted(zip(x.tolist(), y.tolist(), strict=True))
    assert load("digits", tmp_path).digest == source.digest


def test_without_a_file_torchvision_downloads_and_gives_the_same_points(tmp_path, monkeypatch):
    import torchvision

    arrays = write_npz(tmp_path, "svhn", shape=(4, 4, 3))
    from_file = load("svhn", tmp_path)

    class SVHN:
        def __init__(self, root, split, download):
            self.data, self.labels = arrays[f"x_{split}"].transpose(0, 3, 1, 2), arrays[f"y_{split}"]

    monkeypatch.setattr(torchvision.datasets, "SVHN", SVHN)
    (tmp_path / "elsewhere").mkdir()
    downloaded = load("svhn", tmp_path / "elsewhere")
    assert torch.equal(downloaded.train.x, from_file.train.x)
    assert torch.equal(downloaded.test.targets, from_file.test.targets)
    assert downloaded.digest == from_file.digest


def test_a_download_that_fails_says_so_and_names_the_file(tmp_path, monkeypatch):
    import torchvision

    def fail(*_, **__):
        raise RuntimeError("no network")

    monkeypatch.setattr(torchvision.datasets, "MNIST", fail)
    with pytest.raises(ValueError, match=r"--dataset mnist: there is no .*mnist\.npz.*no network"):
        load("mnist", tmp_path)


def test_other_bytes_are_other_data(tmp_path):
    write_npz(tmp_path, "a")
    write_npz(tmp_path, "b", y_test=(np.arange(20) + 1) % 3)
    write_npz(tmp_path, "c")
    a, b, c = (load(name, tmp_path).digest for name in "abc")
    assert a == c != b


def test_a_pool_has_as_many_of_each_class_and_depends_on_the_seed_alone(tmp_path):
    write_npz(tmp_path, "digits", n=90)
    source = load("digits", tmp_path)
    pools = [draw_pool(source, 32, seed) for seed in (0, 0, 1)]
    assert pools[0].targets.bincount().tolist() == [11, 11, 10]
    assert torch.equal(pools[0].x, pools[1].x)
    assert not torch.equal(pools[0].x, pools[2].x)
    rows = {tuple(row) for row in source.train.x.tolist()}
    assert len({tuple(row) for row in pools[0].x.tolist()} & rows) == 32, "points of the training set, none twice"
    assert draw_pool(source, 90, 0) is source.train


def test_a_pool_that_cannot_be_drawn_says_what_would_do(tmp_path):
    write_npz(tmp_path, "few", y_train=np.array([0, 1, 2] + [0] * 57))
    source = load("few", tmp_path)
    with pytest.raises(ValueError, match=r"--pool 70: few has 60 training points"):
        draw_pool(source, 70, 0)
    with pytest.raises(ValueError, match=r"--pool 30: .* 10 points of class 1, and few has 1"):
        draw_pool(source, 30, 0)


def test_a_long_tailed_pool_falls_from_a_thousand_points_to_ten(tmp_path):
    sizes = class_sizes(2_482, 10, 100)
    assert sizes == pytest.approx([1000 * 0.01 ** (label / 9) for label in range(10)], abs=1)
    assert (sizes[0], sizes[9], sum(sizes)) == (1_000, 10, 2_482)
    assert class_sizes(7, 3, None) == [3, 2, 2]
    write_npz(tmp_path, "tail", n=90)
    source = load("tail", tmp_path)
    assert draw_pool(source, 35, 0, imbalance=4).targets.bincount().tolist() == [20, 10, 5]
    with pytest.raises(ValueError, match=r"--pool 90: a long-tailed pool needs 51 points of class 0, and tail has 30"):
        draw_pool(source, 90, 0, imbalance=4)


def test_components_are_those_of_scikit_learn_with_one_scale_for_all(tmp_path):
    from sklearn.decomposition import PCA

    chance = np.random.default_rng(1)
    parts = {f"x_{part}": chance.normal(size=(count, 12)) @ np.diag(2.0 ** -np.arange(12)) + 3
             for part, count in {"train": 60, "test": 20}.items()}  # fmt: skip
    write_npz(tmp_path, "rows", **parts)
    source = load_components("rows", tmp_path, 4)
    theirs = PCA(4).fit(parts["x_train"])
    train, test = (theirs.transform(parts[f"x_{part}"]) for part in ("train", "test"))
    for ours, expected in ((source.train.x, train), (source.test.x, test)):
        signs = np.sign((source.train.x.numpy() * train).sum(0))
        np.testing.assert_allclose(ours.numpy() * signs, expected / train.std(ddof=1), rtol=1e-4, atol=1e-4)
    assert source.digest == load("rows", tmp_path).digest


def test_neighboring_squares_of_the_board_have_other_colors():
    points = checkerboard(4_000, 4, 0)
    places = board_coordinates(points.x, 4)
    assert 0 <= float(places.min()) < 0.01
    assert 0.99 < float(places.max()) <= 1
    rows, columns = (np.floor(4 * places.numpy()[:, axis]).astype(int) for axis in (0, 1))
    board = {(row, column): set(points.targets.numpy()[(rows == row) & (columns == column)])
             for row in range(4) for column in range(4)}  # fmt: skip
    assert all(len(colors) == 1 for colors in board.values())
    assert all(board[row, column] != board[row, column + 1] for row in range(4) for column in range(3))
    assert all(board[row, column] != board[row + 1, column] for row in range(3) for column in range(4))
    assert float(points.x.mean()) == pytest.approx(0, abs=0.1)
