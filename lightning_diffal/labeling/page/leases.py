"""Who answers what: an item is open in one page at a time."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

# A page renews its leases every 40 seconds (main.js); browsers slow the timers of hidden tabs down to one a minute.
LEASE_SECONDS: Final = 150.0


class Leases:
    """Items that are open in a page, until it gives them back or is silent for too long."""

    def __init__(self, seconds: float = LEASE_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.clock = seconds, clock
        self.owner: dict[int, str] = {}
        self.until: dict[str, float] = {}

    def take(self, client: str, open_items: Sequence[int], count: int) -> list[int]:
        """At most `count` of the open items for this page: those it has, in their order, then free ones."""
        self.renew(client)
        own = [index for index in open_items if self.owner.get(index) == client]
        free = [index for index in open_items if index not in self.owner]
        order = {index: place for place, index in enumerate(open_items)}
        taken = sorted([*own, *free[: max(0, count - len(own))]], key=order.__getitem__)[:count]
        self.release(client)
        self.until[client] = self.clock() + self.seconds
        self.owner.update(dict.fromkeys(taken, client))
        return taken

    def renew(self, client: str) -> None:
        now = self.clock()
        self.until = {name: until for name, until in self.until.items() if until > now}
        self.owner = {index: name for index, name in self.owner.items() if name in self.until}
        if client in self.until:
            self.until[client] = now + self.seconds

    def claim(self, client: str, indices: Collection[int]) -> None:
        """Items that the page took back, for example by an undo."""
        self.until[client] = self.clock() + self.seconds
        self.owner.update(dict.fromkeys(indices, client))

    def release(self, client: str) -> None:
        self.until.pop(client, None)
        self.owner = {index: name for index, name in self.owner.items() if name != client}
