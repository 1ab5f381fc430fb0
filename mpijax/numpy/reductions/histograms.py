"""Counts of integers, and of values in bins."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.util import (
    check_arraylike,
    dtype_of,
    ensure_arraylike,
    host_value,
    is_integer,
    promote_dtypes_inexact,
    shape_of,
    static,
    static_int,
)


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None, out_sharding: Any = None
) -> Any:
    """The number of times that each of 0, 1, 2, ... occurs.

    Args:
      x: integers, with one axis; negative integers count as 0.
      weights: weight of each element, with the shape of `x`; default 1.
      minlength: the smallest length of the result.
      length: the length of the result; required if `x` is traced. Larger integers are not counted. Default: the largest
        integer plus 1.

    Returns:
      Array of shape [length] with the dtype of the weights, or of integers without weights.

    Raises:
      TypeError: the elements of `x` are not integers.
      ValueError: `x` does not have one axis.

    >>> jnp.bincount(jnp.array([1, 3, 1, 0]), length=5)
    Array([1, 2, 0, 1, 0], dtype=int32)
    """
    x = ensure_arraylike("bincount", x)
    if x.dtype == np.bool_:
        x = lax.convert_element_type(x, np.dtype(np.int32))
    if not is_integer(x.dtype):
        raise TypeError(f"x argument to bincount must have an integer type; got {x.dtype}")
    if x.ndim != 1:
        raise ValueError("only 1-dimensional input supported.")
    minlength = static_int(minlength, "The error occurred because of argument 'minlength' of jnp.bincount.")
    if length is None:
        known = static(
            x,
            "The error occurred because of argument 'x' of jnp.bincount. To avoid this error, pass a static "
            "`length` argument.",
            host_value,
        )
        length = max(minlength, known.size and int(max(0, known.max())) + 1)
    else:
        length = static_int(length, "The error occurred because of argument 'length' of jnp.bincount.")
    if weights is None:
        weights = np.array(1, dtypes.default_int_dtype())
    elif x.shape != shape_of(weights):
        raise ValueError(
            f"type of weights must match type of x. Got x of shape {x.shape} and weights of shape {shape_of(weights)}"
        )
    counts = jnp.zeros(length, dtype_of(weights)).at[jnp.clip(x, 0)]
    return counts.add(weights, mode="drop", out_sharding=out_sharding)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of the bins of a histogram: floats of shape [bins + 1].

    Args:
      a: the values.
      bins: number of bins of equal width, or an array of their edges.
      range: (smallest edge, largest edge); default: the smallest and the largest value.
      weights: has no effect.

    >>> jnp.histogram_bin_edges(jnp.array([1.0, 5.0, 2.0]), bins=4)
    Array([1., 2., 3., 4., 5.], dtype=float32)
    """
    if isinstance(bins, str):
        raise NotImplementedError("string values for `bins` not implemented.")
    check_arraylike("histogram_bin_edges", a, bins)
    a = jnp.asarray(a)
    dtype = dtypes.to_inexact_dtype(a.dtype)
    if np.ndim(bins) == 1:
        return jnp.asarray(bins, dtype=dtype)
    bins = static(bins, "bins argument of histogram_bin_edges", operator.index)
    ends = jnp.asarray([a.min(), a.max()] if range is None else range, dtype=dtype)
    if ends.shape != (2,):
        raise ValueError(f"`range` must be either None or a sequence of scalars, got {ends}")
    is_point = jnp.ptp(ends) == 0
    low, high = jnp.where(is_point, ends[0] - 0.5, ends[0]), jnp.where(is_point, ends[1] + 0.5, ends[1])
    return jnp.linspace(low, high, bins + 1, dtype=dtype)


def histogram(
    a: Any,
    bins: Any = 10,
    range: Sequence[Any] | None = None,
    weights: Any = None,
    density: bool | None = None,
) -> tuple[Any, Any]:
    """The number of values in each bin: (counts of shape [n], edges of shape [n + 1]). The last bin includes its right
    edge.

    Args:
      a: array, flattened.
      bins, range: see `histogram_bin_edges`.
      weights: weight of each value, with the shape of `a`.
      density: normalise such that the integral over all bins is 1.

    >>> jnp.histogram(jnp.array([1.0, 1.5, 4.0]), bins=3, range=(0, 6))
    (Array([2., 0., 1.], dtype=float32), Array([0., 2., 4., 6.], dtype=float32))
    """
    if weights is None:
        a, _ = ensure_arraylike("histogram", a, bins)
        (a,) = promote_dtypes_inexact(a)
        weights = jnp.ones_like(a)
    else:
        a, _, weights = ensure_arraylike("histogram", a, bins, weights)
        if a.shape != weights.shape:
            raise ValueError("weights should have the same shape as a.")
        a, weights = promote_dtypes_inexact(a, weights)
    edges = histogram_bin_edges(a, bins, range, weights)
    # Bin 0 counts values that are too small; values that are too large are dropped.
    position = jnp.searchsorted(edges, a, side="right")
    position = jnp.where(a == edges[-1], len(edges) - 1, position)
    counts = jnp.zeros(len(edges), weights.dtype).at[position].add(weights)[1:]
    if density:
        counts = counts / jnp.diff(edges) / counts.sum()
    return counts, edges


