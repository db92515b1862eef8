"""Progress bars in the style of the Trainer's own."""

from typing import Any

from lightning_diffal.progress import StageTimer


def stage_timer_for(trainer: Any, module: Any) -> StageTimer:
    """A timer that draws like the Trainer's progress bar, or not at all if it has none."""
    bar = trainer.progress_bar_callback
    if bar is None or not trainer.is_global_zero or getattr(bar, "is_disabled", False):
        return StageTimer()
    if hasattr(bar, "init_predict_tqdm"):
        return TqdmTimer(bar)
    if hasattr(bar, "configure_columns"):
        # Rich allows one live display at a time, and Lightning's is still up after a fit; teardown takes it down.
        bar.teardown(trainer, module, "fit")
        return RichTimer()
    return StageTimer()


class TqdmTimer(StageTimer):
    def __init__(self, bar: Any) -> None:
        super().__init__()
        self.style: Any = bar
        self.bar: Any = None

    def begin(self, name: str) -> None:
        self.bar = self.style.init_predict_tqdm()
        self.bar.leave = False
        self.bar.set_description(name.capitalize())

    def expect(self, steps: int) -> None:
        self.bar.reset(steps)

    def advance(self) -> None:
        self.bar.update()

    def end(self) -> None:
        self.bar.close()


class RichTimer(StageTimer):
    def begin(self, name: str) -> None:
        from rich.progress import Progress  # noqa: PLC0415, the user's bar has imported it

        self.progress = Progress(transient=True)
        self.task = self.progress.add_task(name.capitalize(), total=None)
        self.progress.start()

    def expect(self, steps: int) -> None:
        self.progress.reset(self.task, total=steps)

    def advance(self) -> None:
        self.progress.advance(self.task)

    def end(self) -> None:
        self.progress.stop()
