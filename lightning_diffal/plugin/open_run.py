"""The run as a fit finds it: read from the ledger, tried out before it begins, with its first labels and features."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lightning_diffal.plugin.answers import answer_question, check_classes
from lightning_diffal.plugin.data.item_weight import check_item_weight
from lightning_diffal.plugin.diffused_labels import check_default_features, choose_diffused
from lightning_diffal.plugin.distributed.arrival import wait_for_all_ranks
from lightning_diffal.plugin.dry_run import check_first_labels, dry_run
from lightning_diffal.plugin.features.choice import with_features
from lightning_diffal.plugin.features.fixed import check_row_count, fixed_features
from lightning_diffal.plugin.progress_bars import stage_timer_for
from lightning_diffal.plugin.questions import write_question
from lightning_diffal.plugin.records import new_record, with_first_points, with_labels
from lightning_diffal.plugin.state import RunState, commit, open_state, restore_from_checkpoint
from lightning_diffal.plugin.training.trial_batch import try_training_batch, with_stand_ins
from lightning_diffal.pool.ledger_entries import labels_of
from lightning_diffal.pool.oracle import DatasetOracle
from lightning_diffal.pool.record import Record

if TYPE_CHECKING:
    from lightning_diffal.plugin.callback import ActiveLearning


def open_run(active: "ActiveLearning", trainer: Any, module: Any, loaders: Any) -> RunState:
    """The run as the ledger has it, or a checkpoint that goes further; a new run gets its first labels."""
    wait_for_all_ranks(trainer, "the first request for training data")
    config = active.config
    state = open_state(trainer, config, loaders)
    check_row_count(config, state)
    check_default_features(config, state)
    if config.learn_from_graph is not None:
        check_item_weight(config.learn_from_graph.weight, state.dataset, state.points[0], config.label_field)
    restore_from_checkpoint(trainer, state, active.checkpoint_records, config.identity(state.fingerprint))
    # Also if people have skipped all of the first points.
    begins = state.round == 0 or (len(state.pool.labeled) == 0 and state.ledger.awaited is None)
    record = first_record(active, trainer, state) if begins else None
    if not active.dry_run_done and active.skipped is None:
        active.num_outputs = dry_run(trainer, module, config, state)
        active.dry_run_done = True
    state.limit_classes(config.num_classes or active.num_outputs)
    if record is not None:
        try_first_fit(active, trainer, module, loaders, state)
    timer = stage_timer_for(trainer, module)
    if active.skipped is None:
        starts_untrained = active.checkpoints is not None and not config.warm_start
        found = fixed_features(trainer, module, config, state, timer, starts_untrained)
        state = with_features(replace(state, feature_sets=found))
    if record is not None:
        begin_run(active, trainer, module, state, replace(record, seconds=timer.seconds))
    answer_question(trainer, state, active.num_outputs)
    known = [labels_of(record) for record in state.ledger.records]
    for indices, labels in known:
        check_classes(indices, labels, active.num_outputs)
    if begins:
        check_first_labels(known[0][1], active.num_outputs)
    if active.skipped is not None or state.ledger.awaited is not None:
        return state
    return replace(state, diffused=choose_diffused(trainer, config, state, active.feature_graph, timer))


def first_record(active: "ActiveLearning", trainer: Any, state: RunState) -> Record:
    """Round 0: the first points, unless a query chooses them, and their labels in a simulation."""
    record = new_record(active.config, state)
    if active.config.initial == 0:
        return record
    record = with_first_points(record, active.config, state)
    # Labels are free in a simulation: what is no class is refused before the model runs.
    return with_labels(record, trainer, state) if isinstance(state.oracle, DatasetOracle) else record


def begin_run(active: "ActiveLearning", trainer: Any, module: Any, state: RunState, record: Record) -> None:
    """Ask for the first labels."""
    if active.config.initial == 0:
        record = active.query(trainer, module, state, record)
    else:
        write_question(trainer, active.config, state, record, None)
    check_classes(*labels_of(record), active.num_outputs)
    commit(trainer, state, record)


def try_first_fit(active: "ActiveLearning", trainer: Any, module: Any, loaders: Any, state: RunState) -> None:
    """One batch of the first fit, on a copy of the model, with stand-in labels: before anything is encoded or asked.

    Not in a simulation, where labels cost nothing.
    """
    config = active.config
    if not config.trial_batch or trainer.fast_dev_run or isinstance(state.oracle, DatasetOracle):
        return
    # The user's module may ask for the loaders during the trial, too.
    active.state = with_stand_ins(config, state, config.num_classes or active.num_outputs)
    try:
        try_training_batch(trainer, module, config, active.state, loaders)
    finally:
        active.state = None
