"""Embeddings like those of a trained classifier's hidden layer, of any size, without training one.

Each class is a curved sheet of a few dimensions; a random ReLU layer bends them all into d dimensions. At n = 50,000
and d = 20 the intrinsic dimension (Levina & Bickel, 20 neighbors) is 6.1 and an exact search has to compare 10% of all
pairs; for 20 hidden units of a network trained on 200 and 2,000 MNIST digits it is 6.7 and 7.2, and 9% and 11%.
"""

from typing import Any

import numpy as np

# Dimensions of the space the sheets lie in, and of a sheet.
LATENT = 16
SHEET = 10


def synthetic_embeddings(n: int, d: int, classes: int, seed: int = 0) -> tuple[Any, Any]:
    """Embeddings (n, d) float32 and their classes (n,)."""
    rng = np.random.default_rng(seed)
    label = rng.integers(classes, size=n)
    center = 0.6 * rng.normal(size=(classes, LATENT))
    direction = rng.normal(size=(classes, SHEET, LATENT)) * (0.65 ** np.arange(SHEET))[:, None]
    latent = center[label] + 0.15 * rng.normal(size=(n, LATENT))
    for each in range(classes):
        rows = label == each
        latent[rows] += rng.normal(size=(int(rows.sum()), SHEET)) @ direction[each]
    layer = rng.normal(size=(LATENT, d)) / LATENT**0.5
    embedding = np.maximum(latent @ layer + 0.5 * rng.normal(size=d), 0) + 0.02 * rng.normal(size=(n, d))
    return embedding.astype(np.float32), label
