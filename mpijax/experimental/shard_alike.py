"""``jax.experimental.shard_alike``: a hint for XLA's partitioner, which is not here."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import tree

__all__ = ["shard_alike"]


def shard_alike(x: Any, y: Any) -> tuple[Any, Any]:
    """x and y as they are; their layouts follow from the program. Their shapes must be equal.

    >>> from mpijax.experimental.shard_alike import shard_alike
    >>> shard_alike(jnp.ones(2), jnp.zeros(2))
    (Array([1., 1.], dtype=float32), Array([0., 0.], dtype=float32))
    """
    (xs, x_tree), (ys, y_tree) = tree.tree_flatten(x), tree.tree_flatten(y)
    if x_tree != y_tree:
        raise ValueError(f"Trees should be equal. Got x_tree: {x_tree}, y_tree: {y_tree}")
    for a, b in zip(xs, ys, strict=True):
        if np.shape(a) != np.shape(b):
            raise ValueError(
                f"The leaves shapes of `x` and `y` should match. Got `x` leaf shape: {np.shape(a)} and `y` leaf shape: "
                f"{np.shape(b)}."
            )
    return x, y
