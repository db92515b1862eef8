"""Fixed features of the pool: computed once, before the first fit, and kept in the folder of the run."""

from collections.abc import Callable
from typing import Any, Final

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.nn.functional import normalize

from lightning_diffal.numerics.pca import principal_components
from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.data.copy_loader import pool_batch_size, pool_loader
from lightning_diffal.plugin.distributed.rank_zero import from_rank_zero
from lightning_diffal.plugin.dry_run import spread_batches
from lightning_diffal.plugin.features.encode import encode
from lightning_diffal.plugin.features.files import FeatureFile
from lightning_diffal.plugin.features.source import INPUTS, FeatureSource
from lightning_diffal.plugin.features.untrained import warn_of_untrained_layer
from lightning_diffal.plugin.features.values import check_rows
from lightning_diffal.plugin.model.shards import gather_shards, ranks_of, shard_of_rank
from lightning_diffal.plugin.query import pool_source
from lightning_diffal.plugin.state import RunState
from lightning_diffal.pool.randomness import temporary_seed
from lightning_diffal.progress import StageTimer

# Larger inputs are no candidates of features="auto": neighbors among them are seldom of one class.
MAX_INPUT_SIZE: Final = 4096
# Under which the user's features are stored.
FEATURES: Final = "features"


def fixed_features(
    trainer: Any, module: Any, config: RunConfig, state: RunState, timer: StageTimer, starts_untrained: bool
) -> dict[str, Tensor]:
    """Features by name, (candidates, f) each: those the user gave, or all that `features="auto"` may choose from.

    None where the user gave no features, and in a `fast_dev_run`, which tries four batches and writes nothing.

    Args:
        starts_untrained: Whether the model is now as it was before the first fit, in every round.
    """
    source = config.feature_source
    if source is None:
        return {}
    auto = source.kind == "auto"
    sources = automatic_sources(trainer, module, config, state, source) if auto else {FEATURES: source}
    if state.ledger.folder is None:
        size = config.pool_batch_size or pool_batch_size(pool_source(trainer, config, state))
        tried = spread_batches(state.candidates, size)
        for one in sources.values():
            if one.values is None:
                encode_indices(trainer, module, config, state, one, tried, StageTimer())
        return {}
    found = {
        name: open_features(trainer, module, config, state, one, name, timer, starts_untrained)
        for name, one in sources.items()
    }
    # Kept of all points, so that one that people give up changes nothing of the others.
    given_up = set(state.points).difference(state.candidates)
    rows = torch.tensor([row for row, index in enumerate(state.points) if index not in given_up])
    return {name: features[rows] if given_up else features for name, features in found.items()}


def automatic_sources(
    trainer: Any, module: Any, config: RunConfig, state: RunState, source: FeatureSource
) -> dict[str, FeatureSource]:
    """What `features="auto"` has at hand before the first fit: small inputs, and the model as it comes."""
    sources = sources_of_auto(source)
    others = {name: one for name, one in sources.items() if name != INPUTS}
    try:
        rows = encode_indices(trainer, module, config, state, sources[INPUTS], state.candidates[:1], StageTimer())
    except MisconfigurationException:  # several inputs, or tokens
        return others
    return sources if rows.shape[1] <= MAX_INPUT_SIZE else others


def sources_of_auto(source: FeatureSource) -> dict[str, FeatureSource]:
    """All that `features="auto"` may have computed before the first fit, by the names of their files."""
    return {
        INPUTS: FeatureSource(INPUTS, source.dimensions, "inputs"),
        "model": FeatureSource("model", source.dimensions, "model"),
    }


