"""Join arrays along an axis, and split them."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core.shapes.dimensions import DimExpr
from mpijax.core.types.array_api import Array
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.shapes.reshape import atleast_1d, atleast_2d, atleast_3d, transpose
from mpijax.numpy.util import (
    canonical_axis,
    check_arraylike,
    ensure_arraylike,
    ensure_arraylike_tuple,
    promote_dtypes,
    shape_of,
    static,
    static_int,
)
from mpijax.transforms.jit import jit
from mpijax.transforms.vmap import vmap


def _is_one_array(x: Any) -> bool:
    """Whether the sequence of arrays is one array with a leading axis."""
    return isinstance(x, (np.ndarray, Array))


def concatenate(arrays, axis=0, dtype=None):
    """Arrays joined along an existing axis; without an axis, their elements in row-major order.

    Args:
      arrays: at least one array. All have the same shape except along `axis`; they are promoted to one dtype unless
        `dtype` is given.

    Raises:
      ValueError: no arrays.
      TypeError: the shapes differ along other axes, or the numbers of axes.

    >>> jnp.concatenate([jnp.array([[1, 2]]), jnp.array([[3, 4], [5, 6]])])
    Array([[1, 2],
           [3, 4],
           [5, 6]], dtype=int32)
    """
    if _is_one_array(arrays):
        return _merge_leading_axis(asarray(arrays, dtype=dtype), axis)
    arrays = ensure_arraylike_tuple("concatenate", arrays)
    if not arrays:
        raise ValueError("Need at least one array to concatenate.")
    if axis is None:
        return concatenate([lax.reshape(a, (a.size,)) for a in arrays], dtype=dtype)
    if arrays[0].ndim == 0:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    axis = canonical_axis(axis, arrays[0].ndim)
    if dtype is None:
        arrays = promote_dtypes(*arrays)
    else:
        arrays = [asarray(a, dtype=dtype) for a in arrays]
    return lax.concatenate(arrays, axis)


def _merge_leading_axis(a, axis):
    """`concatenate` of the subarrays along the first axis: a reshape."""
    if a.ndim == 0 or a.shape[0] == 0:
        raise ValueError("Need at least one array to concatenate.")
    if axis is None:
        return lax.reshape(a, (a.size,))
    if a.ndim == 1:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    axis = canonical_axis(axis, a.ndim - 1)
    count, rest = a.shape[0], a.shape[1:]
    shape = (*rest[:axis], count * rest[axis], *rest[axis + 1 :])
    return lax.reshape(a, shape, dimensions=(*range(1, axis + 1), 0, *range(axis + 1, a.ndim)))


def concat(arrays, /, *, axis=0):
    """Arrays joined along an existing axis, see `concatenate`.

    Raises:
      ValueError: no arrays.
      TypeError: the shapes differ along other axes.

    >>> jnp.concat([jnp.array([1, 2]), jnp.array([3.5])])
    Array([1. , 2. , 3.5], dtype=float32)
    """
    check_arraylike("concat", *arrays)
    return concatenate(arrays, axis=axis)


def stack(arrays, axis=0, out=None, dtype=None):
    """Arrays of the same shape joined along a new axis.

    Raises:
      ValueError: no arrays, or arrays of different shapes.

    >>> jnp.stack([jnp.array([1, 2]), jnp.array([3, 4])], axis=1)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    if not len(arrays):
        raise ValueError("Need at least one array to stack.")
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.stack is not supported.")
    if _is_one_array(arrays):
        axis = canonical_axis(axis, arrays.ndim)
        return concatenate(lax.expand_dims(asarray(arrays), (axis + 1,)), axis=axis, dtype=dtype)
    arrays = ensure_arraylike_tuple("stack", arrays)
    if dtype is None:
        arrays = promote_dtypes(*arrays)
    else:
        arrays = [asarray(a, dtype=dtype) for a in arrays]
    return lax.stack(arrays, axis=axis)


def unstack(x, /, *, axis=0):
    """The subarrays along an axis, as a tuple.

    Raises:
      ValueError: the array has no such axis.

    >>> x, y = jnp.unstack(jnp.array([[1, 2], [3, 4]]), axis=1)
    >>> y
    Array([2, 4], dtype=int32)
    """
    return lax.unstack(ensure_arraylike("unstack", x), axis=axis)


def _with_axes(name: str, arrays, expand):
    """The arrays to join, with enough axes: a list, or one array whose leading axis counts them."""
    if _is_one_array(arrays):
        return vmap(expand)(arrays)
    check_arraylike(name, *arrays)
    return [expand(a) for a in arrays]


