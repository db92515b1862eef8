"""Training that depends on nothing but a seed."""

import os

from lightning.fabric.utilities.seed import seed_everything


def seed_training(seed: int) -> None:
    """Seed everything as Lightning does; whether workers are seeded stays as the user has set it."""
    seed_everything(seed, workers=os.environ.get("PL_SEED_WORKERS") == "1", verbose=False)
