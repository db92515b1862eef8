"""A number for each point of a batch, by which a layer's input is known again."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from jaxtyping import Int
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_diffal.pool.dataset.classes import describe

# Numbers that are multiplied at a time: their 64-bit copies are a few times as large as a batch.
NUMBERS: Final = 2**22
INTEGERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int32, 16: torch.int32}


def input_checksums(inputs: Any, rows: int, where: str) -> Int[Tensor, " rows"]:
    """Of each point: Σ_j a_j b_j mod 2⁶⁴, b the bits of its input as integers and a random odd numbers.

    Inputs that differ have the same sum with a probability of at most 2⁻⁴⁰: 2⁻⁶³, times 2 for each zero at the end of
    the bits of all differences, of which float32 has up to 23. Shapes and types, and what the points of a batch share,
    as flags and masks, are part of it.

    Args:
        inputs: The arguments of a call: tensors, numbers, strings, and tuples, lists and dictionaries of them.
        where: Begins the message about what cannot be compared.

    Cost: one multiplication for each four bytes.
    """
    parts = list(leaves(inputs, "", where))
    of_points = [(name, part) for name, part in parts if isinstance(part, Tensor) and has_rows(part, rows)]
    if not of_points:
        given = ", ".join(describe(part) for _, part in parts) or "nothing"
        raise MisconfigurationException(
            f"{where}: it is called with {given} for a batch of {rows} points. A tensor of one row for each point is "
            "needed among its inputs, by which rows are known again."
        )
    total = torch.zeros(rows, dtype=torch.int64, device=of_points[0][1].device)
    for name, part in parts:
        if not isinstance(part, Tensor):
            total += number_of(f"{name} {part!r}")
        elif has_rows(part, rows):
            total += weighted_bits(part, name).to(total.device) + number_of(f"{name} {part.dtype} {part.shape[1:]}")
        else:
            shared = weighted_bits(part.reshape(1, -1), name).to(total.device)
            total += shared + number_of(f"{name} {part.dtype} {part.shape}")
    return total


def leaves(value: Any, name: str, where: str) -> Iterator[tuple[str, Any]]:
    """The tensors and plain values in the arguments of a call, with their places."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(part, f"{name}.{key}", where)
    elif isinstance(value, (tuple, list)):
        for place, part in enumerate(value):
            yield from leaves(part, f"{name}.{place}", where)
    elif isinstance(value, (Tensor, bool, int, float, str, torch.dtype)) or value is None:
        yield name, value
    else:
        raise MisconfigurationException(
            f"{where}: it is called with {describe(value)}, which cannot be compared with the input of an earlier "
            "round. Tensors and plain values can; a layer further inside may take only those."
        )


def has_rows(part: Tensor, rows: int) -> bool:
    return part.ndim > 0 and len(part) == rows


def weighted_bits(part: Tensor, name: str) -> Int[Tensor, " rows"]:
    flat = part.detach().reshape(len(part), -1).contiguous()
    if flat.shape[1] == 0:
        return torch.zeros(len(part), dtype=torch.int64, device=part.device)
    bits = flat.view(INTEGERS[flat.element_size()])
    generator = torch.Generator().manual_seed(number_of(name) % 2**63)
    factor = torch.randint(-(2**63), 2**63 - 1, bits.shape[1:], generator=generator).bitwise_or_(1).to(part.device)
    height = max(1, NUMBERS // bits.shape[1])
    return torch.cat([(some.to(torch.int64) * factor).sum(dim=1) for some in bits.split(height)])


def number_of(text: str) -> int:
    """A 64-bit integer for a text, the same in every process."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True)
