"""Whether features are those of random weights, which users are told: they are poor ones."""

from dataclasses import replace
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_warn
from torch import nn

from lightning_diffal.plugin.config import RunConfig
from lightning_diffal.plugin.data.copy_loader import batch_size_of, pool_loader
from lightning_diffal.plugin.model.embedding import embed
from lightning_diffal.plugin.query import pool_source
from lightning_diffal.plugin.state import RunState
from lightning_diffal.pool.randomness import temporary_seed
from lightning_diffal.progress import StageTimer


def warn_of_untrained_layer(trainer: Any, module: Any, config: RunConfig, state: RunState) -> None:
    """Say so if the layer named in `features=` is the penultimate one of a network that looks untrained."""
    if looks_untrained(module) and is_penultimate(trainer, module, config, state):
        rank_zero_warn(
            f"features={config.features!r} is the input of the classifier, and the model looks untrained: its features "
            "say little. Of MNIST's labels, diffused from 300 points, 75% were right on such features and 90% on "
            'features="inputs". Name a layer of a pretrained network, or give an encoder.'
        )


def is_penultimate(trainer: Any, module: Any, config: RunConfig, state: RunState) -> bool:
    """Whether a layer gives the input of the classifier, by the first batch of the pool."""
    source = pool_source(trainer, config, state)
    loader = pool_loader(source, state.candidates[: batch_size_of(source)], None)
    reading = replace(config.reading(config.num_classes), embedding=None)
    found = []
    for layer in (config.features, None):
        try:
            with temporary_seed(config.seed):
                embedded = embed(
                    trainer,
                    module,
                    loader,
                    needs=frozenset({"embeddings"}),
                    reading=replace(reading, layer=layer),
                    passes=1,
                    timer=StageTimer(),
                )
        except MisconfigurationException:  # as where the classifier is not found
            return False
        assert embedded.embeddings is not None
        found.append(embedded.embeddings)
    return found[0].shape == found[1].shape and bool(torch.allclose(found[0], found[1]))


def looks_untrained(module: nn.Module) -> bool:
    """Whether all weights may be those torch starts with.

    The statistics of BatchNorm have seen no batch, and the entries of linear and convolutional layers are within
    1 / √fan_in, as `reset_parameters` draws them; those of a trained network are not, in some layer.
    """
    layers = list(module.modules())
    counts = [layer.num_batches_tracked for layer in layers if isinstance(layer, nn.modules.batchnorm._NormBase)]
    if any(count is not None and int(count) > 0 for count in counts):
        return False
    weights = [layer.weight for layer in layers if isinstance(layer, (nn.Linear, nn.modules.conv._ConvNd))]
    bounds = [weight[0].numel() ** -0.5 for weight in weights if weight.ndim > 1]
    return len(bounds) == len(weights) and all(
        float(weight.detach().abs().max()) <= 1.001 * bound for weight, bound in zip(weights, bounds, strict=True)
    )
