"""How long the rest will take."""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

# A longer pause is a pause, not the time of an answer.
PAUSE_SECONDS: Final = 120.0
ANSWERS: Final = 50


class Pace:
    """Seconds an answer of all pages together, over the last answers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.last = clock, clock()
        self.steps: deque[tuple[float, int]] = deque(maxlen=ANSWERS)

    def add(self, answers: int) -> None:
        now = self.clock()
        if now - self.last < PAUSE_SECONDS:
            self.steps.append((now - self.last, answers))
        self.last = now

    def seconds_left(self, open_items: int) -> float | None:
        """None before there are a few answers."""
        answers = sum(count for _, count in self.steps)
        if answers < 3:
            return None
        return sum(seconds for seconds, _ in self.steps) / answers * open_items