def histogram2d(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Sequence[Any] | None = None,
    weights: Any = None,
    density: bool | None = None,
) -> tuple[Any, Any, Any]:
    """The number of points (x, y) in each cell of a grid: (counts, edges of x, edges of y).

    Args:
      x, y: coordinates, arrays with one axis.
      bins: as for `histogram`, for both axes, or a pair with one for each axis.
      range: a pair of ranges, one for each axis.
      weights, density: as for `histogram`.

    >>> x, y = jnp.array([0.1, 0.9, 0.8]), jnp.array([0.2, 0.3, 0.9])
    >>> counts, _, _ = jnp.histogram2d(x, y, bins=2, range=[(0, 1), (0, 1)])
    >>> counts
    Array([[1, 0],
           [1, 1]], dtype=int32)
    """
    x, y = ensure_arraylike("histogram2d", x, y)
    given = len(bins) if hasattr(bins, "__len__") else 1
    if given not in (1, 2):
        bins = [jnp.asarray(bins)] * 2
    counts, edges = histogramdd(jnp.transpose(jnp.asarray([x, y])), bins, range, weights, density)
    return counts, edges[0], edges[1]


def histogramdd(
    sample: Any,
    bins: Any = 10,
    range: Sequence[Any] | None = None,
    weights: Any = None,
    density: bool | None = None,
) -> tuple[Any, list[Any]]:
    """The number of points in each cell of a grid: (counts, list of the edges along each axis).

    Args:
      sample: points, of shape [n, axes].
      bins, range: as for `histogram`, for all axes, or a sequence with one for each axis.
      weights: weight of each point, of shape [n].
      density: normalise such that the integral over all cells is 1.

    >>> counts, edges = jnp.histogramdd(jnp.array([[0.1, 0.2], [0.9, 0.3], [0.8, 0.9]]), bins=2, range=[(0, 1), (0, 1)])
    >>> counts.shape, edges[0]
    ((2, 2), Array([0. , 0.5, 1. ], dtype=float32))
    """
    if weights is None:
        (sample,) = promote_dtypes_inexact(ensure_arraylike("histogramdd", sample))
    else:
        sample, weights = ensure_arraylike("histogramdd", sample, weights)
        if weights.shape != sample.shape[:1]:
            raise ValueError("should have one weight for each sample.")
        sample, weights = promote_dtypes_inexact(sample, weights)
    n, axes = sample.shape
    if range is not None and (len(range) != axes or any(r is not None and np.shape(r)[0] != 2 for r in range)):
        raise ValueError(
            f"For sample.shape={(n, axes)}, range must be a sequence of {axes} pairs or Nones; got range={range!r}"
        )
    bins = list(bins) if np.iterable(bins) else [bins] * axes
    if len(bins) != axes:
        raise ValueError("should be a bin for each dimension.")
    columns = [sample[:, i] for i in np.arange(axes)]
    ranges = [None] * axes if range is None else range
    edges = [histogram_bin_edges(x, b, r, weights) for x, b, r in zip(columns, bins, ranges, strict=True)]
    cells = tuple(_bin_of(x, e) for x, e in zip(columns, edges, strict=True))
    # Cells for points outside of the grid surround it.
    shape = tuple(len(e) + 1 for e in edges)
    counts = bincount(jnp.ravel_multi_index(cells, shape, mode="clip"), weights, length=math.prod(shape))
    counts = counts.reshape(shape)[(slice(1, -1),) * axes]
    if density:
        counts = counts.astype(sample.dtype)
        counts /= counts.sum()
        for widths in jnp.ix_(*map(jnp.diff, edges)):
            counts /= widths
    return counts, edges


def _bin_of(x: Any, edges: Any) -> Any:
    position = jnp.searchsorted(edges, x, side="right")
    return jnp.where(x == edges[-1], position - 1, position)
