import os

import torch
from hypothesis import HealthCheck, settings

import tests.typechecker  # noqa: F401, pyproject.toml names it

# The same examples in every run, and no verdict by the clock: the machine is shared.
settings.register_profile(
    "ours", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=60
)
settings.load_profile("ours")
# Two busy processes with two threads each are far slower than with one; tests are small.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start


def pytest_collection_modifyitems(items):
    """Start long tests first, so that at the end of a run no process waits for one of them."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
