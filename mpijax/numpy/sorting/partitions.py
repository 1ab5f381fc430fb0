"""Partial sorts, sorts by several keys, and sorts of complex numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.indexing.plan import index_dtype
from mpijax.numpy.util import canonical_axis, ensure_arraylike, ensure_arraylike_tuple, is_complex
from mpijax.transforms.jit import jit
from mpijax.transforms.vmap import vmap


def _lines(name: str, a: Any, kth: int, axis: int) -> tuple[Any, int]:
    """The array with `axis` last, and `kth` counted from the front."""
    a = ensure_arraylike("partition", a)
    if is_complex(a.dtype):
        raise NotImplementedError(f"jnp.{name} for complex dtype is not implemented.")
    axis = canonical_axis(axis, a.ndim)
    return a.swapaxes(axis, -1), canonical_axis(kth, a.shape[axis])


def _smallest(a: Any, k: int) -> tuple[Any, Any]:
    """The k smallest elements along the last axis, in order, and their positions."""
    if dtypes.isdtype(a.dtype, "unsigned integer"):
        # The negative of 0 is 0, which would come last. The negative of 0 + 1 is the largest number.
        values, positions = lax.top_k(-(a + 1), k)
        return -values - 1, positions
    values, positions = lax.top_k(-a, k)
    return -values, positions


@jit(static_argnames=("kth", "axis"))
def partition(a: Any, kth: int, axis: int = -1) -> Any:
    """The elements along an axis, reordered: position `kth` has the element that sorting puts there, smaller ones are
    before it, and others are after it.

    Unlike in NumPy, `kth` is one position, and NaNs with a set sign bit come first; other NaNs come last.

    >>> jnp.partition(jnp.array([5, 1, 4, 2]), 1)[:2]
    Array([1, 2], dtype=int32)
    """
    lines, kth = _lines("partition", a, kth, axis)
    bottom, _ = _smallest(lines, kth + 1)
    top, _ = lax.top_k(lines, lines.shape[-1] - kth - 1)
    return lax.concatenate([bottom, top], dimension=lines.ndim - 1).swapaxes(-1, axis)


@jit(static_argnames=("kth", "axis"))
def argpartition(a: Any, kth: int, axis: int = -1) -> Any:
    """Positions along an axis, in the order of the elements of `partition`.

    Returns:
      Integers with the shape of `a`.

    Raises:
      ValueError: `kth` is not a position along the axis.

    >>> x = jnp.array([5, 1, 4, 2])
    >>> x[jnp.argpartition(x, 1)[:2]]
    Array([1, 2], dtype=int32)
    """
    lines, kth = _lines("argpartition", a, kth, axis)
    _, bottom = _smallest(lines, kth + 1)

    def unmark(marks, positions):
        return marks.at[positions].set(0)

    for _ in range(lines.ndim - 1):
        unmark = vmap(unmark)
    marks = unmark(lax.full(lines.shape, 1.0), bottom)
    _, top = lax.top_k(marks, lines.shape[-1] - kth - 1)
    return lax.concatenate([bottom, top], dimension=lines.ndim - 1).swapaxes(-1, axis)


@jit
def sort_complex(a: Any) -> Any:
    """`a` sorted along its last axis, by the real part and then by the imaginary part. The result is complex.

    >>> jnp.sort_complex(jnp.array([2 + 1j, 1 + 5j, 2 - 1j]))
    Array([1.+5.j, 2.-1.j, 2.+1.j], dtype=complex64)
    """
    a = lax.sort(ensure_arraylike("sort_complex", a))
    return lax.convert_element_type(a, dtypes.to_complex_dtype(a.dtype))


@jit(static_argnames=("axis",))
def lexsort(keys: Sequence[Any], axis: int = -1) -> Any:
    """Positions that sort by the last key; equal elements are sorted by the key before it, and so on.

    Args:
      keys: arrays of the same shape, or an array with the keys as rows.
      axis: axis to sort along.

    Returns:
      Integers with the shape of one key.

    >>> last, first = jnp.array([2, 1, 2]), jnp.array([1, 9, 0])
    >>> jnp.lexsort([first, last])
    Array([1, 2, 0], dtype=int32)
    """
    arrays = ensure_arraylike_tuple("lexsort", tuple(keys))
    if not arrays:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    shape = arrays[0].shape
    if any(a.shape != shape for a in arrays):
        raise ValueError("all keys need to be the same shape")
    if not shape:
        return lax.full((), 0, dtypes.default_int_dtype())
    axis = canonical_axis(axis, len(shape))
    dtype = index_dtype(shape[axis : axis + 1])
    dtype = dtypes.default_int_dtype() if dtype == np.int32 else dtype
    positions = lax.broadcasted_iota(dtype, shape, axis)
    return lax.sort((*arrays[::-1], positions), dimension=axis, num_keys=len(arrays))[-1]
