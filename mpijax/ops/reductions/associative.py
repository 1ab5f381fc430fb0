"""Defines `lax.associative_scan`: prefix combinations of pytrees of arrays with any associative function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.rules.registry import registry
from mpijax.core.shapes.dimensions import DimExpr
from mpijax.core.trees.tree import tree_flatten, tree_unflatten
from mpijax.core.types.axes import canonical_axis
from mpijax.core.types.typeof import typeof
from mpijax.ops.indexing.slicing import concatenate, slice_p
from mpijax.ops.rules import const_like
from mpijax.ops.shapes.moves import shape_of
from mpijax.ops.shapes.padding import pad
from mpijax.ops.shapes.reshape import rev


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Combine each element along an axis with all elements before it; with all elements after it if `reverse`.

    Args:
      fn: an associative function `(tree, tree) -> tree` of arrays like `elems`, of any size along `axis`. It combines
        element by element along that axis; `vmap` makes such a function from one for single elements. It is called
        about 2 log2(n) times.
      elems: a tree of arrays with the same size n along `axis`.

    Returns:
      The tree of `[e0, fn(e0, e1), fn(fn(e0, e1), e2), ...]`; reversed, `[..., fn(fn(ez, ey), ex), fn(ez, ey), ez]`.

    Raises:
      TypeError: fn is not callable. ValueError: sizes along `axis` differ.

    >>> lax.associative_scan(jnp.maximum, jnp.array([1, 3, 2, 5, 4]))
    Array([1, 3, 3, 5, 5], dtype=int32)
    """
    if not callable(fn):
        raise TypeError(f"lax.associative_scan: fn argument should be callable, got {fn!r}.")
    flat, tree = tree_flatten(elems)
    if reverse:
        flat = [rev(x, (axis,)) for x in flat]
    axis = canonical_axis(axis, typeof(flat[0]).ndim)
    n = shape_of(flat[0])[axis]
    if any(shape_of(x)[axis] != n for x in flat):
        raise ValueError(
            "Array inputs to associative_scan must have the same first dimension. (saw: "
            f"{[shape_of(x) for x in flat]}) The first dimension is axis {axis}, which is scanned."
        )

    def combine(xs: list, ys: list) -> list:
        return tree_flatten(fn(tree_unflatten(tree, xs), tree_unflatten(tree, ys)))[0]

    flat = prefixes(combine, flat, axis)
    if reverse:
        flat = [rev(x, (axis,)) for x in flat]
    return tree_unflatten(tree, flat)


def prefixes(combine: Callable[[list, list], list], xs: list, axis: int) -> list:
    """Prefix combinations of lists of arrays in O(log n) steps.

    Combines neighbours; the scan of these pairs gives the odd results. Each even result takes one more
    combination.
    """
    n = shape_of(xs[0])[axis]
    if isinstance(n, DimExpr):
        raise NotImplementedError(f"associative scan over axis of non-constant size: {n}. Use lax.scan.")
    if n < 2:
        return xs
    pairs = combine([_along(x, axis, 0, n - 1, 2) for x in xs], [_along(x, axis, 1, n, 2) for x in xs])
    odd = prefixes(combine, pairs, axis)
    left = odd if n % 2 else [_along(x, axis, 0, n // 2 - 1, 1) for x in odd]
    even = combine(left, [_along(x, axis, 2, n, 2) for x in xs])
    even = [concatenate([_along(x, axis, 0, 1, 1), e], axis) for x, e in zip(xs, even, strict=True)]
    return [_interleaved(e, o, axis, n % 2) for e, o in zip(even, odd, strict=True)]


def _along(x: Any, axis: int, start: int, limit: int, stride: int) -> Any:
    shape = shape_of(x)
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], limits[axis], strides[axis] = start, limit, stride
    return slice_p.bind(x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=tuple(strides))


def _interleaved(even: Any, odd: Any, axis: int, tail: int) -> Any:
    """Alternating elements of both; `even` has `tail` elements more."""

    def spread(v, before, after):
        config = [(before, after, 1) if d == axis else (0, 0, 0) for d in range(len(shape_of(v)))]
        return pad(v, const_like(v, 0), config)

    merge = registry["or" if typeof(even).dtype == np.bool_ else "add"]
    return merge.bind(spread(even, 0, 1 - tail), spread(odd, 1, tail))
