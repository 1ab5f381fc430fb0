"""Arrays as sets: membership, union, intersection, differences.

Functions flatten their arrays and return sorted elements. The number of elements depends on the data, so under `jit`
the argument `size` must give the length of the result.
"""

from __future__ import annotations

import operator
from typing import Any

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.indexing.plan import index_dtype
from mpijax.numpy.sorting.distinct import distinct, unique
from mpijax.numpy.util import ensure_arraylike, promote_dtypes, static
from mpijax.transforms.jit import jit


def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, method="auto") -> Any:
    """Whether each element occurs in `test_elements`: bools with the shape of `element`.

    Args:
      assume_unique: a promise that the elements of each array are distinct; the method "sort" uses it.
      invert: return the opposite: whether each element does not occur.
      method: "compare_all" (the default) compares every pair, "binary_search" sorts `test_elements`, and "sort" sorts
        both.

    >>> jnp.isin(jnp.array([[1, 2], [3, 4]]), jnp.array([2, 3]))
    Array([[False,  True],
           [ True, False]], dtype=bool)
    """
    element, test_elements = ensure_arraylike("isin", element, test_elements)
    return _in1d(element, test_elements, invert, method, assume_unique).reshape(element.shape)


@jit(static_argnames=("assume_unique", "invert", "method"))
def _in1d(ar1, ar2, invert, method="auto", assume_unique=False) -> Any:
    x, y = promote_dtypes(*ensure_arraylike("in1d", ar1, ar2))
    x, y = x.ravel(), y.ravel()
    if x.size == 0 or y.size == 0:
        return jnp.full(x.shape, invert, bool)
    if method in ("auto", "compare_all"):
        return (x[:, None] != y[None, :]).all(-1) if invert else (x[:, None] == y[None, :]).any(-1)
    compare = operator.ne if invert else operator.eq
    if method == "binary_search":
        y = lax.sort(y)
        return compare(x, y[jnp.searchsorted(y, x)])
    if method != "sort":
        raise ValueError(
            f"method={method!r} is not implemented; options are 'compare_all', 'binary_search', 'sort', and 'auto'"
        )
    back: Any = slice(None)
    if not assume_unique:
        x, back = unique(x, size=len(x), return_inverse=True, fill_value=y.max())
    joined, order = lax.sort_key_val(jnp.concatenate([x, y]), jnp.arange(x.size + y.size))
    found = jnp.full(x.shape, invert, bool).at[order[:-1]].set(compare(joined[1:], joined[:-1]), mode="drop")
    return found[back]


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The elements that occur in either array. `size`, `fill_value`: see `unique`.

    >>> jnp.union1d(jnp.array([3, 1]), jnp.array([2, 3]))
    Array([1, 2, 3], dtype=int32)
    """
    arrays = ensure_arraylike("union1d", ar1, ar2)
    where = "The error arose in union1d()"
    if size is None:
        for a in arrays:
            static(a, where)
    else:
        size = static(size, where, operator.index)
    return unique(jnp.concatenate(arrays, axis=None), size=size, fill_value=fill_value)


def setdiff1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Any:
    """The elements that occur in `ar1` and not in `ar2`.

    Args:
      assume_unique: return the elements of `ar1` in their order, without removing duplicates.
      size, fill_value: the length of the result, and the value of missing elements, default 0.

    >>> jnp.setdiff1d(jnp.array([3, 1, 2, 3]), jnp.array([2, 5]))
    Array([1, 3], dtype=int32)
    """
    x, y = (a.ravel() for a in ensure_arraylike("setdiff1d", ar1, ar2))
    where = "The error arose in setdiff1d()"
    if size is None:
        static(ar1, where)
    else:
        size = static(size, where, operator.index)
    fill_value = jnp.full((), 0 if fill_value is None else fill_value, x.dtype)
    if x.size == 0:
        return jnp.full(size or 0, fill_value, x.dtype)
    if not assume_unique:
        x = unique(x, size=size and x.size)
    mask = _in1d(x, y, invert=True, assume_unique=assume_unique)
    if size is None:
        return x[mask]
    if not assume_unique:
        # The end of x is padded with its first element.
        count = x.size + 1 - (x == x[0]).sum()
        mask = jnp.where(jnp.arange(x.size) < count, mask, False)
    return jnp.where(jnp.arange(size) < mask.sum(), x[jnp.where(mask, size=size)], fill_value)


def setxor1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Any:
    """The elements that occur in exactly one of the arrays.

    Args:
      assume_unique: a promise that the elements of each array are distinct.
      size, fill_value: the length of the result, and the value of missing elements, default the smallest element of the
        result.

    >>> jnp.setxor1d(jnp.array([3, 1, 2]), jnp.array([2, 5]))
    Array([1, 3, 5], dtype=int32)
    """
    x, y = promote_dtypes(*(a.ravel() for a in ensure_arraylike("setxor1d", ar1, ar2)))
    if size is not None:
        return _setxor1d_size(x, y, fill_value, assume_unique=assume_unique, size=size)
    if not assume_unique:
        x, y = unique(x), unique(y)
    joined = jnp.concatenate((x, y))
    if joined.size == 0:
        return joined
    joined = jnp.sort(joined)
    return joined[_alone(joined)]


def _alone(joined: Any) -> Any:
    """Which elements of a sorted array differ from both neighbours."""
    edge = jnp.ones(1, bool)
    differs = jnp.concatenate((edge, joined[1:] != joined[:-1], edge))
    return differs[1:] & differs[:-1]


@jit(static_argnames=["assume_unique", "size"])
def _setxor1d_size(arr1, arr2, fill_value, *, assume_unique, size):
    if assume_unique:
        joined = jnp.sort(jnp.concatenate([arr1, arr2]))
        mask = _alone(joined) if joined.size else jnp.zeros(0, bool)
    else:
        joined, count, _, _ = _joined_distinct(arr1, arr2)
        valid = jnp.arange(joined.size) < count
        _, joined = lax.sort([~valid, joined], is_stable=True, num_keys=2)
        next_differs = jnp.append(joined[1:] != joined[:-1], True) | (jnp.arange(joined.size) == count - 1)
        mask = valid & next_differs & jnp.append(True, next_differs[:-1])[: joined.size]
    values, _, valid = _chosen(joined, mask, size)
    return _fill(values, valid, fill_value)


def _joined_distinct(x: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    """The distinct elements of x, followed by those of y: (array, number of elements, distinct elements of x, of y)."""
    of_x = distinct(x, size=x.size, indices=True, fill_value=0)
    of_y = distinct(y, size=y.size, indices=True, fill_value=0)
    joined = jnp.zeros(x.size + y.size, dtypes.result_type(x, y))
    joined = lax.dynamic_update_slice(joined, of_x.values, (0,))
    joined = lax.dynamic_update_slice(joined, of_y.values, (of_x.true_size,))
    return joined, of_x.true_size + of_y.true_size, of_x, of_y


def _chosen(a: Any, mask: Any, size: int) -> tuple[Any, Any, Any]:
    """(elements [size] of an array where a mask holds, their positions, whether they are there)."""
    if not a.size:
        return jnp.zeros(size, a.dtype), jnp.zeros(size, int), jnp.zeros(size, bool)
    positions = jnp.nonzero(mask, size=size, fill_value=a.size)[0]
    return a.at[positions].get(mode="fill", fill_value=0), positions, jnp.arange(size) < mask.sum()


def _fill(values: Any, valid: Any, fill_value: Any) -> Any:
    if fill_value is None and values.size:
        fill_value = jnp.where(valid, values, values.max()).min()
    return values if fill_value is None else jnp.where(valid, values, fill_value)


def intersect1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """The elements that occur in both arrays.

    Args:
      assume_unique: a promise that the elements of each array are distinct.
      return_indices: also return the first position of each in both arrays.
      size, fill_value: the length of the result, and the value of missing elements, default the smallest element of the
        result.

    >>> jnp.intersect1d(jnp.array([3, 1, 2, 3]), jnp.array([3, 2, 5]))
    Array([2, 3], dtype=int32)
    """
    x, y = (a.ravel() for a in promote_dtypes(*ensure_arraylike("intersect1d", ar1, ar2)))
    if size is not None:
        return _intersect1d_size(x, y, fill_value, assume_unique, size, return_indices)
    if not assume_unique:
        x, of_x = unique(x, return_index=True)
        y, of_y = unique(y, return_index=True)
    joined, mask, order = _intersect1d_sorted_mask(x, y, return_indices)
    values = joined[:-1][mask]
    if not return_indices:
        return values
    in_x, in_y = order[:-1][mask], order[1:][mask] - x.size
    return (values, in_x, in_y) if assume_unique else (values, of_x[in_x], of_y[in_y])


@jit(static_argnames=["return_indices"])
def _intersect1d_sorted_mask(arr1, arr2, return_indices):
    joined = jnp.concatenate((arr1, arr2))
    order = None
    if return_indices:
        joined, order = lax.sort_key_val(joined, lax.iota(index_dtype(joined.shape), joined.size))
    else:
        joined = jnp.sort(joined)
    return joined, joined[1:] == joined[:-1], order


@jit(static_argnames=["fill_value", "assume_unique", "size", "return_indices"])
def _intersect1d_size(arr1, arr2, fill_value, assume_unique, size, return_indices):
    if assume_unique:
        joined, count, count_x = jnp.concatenate([arr1, arr2]), arr1.size + arr2.size, arr1.size
    else:
        joined, count, of_x, of_y = _joined_distinct(arr1, arr2)
        count_x = of_x.true_size
    invalid = jnp.arange(joined.size) >= count
    _, joined, order = lax.sort([invalid, joined, jnp.arange(joined.size)], is_stable=True, num_keys=2)
    mask = (joined[1:] == joined[:-1]) & ~invalid[1:]
    values, positions, valid = _chosen(joined[:-1], mask, size)
    values = _fill(values, valid, fill_value)
    if not return_indices:
        return values
    if not joined.size:
        return values, jnp.arange(0), jnp.arange(0)
    in_x = jnp.where(valid, order.at[positions].get(mode="fill", fill_value=0), arr1.size)
    in_y = jnp.where(valid, order.at[positions + 1].get(mode="fill", fill_value=0) - count_x, arr2.size)
    if not assume_unique:
        in_x = of_x.indices.at[in_x].get(mode="fill", fill_value=arr1.size)
        in_y = of_y.indices.at[in_y].get(mode="fill", fill_value=arr2.size)
    return values, in_x, in_y
