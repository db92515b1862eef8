"""One pass over the pool for fixed features: of an encoder, a layer of the model as it comes, or the inputs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.features.source import FeatureSource
from lightning_diffal.plugin.model.batches import Signature, inputs_of
from lightning_diffal.plugin.model.embedding import RowBuffer, batch_transfer, embed, eval_mode, kept_modes
from lightning_diffal.pool.dataset.classes import describe
from lightning_diffal.pool.dataset.items import LABEL_KEYS
from lightning_diffal.progress import StageTimer

# What of a batch of so many points makes their features.
Encode = Callable[[Any], Any]


def encode(
    trainer: Any, module: Any, config: RunConfig, source: FeatureSource, loader: "DataLoader[Any]", timer: StageTimer
) -> Tensor:
    """(points of the loader, d): what an encoder, a layer or the inputs give, before any reduction.

    Batches are moved by the hooks of module and DataModule, as in training. Eval mode, no gradients, the trainer's
    device; an encoder runs in its own precision. Afterwards model and encoder are as they were, mode and device.

    Memory: n · d numbers, and one batch.
    """
    if source.of_model:
        return encode_by_model(trainer, module, config, source, loader, timer)
    rows_of = batch_encoder(module, config, source)
    rows = RowBuffer(len(loader.dataset))  # type: ignore[arg-type]
    to_device = batch_transfer(trainer, module, convert=lambda batch: batch)
    size = loader.batch_sampler.batch_size  # type: ignore[union-attr]
    with eval_mode(trainer, module), encoder_in_eval_mode(source, trainer.strategy.root_device):
        for batch in timer.track_stage("features", loader):
            count = min(size, rows.remaining)
            rows.put("features", to_feature_rows(rows_of(to_device(batch)), count, source))
            rows.filled += count
    return rows.parts["features"].cpu()


def encode_by_model(
    trainer: Any, module: Any, config: RunConfig, source: FeatureSource, loader: "DataLoader[Any]", timer: StageTimer
) -> Tensor:
    reading = config.reading(config.num_classes)
    if source.kind == "layer":
        reading = replace(reading, layer=source.features, embedding=None)
    try:
        needs = frozenset({"embeddings"})
        embedded = embed(trainer, module, loader, needs=needs, reading=reading, passes=1, timer=timer, stage="features")
    except MisconfigurationException as error:
        raise MisconfigurationException(f"{source.given}, the model as it comes: {error}") from error
    assert embedded.embeddings is not None
    return embedded.embeddings.cpu()


def batch_encoder(module: Any, config: RunConfig, source: FeatureSource) -> Encode:
    """A function of a batch: the user's, an encoder on the inputs it takes, or the inputs themselves."""
    if source.kind == "function":
        return source.features  # type: ignore[no-any-return]
    keys = (config.label,) if isinstance(config.label, str) else LABEL_KEYS
    if source.kind == "encoder":
        signature = Signature.of(source.features.forward, keys)

        def run(batch: Any) -> Any:
            arguments, keywords = inputs_of(batch, signature)
            return source.features(*arguments, **keywords)

        return run
    of_model = Signature.of(module.forward, keys)
    # A `forward` that takes the whole batch does not say what of it are the inputs.
    signature = replace(of_model, takes=(), needs=()) if of_model.needs == ("batch",) else of_model

    def inputs(batch: Any) -> Any:
        arguments, keywords = inputs_of(batch, signature)
        parts = [*arguments, *keywords.values()]
        if len(parts) == 1 and isinstance(parts[0], Tensor) and parts[0].dtype not in (torch.int64, torch.int32):
            return parts[0].float() if not parts[0].dtype.is_floating_point else parts[0]
        raise MisconfigurationException(
            f"{source.given}: a batch is {describe(batch)}, of which the model takes {len(parts)} parts, the first "
            f"{describe(parts[0])}. One tensor of measurements, as pixels are, is needed. "
            "features=lambda batch: ... gives the rows of any other."
        )

    return inputs


def to_feature_rows(value: Any, rows: int, source: FeatureSource) -> Tensor:
    if not isinstance(value, Tensor) or value.ndim == 0 or len(value) != rows or not value.dtype.is_floating_point:
        raise MisconfigurationException(
            f"{source.given} gave {describe(value)} for a batch of {rows} points. Floating-point numbers of shape "
            f"({rows}, ...) are needed: features=lambda batch: ... may take them out of what an encoder returns."
        )
    return value.reshape(rows, -1)


@contextmanager
def encoder_in_eval_mode(source: FeatureSource, device: torch.device) -> Iterator[None]:
    """An encoder on a device in eval mode; afterwards it is where and how it was."""
    encoder = source.features
    if not isinstance(encoder, nn.Module):
        yield
        return
    devices = {part.device for part in (*encoder.parameters(), *encoder.buffers())}
    with kept_modes(encoder):
        try:
            if len(devices) == 1:  # one that is spread over several stays there
                encoder.to(device)
            encoder.eval()
            yield
        finally:
            if len(devices) == 1:
                encoder.to(devices.pop())


def check_layer(module: Any, source: FeatureSource | None) -> None:
    """Refuse the name of a layer that the model does not have, with those that are spelled like it."""
    if source is None or source.kind != "layer":
        return
    # Inside what torch.compile or FSDP1 has wrapped, too.
    names = [name.replace("_orig_mod.", "").replace("_fsdp_wrapped_module.", "") for name, _ in module.named_modules()]
    if source.features in names:
        return
    near = get_close_matches(source.features, names, n=3, cutoff=0.5)
    children = ", ".join(name for name, _ in module.named_children())
    raise MisconfigurationException(
        f"{source.given}: the model has no such layer, and there is no such file. "
        + (f"Did you mean {' or '.join(map(repr, near))}? " if near else "")
        + f'The children of {type(module).__name__} are {children}; "inputs" are the flattened inputs.'
    )
