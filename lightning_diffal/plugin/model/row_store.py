"""Blocks of rows that are kept: in memory up to a limit, in a file beyond it."""

import tempfile
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor


class RowStore:
    """Tensors that are kept one after another.

    Args:
        memory: Bytes that may be kept in memory.
        folder: Where the others go, in a file without a name that is gone with the process. None keeps all in memory.
    """

    def __init__(self, memory: int, folder: Path | None) -> None:
        self.memory, self.folder = memory, folder
        self.blocks: list[Tensor] = []
        self.in_memory = self.in_file = 0
        self.file: IO[bytes] | None = None

    def append(self, rows: Tensor) -> int:
        """Keep a copy; its place among the blocks. OSError where the disk is full."""
        block = rows.detach().to("cpu", copy=True).contiguous()
        size = block.numel() * block.element_size()
        if self.folder is not None and self.in_memory + size > self.memory:
            block = self.to_file(block, size)
        else:
            self.in_memory += size
        self.blocks.append(block)
        return len(self.blocks) - 1

    def to_file(self, block: Tensor, size: int) -> Tensor:
        if self.file is None:
            self.file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115, open as long as the store
        # Written, not mapped: a full disk is an error then, and not the end of the process.
        self.file.seek(self.in_file)
        self.file.write(block.flatten().view(torch.uint8).numpy().data)
        self.file.flush()
        mapped = np.memmap(self.file, np.uint8, "c", offset=self.in_file, shape=(size,))
        self.in_file += size
        return torch.from_numpy(mapped).view(block.dtype).view(block.shape)

    def clear(self) -> None:
        self.blocks, self.in_memory, self.in_file = [], 0, 0
        if self.file is not None:
            self.file.close()
            self.file = None