def open_features(
    trainer: Any,
    module: Any,
    config: RunConfig,
    state: RunState,
    source: FeatureSource,
    name: str,
    timer: StageTimer,
    starts_untrained: bool,
) -> Tensor:
    """(points, f): from the run's folder, where they are those of this source and dataset, else computed.

    Rank 0 alone reads, reduces and writes them; all ranks share the pass over the pool and have the same in the end.
    """
    assert state.ledger.folder is not None
    file = FeatureFile(state.ledger.folder, source.name, state.fingerprint, state.points, f"{name}.npz")
    # The layers of a model that comes may be other ones each time, and of a run that has begun they are trained.
    found = None if source.of_model and state.round == 0 else share_rows(trainer, file.read)
    if found is not None:
        return found
    rows = source.values
    if rows is None:
        if source.of_model:
            check_untrained(source, file, state, starts_untrained)
        if source.kind == "layer":
            warn_of_untrained_layer(trainer, module, config, state)
        shard = shard_of_rank(state.points, trainer.global_rank, trainer.world_size)
        part = encode_indices(trainer, module, config, state, source, shard, timer)
        rows = gather_shards(trainer, part, len(state.points))
    else:
        rows = rows[torch.tensor(state.points)]

    def reduce_and_write() -> Tensor:
        check_rows(f"{config.callback}({source.given})", rows)
        reduced = reduce(rows, source)
        file.write(reduced)
        return reduced

    with timer.stage("reduction"):
        shared = share_rows(trainer, reduce_and_write)
    assert shared is not None
    return shared


def encode_indices(
    trainer: Any,
    module: Any,
    config: RunConfig,
    state: RunState,
    source: FeatureSource,
    indices: list[int],
    timer: StageTimer,
) -> Tensor:
    loader = pool_loader(pool_source(trainer, config, state), indices, config.pool_batch_size)
    with temporary_seed(config.seed):
        return encode(trainer, module, config, source, loader, timer)


def reduce(rows: Tensor, source: FeatureSource) -> Tensor:
    """Principal components where there are more dimensions than asked for; these and what models give at unit length.

    Without a length, points near the mean, such as images of low contrast, are no longer close to all others, and so
    are not asked for again and again (docs/design.md). Few dimensions of the user's own are taken as they are, since
    their scale may have a meaning.
    """
    wide = source.dimensions is not None and rows.shape[1] > source.dimensions
    if wide:
        assert source.dimensions is not None
        rows = principal_components(rows, source.dimensions)
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    return normalize(rows, dim=1) if wide or source.kind == "encoder" or source.of_model else rows.contiguous()


def share_rows(trainer: Any, work: Callable[[], Tensor | None]) -> Tensor | None:
    """The rows that rank 0 reads or computes, on every rank."""
    rows: Tensor | None = None

    def shape_of_result() -> tuple[tuple[int, ...], torch.dtype] | None:
        nonlocal rows
        rows = work()
        return None if rows is None else (tuple(rows.shape), rows.dtype)

    shape = from_rank_zero(trainer, shape_of_result)
    if shape is None:
        return None
    return ranks_of(trainer).broadcast(rows if rows is not None else torch.empty(shape[0], dtype=shape[1]))


def check_row_count(config: RunConfig, state: RunState) -> None:
    """Refuse rows that are not one for each point of the dataset."""
    source = config.feature_source
    if source is not None and source.values is not None and len(source.values) != len(state.pool):
        raise MisconfigurationException(
            f"{config.callback}(features=...): {len(source.values)} rows were given, and the training dataset has "
            f"{len(state.pool)} points. One row for each is needed, in the order of the dataset."
        )


def check_untrained(source: FeatureSource, file: FeatureFile, state: RunState, starts_untrained: bool) -> None:
    """Refuse to take the features of a trained model for those of the model as it came."""
    if state.round > 1 and not starts_untrained:
        raise MisconfigurationException(
            f"{source.given}: {file.path} is not there or damaged, and the model has been trained since the features "
            "of the model as it came were computed. Put a copy of the file there, or start a new run in another folder."
        )
    if state.round > 0:
        rank_zero_warn(f"{source.given}: {file.path} is not there or damaged; the features are computed again.")
