"""How long each stage of a query takes, and how far it is."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar, runtime_checkable

Step_co = TypeVar("Step_co", covariant=True)


@runtime_checkable
class Steps(Protocol[Step_co]):
    """What can be counted and gone through: a range, a list, a DataLoader."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Step_co]: ...


class StageTimer:
    """Times the stages of a query. This one draws nothing: the layers above override the last four methods."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.metrics: dict[str, float] = {}  # what the stages measured; kept in the record of the round

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A part of the work. Parts of the same name add up."""
        start = time.perf_counter()
        self.begin(name)
        try:
            yield
        finally:
            self.end()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def track_stage(self, name: str, steps: Steps[Step_co]) -> Iterator[Step_co]:
        """The steps one by one, as a stage of that name."""
        with self.stage(name):
            yield from self.track(steps)

    def track(self, steps: Steps[Step_co]) -> Iterator[Step_co]:
        """The steps one by one, within the stage that is under way."""
        self.expect(len(steps))
        for step in steps:
            yield step
            self.advance()

    def begin(self, name: str) -> None:
        pass

    def expect(self, steps: int) -> None:
        pass

    def advance(self) -> None:
        pass

    def end(self) -> None:
        pass
