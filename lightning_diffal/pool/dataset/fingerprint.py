"""Whether two datasets are the same, and whether a dataset gives the same item twice."""

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from lightning_diffal.pool.dataset.content import entries, shape_of, to_bytes
from lightning_diffal.pool.dataset.items import BY_FORMAT, LabelField, MapStyle
from lightning_diffal.pool.dataset.raw_data import read_raw_data
from lightning_diffal.pool.randomness import temporary_seed

# Items that are compared, evenly spread over the dataset.
SAMPLES = 8
# Readings of them before a dataset that looks changed is called deterministic.
READINGS = 32
# Entries of an item of which any may change too rarely to be seen.
MAX_RARELY_CHANGING = 8


@dataclass(frozen=True)
class Fingerprint:
    """A short hash of a dataset: of what a model may see of a few of its items; labels are no part of it.

    Items are read under a fixed seed, so augmentation by torch, NumPy or random does not change it. Where items change
    all the same, by a generator of their own, the raw data under them (paths, arrays, an inner dataset) is hashed
    instead, else the entries of an item that do not change.
    """

    size: int
    items: str | None
    """Of the items, None if they change from one reading to the next."""
    raw: str | None
    """Of the raw data, None if the dataset shows none."""
    stable: str | None = None
    """Of the entries that do not change, where there is nothing else to go by."""

    def __str__(self) -> str:
        if self.items is not None:
            return f"{self.size}-{self.items}"
        return f"{self.size}-raw-{self.raw}" if self.raw is not None else f"{self.size}-stable-{self.stable}"

    def differs_from(self, other: "Fingerprint") -> bool:
        """Whether the two are certainly of different datasets."""
        if self.raw is not None and other.raw is not None:
            return (self.size, self.raw) != (other.size, other.raw)
        if self.items is not None and other.items is not None:
            return (self.size, self.items) != (other.size, other.items)
        return self.size != other.size


def take_fingerprint(dataset: MapStyle, size: int, label_field: LabelField = BY_FORMAT) -> Fingerprint:
    with temporary_seed(0):
        indices = sample_indices(size)
        before = read_raw_data(dataset, indices, label_field)
        readings = [read_items(dataset, size, label_field) for _ in range(2)]
        after = read_raw_data(dataset, indices, label_field)
        raw = [content for name, content in before.items() if after.get(name) == content]  # no caches, no counters
        contents = [[to_bytes(item) for item in items] for items in readings]
        items = hash_of(size, contents[0]) if contents[0] == contents[1] else None
        if items is None and not raw:
            return Fingerprint(size, None, None, next(stable_hashes(dataset, size, label_field, readings)))
        return Fingerprint(size, items, hash_of(size, raw) if raw else None)


def size_of(fingerprint: str) -> int | None:
    """The number of points in a fingerprint, None if it is not one."""
    size = fingerprint.partition("-")[0]
    return int(size) if size.isdecimal() and len(size) < 20 else None


def match_fingerprint(found: Fingerprint, recorded: str, dataset: MapStyle, label_field: LabelField) -> str:
    """The recorded fingerprint if it may be of this dataset, else the one found."""
    size, _, rest = recorded.partition("-")
    if recorded == f"{found.size}-raw-{found.raw}":
        return recorded
    if recorded == str(found) or size != str(found.size) or rest.startswith("raw-"):
        return str(found)
    if rest.startswith("stable-"):
        hashes = stable_hashes(dataset, found.size, label_field)
        return recorded if rest.removeprefix("stable-") in hashes else str(found)
    if found.items is not None:
        first = read_contents(dataset, found.size, label_field)
        if all(read_contents(dataset, found.size, label_field) == first for _ in range(READINGS)):
            return str(found)
    # Items that change now and then looked stable when the run began.
    warnings.warn(
        "The dataset gives other items each time, but gave the same ones when this run began. Whether it is the same "
        "dataset cannot be checked. With its paths or arrays in an attribute as long as the dataset it could be.",
        stacklevel=2,
    )
    return recorded


def is_random(dataset: MapStyle, size: int, label_field: LabelField = BY_FORMAT) -> bool:
    """Whether an item changes when it is asked for again."""
    return read_contents(dataset, size, label_field, seed=1, samples=4) != read_contents(
        dataset, size, label_field, seed=2, samples=4
    )


def read_contents(
    dataset: MapStyle, size: int, label_field: LabelField, seed: int = 0, samples: int = SAMPLES
) -> list[bytes]:
    return [to_bytes(item) for item in read_items(dataset, size, label_field, seed, samples)]


def read_items(
    dataset: MapStyle, size: int, label_field: LabelField, seed: int = 0, samples: int = SAMPLES
) -> list[Any]:
    """Some items without their labels, under a fixed seed."""
    with temporary_seed(seed):
        return [label_field.remove(dataset[index]) for index in sample_indices(size)[:samples]]


def stable_hashes(
    dataset: MapStyle, size: int, label_field: LabelField, before: Sequence[list[Any]] = ()
) -> Iterator[str]:
    """Hashes of the entries of the items that do not change, and of what is constant of the others' shapes.

    The first is by the entries that change in a few readings. An entry that changes rarely may be missed in them, and
    may have been seen to change in another process: so the others take further entries, any of them, as changing.

    Args:
        before: Readings of the items that were made already.
    """
    readings = [[entries(item) for item in items] for items in before]
    changing: set[str] = set()
    while len(readings) < 4 or (not changing and len(readings) < READINGS):
        readings.append([entries(item) for item in read_items(dataset, size, label_field)])
        changing |= {
            key
            for reading in readings
            for sample, first in zip(reading, readings[0], strict=True)
            for key in first
            if to_bytes(sample.get(key)) != to_bytes(first[key])
        }
    unchanged = sorted({key for sample in readings[0] for key in sample} - changing)[:MAX_RARELY_CHANGING]
    for count in range(len(unchanged) + 1):
        for rarely in combinations(unchanged, count):
            yield hash_of(size, stable_content(readings, changing.union(rarely)))


def stable_content(readings: list[list[dict[str, Any]]], changing: set[str]) -> list[bytes]:
    parts = []
    for number, sample in enumerate(readings[0]):
        for key, value in sorted(sample.items()):
            shape = shape_of(value)
            if key not in changing:
                parts.append(key.encode() + to_bytes(value))
            elif all(key in reading[number] and shape_of(reading[number][key]) == shape for reading in readings):
                parts.append(f"{key} {shape}".encode())
    return parts


def hash_of(size: int, parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256(str(size).encode())
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def sample_indices(size: int) -> list[int]:
    return sorted({sample * (size - 1) // (SAMPLES - 1) for sample in range(SAMPLES)})


def length_of(dataset: MapStyle) -> int | None:
    """How many points a dataset has, None if it has no length."""
    try:
        return len(dataset) if isinstance(dataset, Sized) else None
    except (TypeError, NotImplementedError):
        return None
