"""Applying functions along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpijax.numpy as jnp
from mpijax.numpy.util import canonical_axis, check_arraylike, ensure_arraylike, shape_of
from mpijax.transforms.vmap import vmap


def apply_along_axis(func1d: Callable, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply `func1d` to each line of an array along an axis. Its results replace the axis.

    Args:
      func1d: function of an array of one axis, and of `args` and `kwargs`; traced once.

    Raises:
      ValueError: `axis` is not an axis of `arr`.

    >>> jnp.apply_along_axis(lambda row: row / row.sum(), 1, jnp.array([[1.0, 3.0], [2.0, 2.0]]))
    Array([[0.25, 0.75],
           [0.5 , 0.5 ]], dtype=float32)
    """
    check_arraylike("apply_along_axis", arr)
    ndim = len(shape_of(arr))
    axis = canonical_axis(axis, ndim)

    def func(line):
        return func1d(line, *args, **kwargs)

    for i in range(1, ndim - axis):
        func = vmap(func, in_axes=i, out_axes=-1)
    for _ in range(axis):
        func = vmap(func, in_axes=0, out_axes=0)
    return func(arr)


def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: Sequence[int]) -> Any:
    """Apply `func(a, axis)` for one axis after the other. Axes that `func` removes are inserted again with size 1.

    Raises:
      ValueError: `func` removes more than one axis, or adds one.

    >>> jnp.apply_over_axes(jnp.sum, jnp.ones((2, 3, 4)), [0, 2]).shape
    (1, 3, 1)
    """
    a = ensure_arraylike("apply_over_axes", a)
    for axis in axes:
        out = func(a, axis)
        if out.ndim == a.ndim - 1:
            out = jnp.expand_dims(out, axis)
        if out.ndim != a.ndim:
            raise ValueError(
                f"function is not returning an array of the correct shape: {out.shape} for an array of shape {a.shape}"
            )
        a = out
    return a
