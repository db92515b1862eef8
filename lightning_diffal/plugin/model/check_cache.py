"""Whether a layer's output may be kept, said before any work."""

from collections.abc import Callable
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn

from lightning_diffal.plugin.distributed.strategies import is_a
from lightning_diffal.plugin.model.dropout import DROPOUT
from lightning_diffal.plugin.model.embedding import Embedded
from lightning_diffal.plugin.model.layer_cache import LayerCache, find_cached_layer
from lightning_diffal.plugin.model.logits import close
from lightning_diffal.pool.dataset.fingerprint import is_random
from lightning_diffal.pool.dataset.items import LabelField, MapStyle

SHARDED = ("FSDPStrategy", "ModelParallelStrategy", "DeepSpeedStrategy")


def check_cache_layer(strategy: Any, module: nn.Module, name: str, layer: str | None, needs: frozenset[str]) -> None:
    """Refuse a layer that is not there, is trained, or is not run as torch's modules are.

    Args:
        name: `cache_layer` of the callback.
        layer: That of the embedding.
        needs: What is read off the model.
    """
    where, cached = f"cache_layer={name!r}", find_cached_layer(module, name)
    trained = [key for key, weight in cached.named_parameters() if weight.requires_grad]
    if trained:
        raise MisconfigurationException(
            f"{where}: {len(trained)} of its parameters are trained ({', '.join(trained[:3])}"
            f"{', ...' * (len(trained) > 3)}), so that its output changes. A frozen layer is needed: "
            f"self.{name}.requires_grad_(False) in the module's __init__ freezes it."
        )
    if isinstance(cached, torch.jit.ScriptModule):
        raise MisconfigurationException(f"{where}: the forward of a ScriptModule cannot be replaced. Use nn.Module.")
    if any(is_a(strategy, sharded) for sharded in SHARDED):
        raise MisconfigurationException(
            f"{where}: under {type(strategy).__name__} ranks put the layer's weights together in each call. "
            "One process and DDP can keep its output."
        )
    if layer is not None and layer.startswith(f"{name}."):
        raise MisconfigurationException(
            f"{where}, layer={layer!r}: the embedding is computed inside the layer that is not run again. "
            f"layer={name!r} or a layer behind it is needed, or a cache_layer before layer={layer!r}."
        )
    dropout = [key for key, child in cached.named_modules() if isinstance(child, DROPOUT) and child.p > 0]
    if "stochastic" in needs and dropout:
        raise MisconfigurationException(
            f"{where}: the selector needs passes with dropout, and the layer has dropout inside ({dropout[0]}), so "
            "that its output differs from pass to pass. Name a layer that ends before the first dropout."
        )
    if is_a(strategy.launcher, "_MultiProcessingLauncher"):
        rank_zero_warn(
            f"{where}: {type(strategy).__name__} starts new processes in each round, which keep nothing of the last. "
            'strategy="ddp" does.'
        )


def check_pool_repeats(name: str, dataset: MapStyle, size: int, label_field: LabelField) -> None:
    """Refuse a pool whose items are others each time, as with random augmentation."""
    if is_random(dataset, size, label_field):
        raise MisconfigurationException(
            f"cache_layer={name!r}: the pool is embedded through a dataset that gives other items each time, as random "
            "augmentation does, so that nothing can be kept. A pool_dataloader() in the DataModule, or pool=, without "
            "augmentation is needed."
        )


def try_cache(name: str, size: int, embed_some: Callable[[LayerCache], Embedded]) -> Embedded:
    """A few batches with an empty cache, and once more from it: both must give the same.

    They do not where the classifier or the embedding is inside the layer, which is not run the second time.

    Args:
        size: Points of the dataset.
    """
    cache = LayerCache(name, size, None, check_random=True)
    computed = embed_some(cache)
    hint = "Name a layer that ends before the embedding, or the embedding's own."
    try:
        again = embed_some(cache)
    except MisconfigurationException as error:
        raise MisconfigurationException(f"cache_layer={name!r}: with its output kept, {error} {hint}") from error
    pairs = [(computed.embeddings, again.embeddings), (computed.logits, again.logits)]
    if not all(same(one, other) for one, other in pairs):
        raise MisconfigurationException(
            f"cache_layer={name!r}: with its output kept, the model gives another embedding or other logits, as where "
            f"the classifier is inside that layer. {hint}"
        )
    return computed


def same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and close(other, one)
