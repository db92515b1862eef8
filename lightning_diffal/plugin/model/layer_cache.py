"""The output of a frozen layer, kept from round to round: later passes over the pool run only what comes behind it."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor, nn

from lightning_diffal.plugin.features.fingerprint import update
from lightning_diffal.plugin.memory import available_memory
from lightning_diffal.plugin.model.input_checksum import input_checksums
from lightning_diffal.plugin.model.layer_hook import find_layer
from lightning_diffal.plugin.model.row_store import RowStore
from lightning_diffal.pool.dataset.classes import describe

# Of the memory that is free when the cache is begun; what is beyond goes to the run's folder.
MEMORY_SHARE: Final = 0.25
# Where the system does not say how much is free.
DEFAULT_MEMORY: Final = 2**32


class LayerCache:
    """Rows of a layer's output by index of the dataset, each with a checksum of the input it was computed from.

    Nothing stale is ever returned: at the start of a pass the weights and buffers of the layer are compared with those
    the rows were computed with, and each row's input with the one it came from. What differs is computed again.

    Args:
        name: The dotted name of the layer.
        size: Points of the dataset.
        folder: For what does not fit into memory; None keeps all in memory.
        check_random: Run the layer twice on the first batch, and refuse it if the results differ.
    """

    def __init__(
        self, name: str, size: int, folder: Path | None, memory: int | None = None, check_random: bool = False
    ) -> None:
        self.name, self.check_random = name, check_random
        free = available_memory()
        default = DEFAULT_MEMORY if free is None else int(MEMORY_SHARE * free)
        self.store = RowStore(default if memory is None else memory, folder)
        self.block = torch.full((size,), -1, dtype=torch.int32)
        self.row = torch.empty(size, dtype=torch.int32)
        self.checksum = torch.empty(size, dtype=torch.int64)
        self.key: dict[str, str] = {}
        self.full = False

    @property
    def where(self) -> str:
        return f"cache_layer={self.name!r}"

    def known(self, indices: Sequence[int]) -> Tensor:
        """Which points have a row."""
        return self.block[torch.tensor(indices)] >= 0

    def known_first(self, indices: Sequence[int]) -> Tensor | None:
        """An order of these points in which those with a row come first; None if all have one, or none has.

        A batch is run whole if one of its points has no row, so that those with and without are best kept apart.
        """
        known = self.known(indices)
        return None if bool(known.all()) or not bool(known.any()) else known.int().argsort(descending=True, stable=True)

    @contextmanager
    def attach(self, module: nn.Module, precision: str, indices: Sequence[int]) -> Iterator["CachedPass"]:
        """For one pass over these points, stand in for the layer's forward; afterwards it is what it was."""
        layer = find_cached_layer(module, self.name)
        self.compare_weights({"precision": precision, **hashes_of(layer)})
        known, before = int(self.known(indices).sum()), vars(layer).get("forward")
        served = CachedPass(self, layer.forward, torch.tensor(indices))
        layer.forward = served.forward  # instance attribute: hooks of the layer still run around it
        try:
            yield served
        finally:
            vars(layer).pop("forward", None)
            if before is not None:
                layer.forward = before
        if known == 0 and self.store.blocks and self.store.folder is not None:
            mib = [size / 2**20 for size in (self.store.in_memory, self.store.in_file)]
            rank_zero_info(
                f"{self.where}: the output of {int((self.block >= 0).sum())} points is kept, {mib[0]:,.0f} MiB in "
                f"memory and {mib[1]:,.0f} MiB in the folder of the run."
            )

    def compare_weights(self, key: dict[str, str]) -> None:
        """Forget everything if the layer is not the one that the rows are of."""
        changed = [name for name in {**self.key, **key} if self.key.get(name) != key.get(name)]
        if self.key and changed:
            statistics = any("running_" in name or "num_batches" in name for name in changed)
            self.forget(
                f"{', '.join(changed[:3])}{f' and {len(changed) - 3} more' * (len(changed) > 3)} of the layer changed "
                "since its output was kept"
                + (
                    ": BatchNorm in training mode changes its statistics even where its weights are frozen. "
                    "self.backbone.eval() in on_train_epoch_start, or in the module's train(), keeps them"
                )
                * statistics
            )
        self.key = key

    def forget(self, why: str) -> None:
        if bool((self.block >= 0).any()):
            rank_zero_warn(f"{self.where}: {why}. The whole layer is run again for all points.")
        self.store.clear()
        self.block.fill_(-1)

    def find(self, index: Tensor, checksum: Tensor) -> Tensor | None:
        """The rows of these points, a copy; None if some are not there or were computed from other inputs."""
        block, row = self.block[index], self.row[index]
        known = block >= 0
        other = known & (self.checksum[index] != checksum)
        if bool(other.any()):
            self.forget(
                f"the input of the layer changed for point {int(index[other][0])} since its output was kept, as where "
                "items are augmented at random, batches are padded, or a layer before it is trained"
            )
            return None
        if not bool(known.all()):
            return None
        whole = self.store.blocks[int(block[0])]
        if bool((block == block[0]).all()):
            in_order = len(whole) == len(index) and bool((row == torch.arange(len(row))).all())
            return whole.clone() if in_order else whole[row.long()]  # never the block itself: it may be written to
        rows = [self.store.blocks[place][number] for place, number in zip(block.tolist(), row.tolist(), strict=True)]
        return torch.stack(rows) if len({one.shape for one in rows}) == 1 else None

    def keep(self, index: Tensor, checksum: Tensor, output: Tensor) -> None:
        if self.full:
            return
        try:
            self.block[index] = self.store.append(output)
        except OSError as error:
            self.full = True
            self.forget(f"it cannot be kept in the folder of the run ({error})")
            return
        self.row[index] = torch.arange(len(index), dtype=torch.int32)
        self.checksum[index] = checksum


