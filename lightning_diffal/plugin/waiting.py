"""A run that waits for people: what it waits for, and until when."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.pool.history import Waiting
from lightning_diffal.pool.ledger import Ledger

# Between two looks at the folder.
POLL_SECONDS: Final = 1.0

HOW_TO_ANSWER: Final = (
    "Answer with `lightning-diffal label {folder}`, or fill in the label column and import it with `lightning-diffal "
    "answers {folder} FILE`; then start the same script again."
)


def answers_awaited(
    config: RunConfig, folder: Path, wait: bool, announce: Callable[[str], None] = lambda _: None
) -> Waiting | None:
    """What people still have to answer before the next fit; None if it can start. Reads only.

    Args:
        wait: Look again until they have answered. Ctrl-C ends that, and nothing is lost by it.
        announce: Tells the user what is waited for, once.
    """
    if config.people is None:
        return None
    entries = Ledger(folder).read(config.identity())
    waiting = config.people.waiting(folder, entries)
    if waiting is None or not wait:
        return waiting
    announce(f"Active learning: {waiting}. {HOW_TO_ANSWER.format(folder=folder)}")
    try:
        while waiting is not None:
            time.sleep(POLL_SECONDS)
            waiting = config.people.waiting(folder, entries)
    except KeyboardInterrupt:
        return waiting
    return None
