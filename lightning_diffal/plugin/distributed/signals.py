"""What SIGTERM does to a process that waits.

Lightning's own handler notes it for the end of the batch and broadcasts it. A rank that waits in a collective never
comes to the end of a batch, and a broadcast in between would be taken for the one it waits for.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def sigterm_ends_process() -> Iterator[None]:
    """At once, also inside of a collective. For ranks that only wait: they have nothing to save."""
    with handler(signal.SIG_DFL):
        yield


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """For rank 0 while it works for all, as when a person answers: what is done so far is on the disk."""

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    with handler(end):
        yield


@contextmanager
def handler(function: "Callable[[int, Any], None] | signal.Handlers") -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # handlers are set and run there only
        yield
        return
    before = signal.signal(signal.SIGTERM, function)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
