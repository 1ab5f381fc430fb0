"""Statistics of samples: the most frequent value, ranks, the standard error of the mean."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.util import as_array, canonical_axis, ensure_arraylike, promote_args_inexact

_NAN_POLICIES = ("propagate", "omit", "raise")


class ModeResult(NamedTuple):
    """The most frequent values and their counts."""

    mode: Any
    count: Any


def _check_nan_policy(name: str, policy: str) -> None:
    if policy not in _NAN_POLICIES:
        raise ValueError(f"Illegal nan_policy value {policy!r}; expected one of {_NAN_POLICIES}")
    if policy == "omit":
        raise NotImplementedError(
            f"{name}: nan_policy 'omit' is not supported, because the number of values is unknown while tracing."
        )
    if policy == "raise":
        raise NotImplementedError(
            f"{name}: nan_policy 'raise' is not supported, because values are unknown while tracing. Check for NaN "
            "before the call."
        )


def _run_starts(ordered):
    """For sorted values along the last axis, whether each differs from the previous one. NaN equals NaN."""
    before, after = ordered[..., :-1], ordered[..., 1:]
    differs = (before != after) & ~(jnp.isnan(before) & jnp.isnan(after))
    return jnp.concatenate([jnp.ones((*ordered.shape[:-1], 1), bool), differs], axis=-1)


def _first_of_run(starts):
    """The position at which the run of each element starts."""
    positions = jnp.broadcast_to(jnp.arange(starts.shape[-1]), starts.shape)
    return positions, lax.cummax(jnp.where(starts, positions, 0), axis=starts.ndim - 1)


def mode(a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The most frequent value along an axis (the smallest one if there are several), and its count.

    Args:
      a: array.
      axis: the axis; None for all elements together.
      nan_policy: "propagate": NaN counts as a value.
      keepdims: keep the axis with size 1.

    >>> mpijax.scipy.stats.mode(jnp.array([3, 1, 3, 2]))
    ModeResult(mode=Array(3, dtype=int32), count=Array(2, dtype=int32))
    """
    x = jnp.atleast_1d(ensure_arraylike("mode", a))
    _check_nan_policy("mode", nan_policy)
    rows = x.ravel() if axis is None else jnp.moveaxis(x, canonical_axis(axis, x.ndim), -1)
    if rows.shape[-1] == 0:
        floating = dtypes.default_float_dtype()
        values, counts = (jnp.full(rows.shape[:-1], v, floating) for v in (np.nan, 0))
    else:
        ordered = jnp.sort(rows, axis=-1)
        positions, first = _first_of_run(_run_starts(ordered))
        length = positions - first + 1
        best = jnp.argmax(length, axis=-1, keepdims=True)
        values = jnp.take_along_axis(ordered, best, axis=-1)[..., 0]
        counts = length.max(-1)
    if keepdims:
        where = tuple(range(x.ndim)) if axis is None else canonical_axis(axis, x.ndim)
        values, counts = jnp.expand_dims(values, where), jnp.expand_dims(counts, where)
    return ModeResult(values, counts)


def rankdata(a: Any, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Any:
    """The rank of each element, from 1, as floats. If one element is NaN, all ranks are NaN.

    Args:
      a: array.
      method: the rank of equal elements: the "average", "min" or "max" of the ranks that they share; "dense": as "min",
        but the next element has the next rank; "ordinal": different ranks, in the order of their positions.
      axis: axis along which to rank; the result has the shape of a. None ranks all elements together; the result has
        one axis.
      nan_policy: "propagate".

    >>> mpijax.scipy.stats.rankdata(jnp.array([10, 30, 20, 20]))
    Array([1. , 4. , 2.5, 2.5], dtype=float32)
    """
    x = ensure_arraylike("rankdata", a)
    _check_nan_policy("rankdata", nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"unknown method '{method}'")
    rows = x.ravel() if axis is None else jnp.moveaxis(x, axis, -1)
    order = jnp.argsort(rows, axis=-1, stable=True)
    starts = _run_starts(jnp.take_along_axis(rows, order, axis=-1))
    ranks = _ranks_in_order(starts, method).astype(dtypes.default_float_dtype())
    ranks = jnp.take_along_axis(ranks, jnp.argsort(order, axis=-1), axis=-1)
    ranks = jnp.where(jnp.isnan(rows).any(-1, keepdims=True), np.nan, ranks)
    return ranks if axis is None else jnp.moveaxis(ranks, -1, axis)


def _ranks_in_order(starts, method):
    """The ranks of sorted elements, from the starts of runs of equal elements."""
    positions, first = _first_of_run(starts)
    if method == "ordinal":
        return positions + 1
    if method == "dense":
        return jnp.cumsum(starts, axis=-1)
    size, last_axis = starts.shape[-1], starts.ndim - 1
    ends = jnp.concatenate([starts[..., 1:], jnp.ones_like(starts[..., :1])], axis=-1)
    last = lax.cummin(jnp.where(ends, positions, size), axis=last_axis, reverse=True)
    middle = 0.5 * (first + last).astype(dtypes.default_float_dtype())
    return {"min": first, "max": last}.get(method, middle) + 1


def sem(
    a: Any, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False
) -> Any:
    """The standard error of the mean: the standard deviation divided by the square root of the number of elements.

    Args:
      a: array.
      axis: the axis; None for all elements.
      ddof: degrees of freedom to subtract.
      nan_policy: "propagate", or "omit" to ignore NaN.
      keepdims: keep the axis with size 1.

    >>> mpijax.scipy.stats.sem(jnp.array([1.0, 2.0, 3.0])).round(4)
    Array(0.5774, dtype=float32)
    """
    x = as_array(*promote_args_inexact("sem", a))
    if nan_policy == "propagate":
        count = x.size if axis is None else x.shape[axis]
        return x.std(axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(count).astype(x.dtype)
    if nan_policy == "omit":
        count = (~jnp.isnan(x)).sum(axis, keepdims=keepdims)
        return jnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(count).astype(x.dtype)
    raise ValueError(f"nan_policy must be 'propagate' or 'omit', got {nan_policy!r}")