def vstack(tup, dtype=None):
    """Arrays joined along the first axis; each has at least two axes.

    Vectors of shape [n] become rows [1, n]. The default dtype is the promoted one.

    >>> jnp.vstack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    return concatenate(_with_axes("vstack", tup, atleast_2d), axis=0, dtype=dtype)


def hstack(tup, dtype=None):
    """Arrays joined along the second axis (1-d arrays along the first).

    The default dtype is the promoted one.

    >>> jnp.hstack([jnp.array([[1], [2]]), jnp.array([[3, 4], [5, 6]])])
    Array([[1, 3, 4],
           [2, 5, 6]], dtype=int32)
    """
    arrays = _with_axes("hstack", tup, atleast_1d)
    ndim = arrays.ndim - 1 if _is_one_array(arrays) else arrays[0].ndim
    return concatenate(arrays, axis=0 if ndim == 1 else 1, dtype=dtype)


def dstack(tup, dtype=None):
    """Arrays joined along the third axis; each has at least three axes.

    Vectors [n] become [1, n, count], matrices [n, m] become [n, m, count].

    >>> jnp.dstack([jnp.array([1, 2]), jnp.array([10, 20])])
    Array([[[ 1, 10],
            [ 2, 20]]], dtype=int32)
    """
    return concatenate(_with_axes("dstack", tup, atleast_3d), axis=2, dtype=dtype)


def column_stack(tup):
    """1-d arrays as the columns of a matrix; 2-d arrays joined along the second axis.

    Returns:
      Array [n, columns] of the promoted dtype.

    >>> jnp.column_stack([jnp.array([1, 2]), jnp.array([10, 20])])
    Array([[ 1, 10],
           [ 2, 20]], dtype=int32)
    """
    def column(a):
        a = asarray(a)
        return transpose(atleast_2d(a)) if a.ndim < 2 else a

    if _is_one_array(tup) and tup.ndim >= 3:
        return concatenate(tup, axis=1)
    return concatenate(_with_axes("column_stack", tup, column), axis=1)


@jit
def block(arrays):
    """An array from nested lists of blocks; the innermost lists are joined along the last axis.

    The depth of the lists is the smallest number of axes; dtypes are promoted.

    Raises:
      ValueError: an empty list, or lists of different depths.

    >>> jnp.block([[jnp.eye(2), jnp.zeros((2, 1))], [jnp.ones((1, 3))]])
    Array([[1., 0., 0.],
           [0., 1., 0.],
           [1., 1., 1.]], dtype=float32)
    """
    return _block(arrays)[0]


def _block(blocks) -> tuple[Any, int]:
    """The joined array and the depth of the lists in it, plus one."""
    if isinstance(blocks, tuple):
        raise ValueError(f"jax.numpy.block does not allow tuples, got {blocks}")
    if not isinstance(blocks, list):
        return asarray(blocks), 1
    if not blocks:
        raise ValueError("jax.numpy.block does not allow empty list arguments")
    parts, depths = zip(*map(_block, blocks))
    if len(set(depths)) > 1:
        raise ValueError("Mismatched list depths in jax.numpy.block")
    rank = builtins.max(depths[0], *(p.ndim for p in parts))
    padded = [lax.broadcast(p, (1,) * (rank - p.ndim)) if p.ndim < rank else p for p in parts]
    return concatenate(padded, axis=-depths[0]), depths[0] + 1


# -- taking apart --------------------------------------------------------------------------------------------


def _split(name: str, ary, indices_or_sections, axis=0):
    ary = ensure_arraylike(name, ary)
    axis = static_int(axis, f"in jax.numpy.{name} argument `axis`")
    size = ary.shape[axis]
    if isinstance(indices_or_sections, (tuple, list)) or shape_of(indices_or_sections):
        bounds = [static_int(i, f"in jax.numpy.{name} argument 1") for i in indices_or_sections]
        sizes = [stop - start for start, stop in zip([0, *bounds], [*bounds, size], strict=True)]
    else:
        if isinstance(indices_or_sections, DimExpr):
            raise ValueError(f"jax.numpy.{name} with a symbolic number of sections is not supported")
        sections = static(indices_or_sections, f"in jax.numpy.{name} argument 1", int)
        part, rest = builtins.divmod(size, sections)
        if rest and name != "array_split":
            raise ValueError(f"array split does not result in an equal division: rest is {rest}")
        sizes = [part + 1] * rest + [part] * (sections - rest)
    return list(lax.split(ary, [n if isinstance(n, DimExpr) else np.int64(n) for n in sizes], axis=axis))  # type: ignore[misc]


def split(ary, indices_or_sections, axis=0):
    """The array split along an axis: into a number of equal parts, or before each of the indices.

    Returns:
      A list of arrays.

    Raises:
      ValueError: the size of the axis is not a multiple of the number of parts.

    >>> jnp.split(jnp.arange(6), [2, 3])
    [Array([0, 1], dtype=int32), Array([2], dtype=int32), Array([3, 4, 5], dtype=int32)]
    """
    return _split("split", ary, indices_or_sections, axis)


def array_split(ary, indices_or_sections, axis=0):
    """As `split`, but the sizes of the parts may differ by one.

    Returns:
      A list of arrays.

    >>> jnp.array_split(jnp.arange(5), 2)
    [Array([0, 1, 2], dtype=int32), Array([3, 4], dtype=int32)]
    """
    return _split("array_split", ary, indices_or_sections, axis)


def vsplit(ary, indices_or_sections):
    """The array split along its first axis; see `split`.

    >>> jnp.vsplit(jnp.array([[1, 2], [3, 4]]), 2)
    [Array([[1, 2]], dtype=int32), Array([[3, 4]], dtype=int32)]
    """
    return _split("vsplit", ary, indices_or_sections)


def hsplit(ary, indices_or_sections):
    """The array split along its second axis (a 1-d array along its first); see `split`.

    >>> jnp.hsplit(jnp.array([[1, 2, 3], [4, 5, 6]]), [1])
    [Array([[1],
           [4]], dtype=int32), Array([[2, 3],
           [5, 6]], dtype=int32)]
    """
    ary = ensure_arraylike("hsplit", ary)
    return _split("hsplit", ary, indices_or_sections, 0 if ary.ndim == 1 else 1)


def dsplit(ary, indices_or_sections):
    """The array split along its third axis; see `split`.

    >>> left, right = jnp.dsplit(jnp.zeros((2, 3, 4)), 2)
    >>> left.shape
    (2, 3, 2)
    """
    return _split("dsplit", ary, indices_or_sections, 2)