class CachedPass:
    """What stands in for a layer's forward while the pool is embedded.

    Args:
        layer_forward: The layer's own.
        indices: Of the points, in the order of the pass.
    """

    def __init__(self, cache: LayerCache, layer_forward: Any, indices: Tensor) -> None:
        self.cache, self.layer_forward, self.indices = cache, layer_forward, indices
        self.index = indices[:0]
        self.first_checksum: Tensor | None = None

    def begin_batch(self, start: int, count: int) -> None:
        self.index, self.first_checksum = self.indices[start : start + count], None

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        cache, rows = self.cache, len(self.index)
        on_device = input_checksums((inputs, keywords), rows, cache.where)
        checksum = on_device.cpu()
        if self.first_checksum is not None and not torch.equal(checksum, self.first_checksum):
            raise MisconfigurationException(
                f"{cache.where}: one forward pass calls it several times with different inputs, as for two views of a "
                "point or behind dropout, so that there is no one output to keep. Name a layer that is called once."
            )
        self.first_checksum = checksum
        found = cache.find(self.index, checksum)
        if found is not None:
            return found.to(on_device.device)
        output = self.layer_forward(*inputs, **keywords)
        if not isinstance(output, Tensor) or output.ndim == 0 or len(output) != rows:
            raise MisconfigurationException(
                f"{cache.where}: the layer gave {describe(output)} for a batch of {rows} points. A tensor of one row "
                f"for each point, ({rows}, ...), is needed: name a layer inside it, or one behind it."
            )
        if cache.check_random:
            cache.check_random = False
            check_same_again(cache.where, output, self.layer_forward(*inputs, **keywords))
        cache.keep(self.index, checksum, output)
        return output


def check_same_again(where: str, output: Tensor, again: Tensor) -> None:
    if not torch.allclose(output.float(), again.float(), rtol=1e-3, atol=1e-5, equal_nan=True):
        raise MisconfigurationException(
            f"{where}: run twice on one batch in eval mode it gave different results, as layers that augment at random "
            "do. Only what is always the same can be kept."
        )


def find_cached_layer(module: nn.Module, name: str) -> nn.Module:
    """The layer itself, where torch.compile has wrapped it."""
    layer = find_layer(module, name, "cache_layer")
    return getattr(layer, "_orig_mod", layer)


def hashes_of(layer: nn.Module) -> Mapping[str, str]:
    """What a layer's output depends on besides its input: its structure, parameters, buffers and other tensors."""
    parts: dict[str, Tensor] = dict(layer.named_parameters(remove_duplicate=False))
    parts |= dict(layer.named_buffers(remove_duplicate=False))
    for name, child in layer.named_modules():
        parts |= {f"{name}.{key}": value for key, value in vars(child).items() if isinstance(value, Tensor)}
    hashes = {"structure": hashlib.sha256(repr(layer).encode()).hexdigest()}
    for name, part in parts.items():
        digest = hashlib.sha256()
        update(digest, part, 0)
        hashes[name] = digest.hexdigest()
    return hashes
