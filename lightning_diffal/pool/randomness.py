"""Seeds, and random numbers that leave the user's generators alone."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def temporary_seed(seed: int) -> Iterator[None]:
    """Seed Python, NumPy and torch for a block; afterwards all generators continue where they were."""
    numpy = sys.modules.get("numpy")
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    python_state, numpy_state = random.getstate(), numpy.random.get_state() if numpy else None
    mps_state = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    try:
        with torch.random.fork_rng(devices, device_type="cuda"):
            # Not torch.manual_seed, which keeps the seed for devices that are not in use yet: they would start with it
            # later, and not with the user's seed.
            torch.default_generator.manual_seed(seed)
            if devices:
                torch.cuda.manual_seed_all(seed)
            if mps_state is not None:
                torch.mps.manual_seed(seed)
            random.seed(seed)
            if numpy:
                numpy.random.seed(seed % 2**32)
            yield
    finally:
        random.setstate(python_state)
        if numpy:
            numpy.random.set_state(numpy_state)
        if mps_state is not None:
            torch.mps.set_rng_state(mps_state)


def seed_of(seed: int, round_number: int) -> int:
    """The seed of a round, far from those of its neighbors and of neighboring runs."""
    # Two steps of a linear congruential generator (Knuth's MMIX constants) in 32 bits: NumPy takes no more.
    mixed = (seed * 6364136223846793005 + round_number + 1) * 1442695040888963407
    return (mixed >> 16) % 2**32
