"""``jax.experimental.shard_alike``: arrays with equal shardings."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.trees import tree
from mpijax.ops.shard_alike import shard_alike_p

__all__ = ["shard_alike"]


def shard_alike(x: Any, y: Any) -> tuple[Any, Any]:
    """The pytrees x and y. Each pair of corresponding arrays gets the same sharding: that of the array that is split.

    Raises ValueError if the structures of the trees or the shapes of the arrays differ.

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
    if not xs:
        return x, y
    alike = zip(*(shard_alike_p.bind(a, b) for a, b in zip(xs, ys, strict=True)), strict=True)
    alike_x, alike_y = (tree.tree_unflatten(x_tree, leaves) for leaves in alike)
    return alike_x, alike_y
