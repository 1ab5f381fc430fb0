"""Indices of mutable array references: NumPy's, without new axes and negative steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.shapes.slices import Slice
from mpijax.core.tracing.tracer import Tracer


def checked_index(index: Any, shape: tuple[int, ...]) -> tuple:
    """An index as a tuple without an Ellipsis; () for the whole array.

    Raises:
      ValueError: too many indices, two Ellipses, a slice with a negative step, or a known integer out of bounds.
      TypeError: None inside an index, which would add an axis.
    """
    if index is None or index is Ellipsis:
        return ()
    given = list(index) if isinstance(index, tuple) else [index]
    dots = [i for i, x in enumerate(given) if x is Ellipsis]
    if len(dots) > 1:
        raise ValueError("Only one ellipsis is supported.")
    if dots:
        given[dots[0] : dots[0] + 1] = [slice(None)] * (len(shape) - len(given) + 1)
    if len(given) > len(shape):
        raise ValueError(f"`indices` must not be longer than `shape`: indices={index}, shape={shape}")
    for x, size in zip(given, shape, strict=False):
        _check_one(x, size)
    return () if all(isinstance(x, slice) and x == slice(None) for x in given) else tuple(given)


def _check_one(x: Any, size: int) -> None:
    if x is None:
        raise TypeError("references are indexed by integers, slices and integer arrays, not by None")
    if isinstance(x, slice):
        if isinstance(x.step, (int, np.integer)) and x.step < 1:
            raise ValueError(f"slice must have a step >= 1 (found: {x.step})")
    elif isinstance(x, (int, np.integer)) and x >= size:
        raise ValueError(f"Out of bound indexer: idx={x}, dim={size}.")


def indexed_shape(shape: tuple[int, ...], index: tuple) -> tuple[int, ...]:
    """The shape of an indexed part of an array, computed from the shape alone."""
    if not index:
        return shape
    full = (*index, *(slice(None),) * (len(shape) - len(index)))
    # An axis with integer indices may be empty: nothing is read.
    sizes = [n if isinstance(x, (slice, Slice)) else max(n, 1) for n, x in zip(shape, full, strict=True)]
    return np.broadcast_to(np.int8(0), sizes)[tuple(map(_stand_in, full))].shape


def _stand_in(x: Any) -> Any:
    """An index within bounds that gives the same shape."""
    if isinstance(x, slice):
        return x
    if isinstance(x, Slice):
        return slice(0, x.size)
    if not isinstance(x, Tracer) and np.asarray(x).dtype == bool:
        return np.asarray(x)
    return np.zeros(np.shape(x), int)
