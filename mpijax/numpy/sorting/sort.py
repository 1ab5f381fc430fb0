"""Sorts, and searches in sorted arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.types.typeof import typeof
from mpijax.numpy.creation.fills import zeros_like
from mpijax.numpy.indexing.conditions import where
from mpijax.numpy.indexing.plan import index_dtype
from mpijax.numpy.util import canonical_axis, ensure_arraylike, promote_dtypes
from mpijax.ops.sorting.searchsorted import is_searched, search
from mpijax.transforms.jit import jit

_STATIC = ("axis", "kind", "order", "stable", "descending")


def _line(fun_name: str, a: Any, axis: int | None, kind: None, order: None) -> tuple[Any, int]:
    """The array to sort, and its axis counted from the front."""
    a = ensure_arraylike(fun_name, a)
    if kind is not None:
        raise TypeError(
            f"'kind' argument to {fun_name} is not supported. Use stable=True or stable=False to specify "
            "sort "
            "stability."
        )
    if order is not None:
        raise TypeError(f"'order' argument to {fun_name} is not supported.")
    return (a.ravel(), 0) if axis is None else (a, canonical_axis(axis, a.ndim))


@jit(static_argnames=_STATIC)
def sort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    """`a` sorted along `axis` (None flattens `a` first); NaN comes last.

    Returns:
      Array with the shape and dtype of `a`; with one axis if `axis` is None.

    Raises:
      ValueError: `a` has no axis.

    >>> jnp.sort(jnp.array([[3.0, jnp.nan, 1.0], [9.0, 7.0, 8.0]]))
    Array([[ 1.,  3., nan],
           [ 7.,  8.,  9.]], dtype=float32)
    """
    a, axis = _line("sort", a, axis, kind, order)
    out = lax.sort(a, dimension=axis, is_stable=stable)
    return lax.rev(out, dimensions=[axis]) if descending else out


@jit(static_argnames=(*_STATIC, "dtype"))
def argsort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: Any = None,
) -> Any:
    """The positions that sort `a` along `axis` (None flattens `a` first). Equal elements keep their order if `stable`.

    >>> jnp.argsort(jnp.array([30, 10, 20]))
    Array([1, 2, 0], dtype=int32)
    """
    a, axis = _line("argsort", a, axis, kind, order)
    if dtype is None:
        dtype = index_dtype(a.shape[axis : axis + 1])
        dtype = dtypes.default_int_dtype() if dtype == np.int32 else dtype
    else:
        dtype = dtypes.check_user_dtype_supported(dtype, "argsort")
    positions = lax.broadcasted_iota(dtype, a.shape, axis, out_sharding=typeof(a).said_sharding)
    if descending and stable:
        # Reversed twice, so that equal elements end up in their old order.
        a, positions = lax.rev(a, dimensions=[axis]), lax.rev(positions, dimensions=[axis])
    _, out = lax.sort_key_val(a, positions, dimension=axis, is_stable=stable)
    return lax.rev(out, dimensions=[axis]) if descending else out


_METHODS = ("scan", "scan_unrolled", "sort", "compare_all")


@jit(static_argnames=("side", "method"))
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan") -> Any:
    """The positions at which to insert `v` into the sorted `a` such that it stays sorted.

    Args:
      a: sorted array with one axis.
      v: array of values to insert.
      side: "left" for the first possible position, "right" for the last.
      sorter: positions that sort `a`, if `a` is not sorted.
      method: "compare_all" compares every pair. All other methods search, by bisection or, for many values, with a
        tree.

    Returns:
      int array with the shape of `v`, and values in [0, a.size].

    >>> jnp.searchsorted(jnp.array([10, 20, 30]), jnp.array([5, 20, 25]))
    Array([0, 1, 2], dtype=int32)
    """
    a, v = ensure_arraylike("searchsorted", a, v)
    if a.ndim != 1:
        raise ValueError("a should be 1-dimensional")
    if side not in ("left", "right"):
        raise ValueError(f"invalid argument side={side!r}, expected 'left' or 'right'")
    if method not in _METHODS:
        raise ValueError(f"invalid argument method={method!r}, expected one of {list(_METHODS)}")
    a, v = promote_dtypes(a, v)
    if sorter is not None:
        a = a[sorter]
    dtype = index_dtype(a.shape)
    if method != "compare_all" and is_searched(a.dtype):
        return search(a, v, side, dtype)
    a, v = _ordered(a), _ordered(v)
    if method == "compare_all":
        a, v = lax.expand_dims(a, range(1, v.ndim + 1)), lax.expand_dims(v, [0])
        before = _less(a, v) if side == "left" else ~_less(v, a)
        return before.sum(axis=0, dtype=dtype)
    return _bisect(a, v, side, dtype)


def _ordered(x: Any) -> Any:
    """x with +0 for both zeros."""
    return lax.select(x == 0, lax.full_like(x, 0), x) if dtypes.issubdtype(x.dtype, np.inexact) else x


def _less(x: Any, y: Any) -> Any:
    """x < y, where NaN is larger than all numbers."""
    less = x < y
    return less | ((x == x) & (y != y)) if dtypes.issubdtype(x.dtype, np.inexact) else less


def _bisect(a: Any, v: Any, side: str, dtype: np.dtype) -> Any:
    """The number of elements of `a` before each of `v`, for dtypes that `search` does not support.

    The loop is unrolled: it has as many steps as `a.size` has bits. The result lies in [low, high].
    """
    low = lax.full(v.shape, 0, dtype)
    high = lax.full(v.shape, a.size, dtype)
    for _ in range(math.ceil(math.log2(a.size + 1))):
        middle = low + lax.div(high - low, np.array(2, dtype))
        # If low and high have met at the end, middle lies outside of the array; it then does not change the result.
        element = a.at[middle].get(mode="clip")
        goes_left = ~_less(element, v) if side == "left" else _less(v, element)
        goes_left = goes_left | (low >= high)
        low, high = lax.select(goes_left, low, middle + 1), lax.select(goes_left, middle, high)
    return low


@jit(static_argnames=("right", "method"))
def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Any:
    """The index of the bin of each element of `x`.

    Args:
      x: array.
      bins: edges, in increasing or decreasing order.
      right: whether an edge belongs to the bin on its left.
      method: as for `searchsorted`.

    >>> jnp.digitize(jnp.array([0.5, 1.0, 7.0]), jnp.array([0.0, 1.0, 5.0]))
    Array([1, 2, 3], dtype=int32)
    """
    x, bins = ensure_arraylike("digitize", x, bins)
    if bins.ndim != 1:
        raise ValueError(f"digitize: bins must be a 1-dimensional array; got bins={bins!r}")
    if bins.shape[0] == 0:
        return zeros_like(x, dtype=np.int32)
    side = "left" if right else "right"
    how = {} if method is None else {"method": method}
    return where(
        bins[-1] >= bins[0],
        searchsorted(bins, x, side=side, **how),
        bins.shape[0] - searchsorted(bins[::-1], x, side=side, **how),
    )


@jit(static_argnums=1, static_argnames=("axis", "mode", "sorted"), inline=True)
def top_k(a, k, /, *, axis=-1, mode="largest", sorted=True):
    """The k largest elements along an axis, in order, and their positions. With mode="smallest", the k smallest.

    Among equal elements, the first ones are chosen. The result is in order for any value of `sorted`.

    >>> jnp.top_k(jnp.array([3, 9, 5]), 2)
    (Array([9, 5], dtype=int32), Array([1, 2], dtype=int32))
    >>> jnp.top_k(jnp.array([3, 9, 5]), 2, mode="smallest")
    (Array([3, 5], dtype=int32), Array([0, 2], dtype=int32))
    """
    x = ensure_arraylike("top_k", a)
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        raise ValueError("top_k is not compatible with complex inputs.")
    if mode not in ("largest", "smallest"):
        raise ValueError(f"mode must be 'largest' or 'smallest', got {mode!r}")
    turned = _turned if mode == "smallest" else lambda x: x
    values, positions = lax.top_k(turned(x), k, axis=canonical_axis(axis, x.ndim))
    return turned(values), positions


def _turned(x):
    """The elements mapped to the opposite order. The function is its own inverse."""
    return lax.neg(x) if dtypes.issubdtype(x.dtype, np.inexact) else lax.bitwise_not(x)
