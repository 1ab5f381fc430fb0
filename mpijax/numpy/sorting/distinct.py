"""The distinct elements of an array, their first positions, and their counts."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.numpy.util import _where, canonical_axis, ensure_arraylike, is_complex, is_inexact, static
from mpijax.transforms.jit import jit

_SIZE_HINT = (
    "To make jnp.unique() compatible with JIT and other transforms, you can specify a concrete value for the size "
    "argument, which will determine the output size."
)


@jit(static_argnames=["axis", "equal_nan"])
def _unique_sorted_mask(ar, axis, equal_nan):
    """(sorted slices, which of them differ from the previous one, the positions that sort)."""
    slices = jnp.moveaxis(ar, axis, 0)
    if is_complex(slices.dtype):
        # All kinds of NaN are equal.
        slices = _where(jnp.isnan(slices), np.nan, slices)
    n, width = slices.shape[0], math.prod(slices.shape[1:])
    if width:
        order = jnp.lexsort(slices.reshape(n, width).T[::-1])
    else:
        # Slices without elements are all equal.
        n, order = 1, jnp.zeros(1, int)
    slices = slices[order]
    if not slices.size:
        return slices, jnp.zeros(n, bool), order
    before, after = slices[:-1], slices[1:]
    differ = lax.ne(after, before)
    if is_inexact(slices.dtype) and equal_nan:
        differ &= ~(jnp.isnan(after) & jnp.isnan(before))
    differ = differ.any(tuple(range(1, slices.ndim)))
    return slices, jnp.ones(n, bool).at[1:].set(differ), order


class Distinct(NamedTuple):
    """The distinct slices of an array along an axis."""

    values: Any
    indices: Any
    inverse: Any
    counts: Any
    # The number of distinct elements, if `values` is padded to a given size.
    true_size: Any


def distinct(
    ar: Any,
    axis: int = 0,
    *,
    indices: bool = False,
    inverse: bool = False,
    counts: bool = False,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
) -> Distinct:
    """The distinct slices of an array, in order. Results that the caller does not ask for are None."""
    if ar.shape[axis] == 0 and size and fill_value is None:
        raise ValueError("jnp.unique: for zero-sized input with nonzero size argument, fill_value must be specified")
    slices, mask, order = _unique_sorted_mask(ar, axis, equal_nan)
    if size is None:
        first = static(mask, "The error arose in jnp.unique(). " + _SIZE_HINT)
    else:
        first = jnp.nonzero(mask, size=size)[0]
    values = slices[first] if slices.size else slices
    if size is not None and fill_value is not None:
        values = _filled(values, size, mask, fill_value)
    return Distinct(
        jnp.moveaxis(values, 0, axis),
        (order[first] if slices.size else order) if indices else None,
        _inverse(slices, mask, order, ar.shape[axis]) if inverse else None,
        _counts(slices, mask, size, ar.shape[axis]) if counts else None,
        mask.sum(),
    )


def _filled(values: Any, size: int, mask: Any, fill_value: Any) -> Any:
    fill_value = jnp.asarray(fill_value).astype(values.dtype)
    if not values.shape[0]:
        return jnp.full((size, *values.shape[1:]), fill_value, values.dtype)
    valid = lax.expand_dims(jnp.arange(size) < mask.sum(), tuple(range(1, values.ndim)))
    return jnp.where(valid, values, fill_value)


def _inverse(slices: Any, mask: Any, order: Any, length: int) -> Any:
    if not slices.size:
        return jnp.zeros(length, int)
    return jnp.zeros(mask.shape, int).at[order].set(jnp.cumsum(mask) - 1)


def _counts(slices: Any, mask: Any, size: int | None, length: int) -> Any:
    if not slices.size:
        return jnp.full((1,), length, int) if length else jnp.zeros(0, int)
    if size is None:
        return jnp.diff(jnp.append(jnp.nonzero(mask)[0], mask.size))
    starts = jnp.nonzero(mask, size=size + 1)[0]
    # Padded positions are 0.
    return jnp.diff(starts.at[1:].set(jnp.where(starts[1:], starts[1:], mask.size)))


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    sorted: bool = True,
) -> Any:
    """The distinct elements of an array, sorted.

    Args:
      ar: array, flattened unless `axis` names the axis along which slices are compared.
      return_index, return_inverse, return_counts: also return the first position of each distinct element; for each
        element of `ar`, the position of its value in the result; the number of times that each occurs.
      equal_nan: whether all NaNs are one element.
      size: the length of the result; required if `ar` is traced. Further elements are dropped.
      fill_value: value of missing elements; default the smallest element.
      sorted: no effect; the result is sorted.

    Returns:
      Array of shape [size], or a tuple of it and of int arrays.

    >>> jnp.unique(jnp.array([3, 1, 3, 2, 1]), return_counts=True)
    (Array([1, 2, 3], dtype=int32), Array([2, 1, 2], dtype=int32))
    """
    arr = ensure_arraylike("unique", ar)
    if size is None:
        static(arr, "The error arose for the first argument of jnp.unique(). " + _SIZE_HINT)
    else:
        size = static(size, "The error arose for the size argument of jnp.unique(). " + _SIZE_HINT, operator.index)
    along = 0 if axis is None else canonical_axis(axis, arr.ndim)
    found = distinct(
        arr.ravel() if axis is None else arr,
        along,
        indices=return_index,
        inverse=return_inverse,
        counts=return_counts,
        equal_nan=equal_nan,
        size=size,
        fill_value=fill_value,
    )
    inverse = found.inverse
    if return_inverse and axis is None:
        inverse = inverse.reshape(arr.shape)
    wanted = [found.values]
    for value in (found.indices, inverse, found.counts):
        if value is not None:
            wanted.append(value)
    return wanted[0] if len(wanted) == 1 else tuple(wanted)


class _UniqueAllResult(NamedTuple):
    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class _UniqueCountsResult(NamedTuple):
    values: Any
    counts: Any


class _UniqueInverseResult(NamedTuple):
    values: Any
    inverse_indices: Any


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> _UniqueAllResult:
    """(values, indices, inverse_indices, counts): see `unique`; each NaN is an element of its own.

    >>> result = jnp.unique_all(jnp.array([5, 2, 5]))
    >>> result.values, result.indices
    (Array([2, 5], dtype=int32), Array([1, 0], dtype=int32))
    """
    x = ensure_arraylike("unique_all", x)
    found = unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value)
    return _UniqueAllResult(*found)


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> _UniqueCountsResult:
    """(values, counts): see `unique`; each NaN is an element of its own.

    >>> jnp.unique_counts(jnp.array([5, 2, 5]))
    _UniqueCountsResult(values=Array([2, 5], dtype=int32), counts=Array([1, 2], dtype=int32))
    """
    x = ensure_arraylike("unique_counts", x)
    return _UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> _UniqueInverseResult:
    """(values, inverse_indices): see `unique`; each NaN is an element of its own.

    >>> values, inverse = jnp.unique_inverse(jnp.array([5, 2, 5]))
    >>> values[inverse]
    Array([5, 2, 5], dtype=int32)
    """
    x = ensure_arraylike("unique_inverse", x)
    return _UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The distinct elements: see `unique`; each NaN is an element of its own.

    >>> jnp.unique_values(jnp.array([5, 2, 5]))
    Array([2, 5], dtype=int32)
    """
    x = ensure_arraylike("unique_values", x)
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)
