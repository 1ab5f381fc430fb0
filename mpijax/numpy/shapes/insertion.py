"""Arrays with slices inserted or removed."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.types.array_api import Array
from mpijax.numpy.util import (
    canonical_axis,
    check_arraylike,
    dtype_of,
    ensure_arraylike,
    host_value,
    is_integer,
    static,
    unwrap,
)


def delete(arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Any:
    """`arr` without some slices along an axis. Without an axis, the flattened `arr` without some elements.

    Args:
      obj: positions to delete: an integer, a slice, an array of integers or a mask. Masks, and integers that may be
        equal, must be known while tracing.
      assume_unique_indices: a promise that all integers in `obj` differ; they may then be traced.

    >>> jnp.delete(jnp.array([[1, 2, 3], [4, 5, 6]]), 1, axis=1)
    Array([[1, 3],
           [4, 6]], dtype=int32)
    """
    a = ensure_arraylike("delete", arr)
    if axis is None:
        a, axis = a.ravel(), 0
    axis = canonical_axis(axis, a.ndim)
    before = (slice(None),) * axis
    try:
        position = canonical_axis(operator.index(obj), a.shape[axis])
    except TypeError:
        pass
    else:
        parts = [a[(*before, slice(0, position))], a[(*before, slice(position + 1, None))]]
        return jnp.concatenate(parts, axis=axis)
    if isinstance(obj, slice):
        obj = jnp.arange(a.shape[axis])[obj]
        assume_unique_indices = True
    check_arraylike("delete", a, obj)
    obj = unwrap(obj)
    if is_integer(dtype_of(obj)) and assume_unique_indices:
        return a[(*before, _without(a.shape[axis], obj))]
    return a[(*before, _kept(a.shape[axis], static(obj, "'obj' array argument of jnp.delete()", host_value)))]


def _without(n: int, obj: Any) -> Any:
    """The positions 0 ... n - 1 without some positions, which all differ."""
    gone = jnp.asarray(obj).ravel()
    gone = jnp.sort(jnp.clip(jnp.where(gone < 0, gone + n, gone), 0, n))
    # A kept position moves forward by the number of deleted positions before it.
    gone = gone - jnp.arange(len(gone), dtype=gone.dtype)
    kept = jnp.arange(n - gone.size, dtype=gone.dtype)
    return kept + (kept[None, :] >= gone[:, None]).sum(0, dtype=kept.dtype)


def _kept(n: int, obj: Any) -> Any:
    """The elements that remain without those that `obj` names: a mask, bool [n].

    If `obj` is split over ranks, positions instead of a mask: a mask over ranks cannot index.
    """
    if is_integer(obj.dtype):
        if not isinstance(obj, np.ndarray):
            return jnp.flatnonzero(jnp.ones(n, bool).at[obj].set(False))
        mask = np.ones(n, bool)
        mask[obj] = False
        return mask
    if obj.dtype != np.bool_:
        raise ValueError(f"np.delete(arr, obj): got obj.dtype={obj.dtype}; must be integer or bool.")
    if obj.shape != (n,):
        raise ValueError(
            "np.delete(arr, obj): for boolean indices, obj must be one-dimensional with length matching specified "
            f"axis; got shape {obj.shape} for an axis of length {n}."
        )
    return ~obj


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """`arr` with slices inserted before positions along an axis. Without an axis, elements inserted into the flattened
    array.

    Args:
      obj: positions in `arr`: an integer, a slice, or an array of integers with one axis.
      values: values to insert; broadcast against the slices.

    >>> jnp.insert(jnp.array([1, 2, 3]), jnp.array([0, 2]), jnp.array([10, 20]))
    Array([10,  1,  2, 20,  3], dtype=int32)
    """
    a, _, values = ensure_arraylike("insert", arr, 0 if isinstance(obj, slice) else obj, values)
    if axis is None:
        a, axis = a.ravel(), 0
    axis = canonical_axis(static(axis, "axis argument of jnp.insert()"), a.ndim)
    positions = _positions(obj, a.shape[axis])
    values = jnp.array(values, ndmin=a.ndim, dtype=a.dtype, copy=False)
    if positions.size == 1:
        if positions.ndim == 0:
            # One slice, or the slices along the first axis of the values.
            values = jnp.moveaxis(values, 0, axis)
        positions = jnp.full(values.shape[axis], positions.ravel()[0])
    n = a.shape[axis]
    count = lax.broadcast_shapes(positions.shape, (values.shape[axis],))[0]
    positions = jnp.clip(jnp.where(positions < 0, positions + n, positions), 0, n)
    # The k-th inserted element ends up k positions after its insertion point.
    new = positions.at[jnp.argsort(positions)].add(jnp.arange(count, dtype=positions.dtype))
    is_old = jnp.ones(n + count, bool).at[new].set(False)
    old = jnp.where(is_old, size=n)[0]
    before = (slice(None),) * axis
    out = jnp.zeros((*a.shape[:axis], n + count, *a.shape[axis + 1 :]), a.dtype)
    return out.at[(*before, new)].set(values).at[(*before, old)].set(a)


def _positions(obj: Any, n: int) -> Any:
    positions = jnp.arange(*obj.indices(n)) if isinstance(obj, slice) else jnp.asarray(obj)
    if positions.ndim > 1:
        raise ValueError(
            f"jnp.insert(): obj must be a slice, a one-dimensional array, or a scalar; got {obj}"
        )
    if is_integer(positions.dtype):
        return positions
    if positions.size == 0 and not isinstance(obj, Array):
        return positions.astype(int)
    raise ValueError(f"jnp.insert(): index array must be integer typed; got {obj}")
