"""From a fitted model to the labels of the points it should learn next."""

from dataclasses import dataclass
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_warn
from torch.utils.data import DataLoader, Dataset

from lightning_diffal.plugin.batches import Forward
from lightning_diffal.plugin.embedding import Embedded, embed
from lightning_diffal.plugin.loaders import leaves, pool_loader, with_dataset
from lightning_diffal.plugin.shards import gathered, ranks_of, rows_of_rank
from lightning_diffal.plugin.state import AnswerSheet, Run
from lightning_diffal.pool.fingerprint import length_of, looks_random
from lightning_diffal.pool.oracle import DatasetOracle
from lightning_diffal.pool.randomness import seed_of, seeded
from lightning_diffal.progress import StageTimer
from lightning_diffal.selectors.base import Selector, choose
from lightning_diffal.selectors.query import Query
from lightning_diffal.selectors.snapshot import Snapshot, require


@dataclass(frozen=True, kw_only=True)
class Questioner:
    """How the pool is looked at and who chooses: the parameters of the callback that concern a query."""

    selector: Selector
    layer: str | None
    forward: Forward | None
    pool: Any
    pool_batch_size: int | None
    num_classes: int | None
    seed: int

    def ask(self, trainer: Any, module: Any, run: Run, size: int, timer: StageTimer) -> tuple[Query, list[int]]:
        """Embed the pool, let the selector choose, ask the oracle. Indices are the dataset's own."""
        rows = torch.tensor(run.candidates)
        guesses = self.selector.asks_during_query and not run.oracle.immediate
        needs = self.selector.needs | ({"logits"} if guesses else set())
        seed = seed_of(self.seed, len(run.ledger.records))
        with seeded(seed):
            seen = self.look(trainer, module, run, needs, timer)
        known = run.pool.labels[rows]
        device = trainer.strategy.root_device if needs else known.device
        snapshot = Snapshot(
            labels=known.to(device),
            num_classes=self.count_classes(seen, run),
            embeddings=seen.embeddings,
            logits=seen.logits,
            stochastic=seen.stochastic,
            queries_before=sum(record.unreached is not None for record in run.ledger.records),
            ranks=ranks_of(trainer),
        )
        sheet = AnswerSheet(run.answers, rows, min(size, snapshot.num_unlabeled))
        # People are asked for the whole batch at once; until then the model's own prediction stands in.
        answer = (
            sheet if run.oracle.immediate else lambda places: require(snapshot.logits, "logits")[places].argmax(dim=1)
        )
        generator = torch.Generator(device).manual_seed(seed)
        query = choose(self.selector, snapshot, size, answer=answer, generator=generator, timer=timer)
        chosen = Query(rows[query.indices.cpu()], query.scores.cpu(), query.reached.cpu(), query.unreached)
        return chosen, sheet.settle(chosen.indices.tolist())

    def rehearse(self, trainer: Any, module: Any, run: Run) -> None:
        """Embed two points before anything is trained, so that what cannot work is not found out after hours."""
        loader, needs = self.pool_source(trainer, run), self.selector.needs
        self.selector.check_pool(len(run.candidates))
        if needs:
            with seeded(self.seed):
                self.embedded(trainer, module, pool_loader(loader, run.candidates[:2], None), needs, StageTimer())
        if needs and loader is run.loader and looks_random(run.dataset, run.size):
            rank_zero_warn(
                "The pool is embedded through the training dataset, which gives other items each time, as random "
                "augmentation does. A pool_dataloader() in the DataModule, or pool=, without it embeds better."
            )

    def look(self, trainer: Any, module: Any, run: Run, needs: frozenset[str], timer: StageTimer) -> Embedded:
        """What the selector needs to know of the candidates, each rank reading its share of them."""
        if not needs:
            return Embedded(None, None, None, None)
        mine = rows_of_rank(run.candidates, trainer.global_rank, trainer.world_size)
        loader = pool_loader(self.pool_source(trainer, run), mine, self.pool_batch_size)
        return gathered(trainer, self.embedded(trainer, module, loader, needs, timer), len(run.candidates))

    def embedded(
        self, trainer: Any, module: Any, loader: "DataLoader[Any]", needs: frozenset[str], timer: StageTimer
    ) -> Embedded:
        passes = self.selector.passes or 1
        return embed(
            trainer,
            module,
            loader,
            needs=needs,
            layer=self.layer,
            forward=self.forward,
            passes=passes,
            timer=timer,
        )

    def pool_source(self, trainer: Any, run: Run) -> "DataLoader[Any]":
        """A loader over the whole dataset without training augmentation, if the user offers one."""
        offered = self.pool
        for owner in (trainer.datamodule, trainer.lightning_module):
            if offered is None and hasattr(owner, "pool_dataloader"):
                offered = owner.pool_dataloader()
        if offered is None:
            return run.loader
        loader = with_dataset(run.loader, offered) if isinstance(offered, Dataset) else leaves(offered)[0]
        size = length_of(loader.dataset)
        if size != run.size:
            raise MisconfigurationException(
                f"pool= or pool_dataloader(): {size} points, where the training dataset has {run.size}. Both need the "
                "same points in the same order."
            )
        return loader

    def count_classes(self, seen: Embedded, run: Run) -> int:
        """As the user says, else as wide as the classifier, else as the dataset says, and no fewer than were found."""
        count = self.num_classes or seen.num_classes
        if count is None and isinstance(run.oracle, DatasetOracle):
            count = run.oracle.num_classes()
        return max(count or 0, int(run.pool.labels.max()) + 1, 2)
