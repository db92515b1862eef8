"""What a run does with its budget."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning_diffal.plugin.logging import last_metrics
from lightning_diffal.plugin.progress_bars import stage_timer_for
from lightning_diffal.plugin.query import Questioner
from lightning_diffal.plugin.rank_zero import from_rank_zero
from lightning_diffal.plugin.state import Run
from lightning_diffal.pool.history import History
from lightning_diffal.pool.initial import PerClass, described_initial, draw_initial
from lightning_diffal.pool.ledger import Record, plain
from lightning_diffal.pool.oracle import AnswerFunction
from lightning_diffal.pool.randomness import seed_of
from lightning_diffal.selectors.base import Selector
from lightning_diffal.selectors.query import Query

ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parameters of the callback that concern the run as a whole, and what follows from them in each round."""

    query_size: int
    budget: int
    initial: int | PerClass | list[int]
    oracle: AnswerFunction | None
    stop_when: Callable[[History], bool] | None
    seed: int
    questioner: Questioner

    def open_run(
        self,
        trainer: Any,
        module: Any,
        loaders: Any,
        folder: Path | None,
        remembered: Sequence[dict[str, Any]],
        rehearse: bool,
    ) -> Run:
        """The run as the ledger, or a checkpoint that knows more, remembers it; a new one gets its first labels."""
        run = Run(trainer, loaders, folder, self.oracle)
        kinship = {"dataset": run.fingerprint, **self.identity()}
        run.ledger.open(run.pool, **kinship)
        run.adopt(remembered, kinship)
        if rehearse:
            self.questioner.rehearse(trainer, module, run)
        if not run.ledger.records:
            run.commit(self.first_labels(trainer, module, run))
        return run

    def identity(self) -> dict[str, Any]:
        """What tells this run from another one on the same data. Budget and query size may change on the way."""
        selector, initial = described_selector(self.questioner.selector), described_initial(self.initial)
        return {"selector": selector, "seed": self.seed, "initial": initial}

    def seed_of_next(self, run: Run) -> int:
        return seed_of(self.seed, len(run.ledger.records))

    def first_labels(self, trainer: Any, module: Any, run: Run) -> Record:
        blank = self.blank(run, 0)
        if self.initial == 0:
            return self.asked(trainer, module, run, blank)
        indices = draw_initial(self.initial, run.candidates, run.oracle, self.seed)
        unknown = [None] * len(indices)
        return replace(blank, indices=indices, labels=run.answers(indices), scores=[*unknown], reached=[*unknown])

    def blank(self, run: Run, number: int) -> Record:
        identity = self.identity()
        return Record(
            round=number,
            labeled=len(run.pool.labeled),
            indices=[],
            labels=[],
            scores=[],
            reached=[],
            selector=identity["selector"],
            seeds={"run": self.seed, "round": seed_of(self.seed, number)},
            initial=identity["initial"],
            dataset=run.fingerprint,
        )

    def fitted(self, trainer: Any, run: Run, steps: int, seconds: float) -> Record:
        """The round as far as it has come: a fit, and no question yet."""
        return replace(
            self.blank(run, len(run.ledger.records)),
            metrics={name: plain(value) for name, value in last_metrics(trainer).items()},
            seconds={"fit": seconds},
            steps=steps,
        )

    def reason_to_stop(self, run: Run, fitted: Record) -> str | None:
        if len(run.pool.labeled) >= self.budget:
            return "budget"
        if run.unlabeled() == 0:
            return "pool"
        if self.stop_when is None:
            return None
        stop, history = self.stop_when, History([*run.ledger.records, fitted])
        # Metrics that were not synchronised differ from rank to rank, and one that stops alone would leave the others.
        return "stop_when" if from_rank_zero(run.trainer, lambda: bool(stop(history))) else None

    def asked(self, trainer: Any, module: Any, run: Run, fitted: Record) -> Record:
        """The round with its query and the answers to it."""
        timer = stage_timer_for(trainer, module)
        size = min(self.query_size, self.budget - len(run.pool.labeled))
        query, labels = self.questioner.ask(trainer, module, run, size, timer)
        return replace(
            fitted,
            indices=query.indices.tolist(),
            labels=labels,
            scores=[plain(score) for score in query.scores.tolist()],
            reached=reached_of(query),
            unreached=query.unreached,
            seconds={**fitted.seconds, **timer.seconds},
        )


def reached_of(query: Query) -> list[bool | None]:
    """Whether a label had reached each point, unknown to selectors that do not count it."""
    return query.reached.tolist() if query.unreached is not None else [None] * len(query)


def described_selector(selector: Selector) -> str:
    """The repr of a selector without addresses, which change from process to process."""
    return ADDRESS.sub("", repr(selector))
