"""While tests run, what a signature says is checked: shapes, sizes that belong together, and plain types."""

from dataclasses import dataclass

import jaxtyping
import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from lightning_diffal.arguments import skip_type_check
from lightning_diffal.diffusion.calibration import interpolate
from lightning_diffal.diffusion.reach import backward_layers

check = jaxtyping.jaxtyped(typechecker="unused")  # as the import hook writes it
refused = pytest.raises((BeartypeCallHintViolation, TypeCheckError))


@check
def cut(x: Float[Tensor, " n"], count: "int") -> Float[Tensor, " n"]:
    return x[:count]


@check
@dataclass
class Pair:
    first: Float[Tensor, " n"]
    second: Float[Tensor, " n"]

    @check
    def joined(self, other: "Pair") -> Float[Tensor, " m"]:
        return torch.cat([self.first, other.second])


@skip_type_check
@check
def free(x: int) -> object:
    return x


def test_the_functions_of_the_package_are_checked():
    three, four, five = (torch.rand(size) for size in (3, 4, 5))
    assert interpolate(three, four, four).shape == (3,)
    with refused:
        interpolate(three, four, five)
    with refused:
        interpolate(three.int(), four, four)
    with refused:
        backward_layers(None, torch.arange(2), 1, lambda rows, step: rows)


def test_a_result_is_checked_with_the_sizes_of_its_own_call():
    for size in (3, 4):
        assert len(cut(torch.rand(size), size)) == size
    with refused:
        cut(torch.rand(3), 2)
    with refused:
        cut(torch.rand(3), "3")


def test_a_dataclass_is_checked_and_a_quoted_name_is_resolved():
    pair = Pair(torch.rand(2), torch.rand(2))
    assert pair.joined(pair).shape == (4,)
    with refused:
        Pair(torch.rand(2), torch.rand(3))
    with refused:
        pair.joined(torch.rand(2))


def test_a_public_call_that_checks_its_own_arguments_is_left_alone():
    assert free("text") == "text"
