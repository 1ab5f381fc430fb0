"""Elements of an array in another order, or repeated."""

from __future__ import annotations

import math

import numpy as np

from mpijax import lax
from mpijax.core.shapes.dimensions import DimExpr, dimension
from mpijax.core.tracing.out_sharding import takes_out_sharding
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.creation.fills import zeros
from mpijax.numpy.indexing.take import take
from mpijax.numpy.reductions.cumulative import cumsum
from mpijax.numpy.shapes.join import concatenate
from mpijax.numpy.shapes.reshape import moveaxis, ravel
from mpijax.numpy.ufuncs.arithmetic import remainder, subtract
from mpijax.numpy.util import (
    broadcast_to,
    canonical_axis,
    check_arraylike,
    convert,
    ensure_arraylike,
    host_value,
    index_tuple,
    optional_axes,
    static,
    static_int,
)
from mpijax.transforms.jit import jit

_I32 = np.dtype(np.int32)


def flip(m, axis=None):
    """The array with its elements in reverse order along axes (default: all).

    Raises:
      ValueError: the array has no such axis.

    >>> jnp.flip(jnp.array([[1, 2], [3, 4]]), axis=1)
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    return _flip(ensure_arraylike("flip", m), optional_axes(axis))


@jit(static_argnames=("axis",))
def _flip(m, axis=None):
    axes = range(m.ndim) if axis is None else (canonical_axis(i, m.ndim) for i in index_tuple(axis))
    return lax.rev(m, list(axes))


def fliplr(m):
    """The array with its elements in reverse order along the second axis.

    Raises:
      ValueError: fewer than two axes.

    >>> jnp.fliplr(jnp.array([[1, 2, 3], [4, 5, 6]]))
    Array([[3, 2, 1],
           [6, 5, 4]], dtype=int32)
    """
    return _flip(ensure_arraylike("fliplr", m), 1)


def flipud(m):
    """The array with its elements in reverse order along the first axis.

    Raises:
      ValueError: no axes.

    >>> jnp.flipud(jnp.array([[1, 2], [3, 4]]))
    Array([[3, 4],
           [1, 2]], dtype=int32)
    """
    return _flip(ensure_arraylike("flipud", m), 0)


@jit(static_argnames=("k", "axes"))
def rot90(m, k=1, axes=(0, 1)):
    """The array rotated k times by 90 degrees in the plane of two axes, from the first towards the second.

    Raises:
      ValueError: the two axes are the same.

    >>> jnp.rot90(jnp.array([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int32)
    """
    m = ensure_arraylike("rot90", m)
    if m.ndim < 2:
        raise ValueError(
            "rot90 requires its first argument to have ndim at least two, but got first argument of shape "
            f"{m.shape}, which has ndim {m.ndim}"
        )
    first, second = (canonical_axis(i, m.ndim) for i in axes)
    if first == second:
        raise ValueError("Axes must be different")
    k = k % 4
    if k == 0:
        return m
    if k == 2:
        return flip(flip(m, first), second)
    order = list(range(m.ndim))
    order[first], order[second] = order[second], order[first]
    if k == 1:
        return lax.transpose(flip(m, second), order)
    return flip(lax.transpose(m, order), second)


def roll(a, shift, axis=None):
    """The elements shifted along axes; elements beyond the end come in again at the beginning. Without an axis, the
    flattened array is shifted.

    Args:
      shift: an int, or one for each axis; may be a traced array.
      axis: an int or several.

    Returns:
      Array with the shape of `a`.

    >>> jnp.roll(jnp.arange(5), 2)
    Array([3, 4, 0, 1, 2], dtype=int32)
    """
    a = ensure_arraylike("roll", a)
    if axis is None:
        return lax.reshape(roll(lax.reshape(a, (a.size,)), shift, 0), a.shape)
    axes = tuple(canonical_axis(i, a.ndim) for i in index_tuple(axis))
    try:
        known = index_tuple(shift)
    except TypeError:
        return _roll_dynamic(a, asarray(shift), axes)
    return _roll_static(a, known, axes)


@jit(static_argnums=(1, 2))
def _roll_static(a, shift, axis):
    for dim, by in zip(*np.broadcast_arrays(axis, shift)):
        size = a.shape[dim]
        if size == 0:
            continue
        start = -by % size
        parts = [lax.slice_in_dim(a, start, size, axis=dim), lax.slice_in_dim(a, 0, start, axis=dim)]
        a = lax.concatenate(parts, dimension=dim)
    return a


@jit(static_argnums=(2,))
def _roll_dynamic(a, shift, axis):
    shape = lax.broadcast_shapes(shift.shape, np.shape(axis))
    if len(shape) != 1:
        raise ValueError("'shift' and 'axis' arguments to roll must be scalars or 1D arrays")
    shifts = broadcast_to(shift, shape)
    for i, dim in enumerate(np.broadcast_to(axis, shape)):
        size = np.int32(a.shape[dim])
        by = convert(lax.squeeze(lax.slice_in_dim(shifts, i, i + 1), (0,)), _I32)
        by = remainder(by, lax.max(size, np.int32(1)))
        # Two copies in a row, read from where the shifted array starts.
        doubled = lax.concatenate((a, a), dim)
        a = lax.dynamic_slice_in_dim(doubled, subtract(size, by), a.shape[dim], axis=dim)
    return a


@jit(static_argnames=("axis", "start"))
def rollaxis(a, axis, start=0):
    """The array with one axis moved before the axis `start`.

    >>> jnp.rollaxis(jnp.ones((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    a = ensure_arraylike("rollaxis", a)
    start = static_int(start, "'start' argument of jnp.rollaxis()")
    axis = canonical_axis(axis, a.ndim)
    if not -a.ndim <= start <= a.ndim:
        raise ValueError(f"start={start!r} must satisfy {-a.ndim}<=start<={a.ndim}")
    if start < 0:
        start += a.ndim
    return moveaxis(a, axis, start - 1 if start > axis else start)


def tile(A, reps):
    """The whole array repeated `reps` times: a number, or one for each axis.

    Returns:
      Array whose sizes are multiplied by `reps`; the last axes are aligned.

    >>> jnp.tile(jnp.array([1, 2]), (2, 2))
    Array([[1, 2, 1, 2],
           [1, 2, 1, 2]], dtype=int32)
    """
    a = ensure_arraylike("tile", A)
    try:
        reps = tuple(reps)
    except TypeError:
        reps = (reps,)
    reps = tuple(map(dimension, reps))
    reps = (1,) * (a.ndim - len(reps)) + reps
    if len(reps) > a.ndim:
        a = lax.expand_dims(a, tuple(range(len(reps) - a.ndim)))
    return lax.tile(a, reps)


@takes_out_sharding
def repeat(a, repeats, axis=None, *, total_repeat_length=None, out_sharding=None):
    """Each element (or subarray along an axis) repeated.

    Args:
      repeats: number of repeats, or one number for each element. It must be known while tracing unless
        `total_repeat_length` is given.
      axis: axis of the subarrays. Without it, the elements of the flattened array are repeated.
      total_repeat_length: the length of the result, which is cut, or filled with the last element.

    >>> jnp.repeat(jnp.array([7, 8, 9]), jnp.array([1, 0, 3]))
    Array([7, 9, 9, 9], dtype=int32)
    """
    check_arraylike("repeat", a, *(() if type(repeats) is int else (repeats,)))
    a = asarray(a)
    if axis is None:
        a, axis = lax.reshape(a, (a.size,)) if a.ndim != 1 else a, 0
    axis = static_int(axis, "'axis' argument of jnp.repeat()")
    if total_repeat_length is None:
        repeats = static(
            repeats,
            "When jit-compiling jnp.repeat, the total number of repeats must be static. To fix this, "
            "either specify a static value for `repeats`, or pass a static value to `total_repeat_length`.",
        )
        if np.ndim(repeats) == 0 and a.ndim != 0:
            return _repeat_all(a, dimension(repeats), axis)
        repeats = host_value(repeats).ravel()
        if a.ndim == 0:
            return _repeat_scalar(a, repeats)
        repeats = (np.broadcast_to if isinstance(repeats, np.ndarray) else broadcast_to)(repeats, (a.shape[axis],))
        total_repeat_length = int(repeats.sum())
    elif isinstance(repeats, DimExpr):
        raise ValueError(
            "jnp.repeat with a non-constant `repeats` is supported only when `total_repeat_length` is None. "
            f"({repeats=} {total_repeat_length=})"
        )
    else:
        repeats = asarray(repeats)
        repeats = broadcast_to(lax.reshape(repeats, (repeats.size,)), (a.shape[axis],))
    return _repeat_each(a, repeats, axis, total_repeat_length)


def _repeat_all(a, times: int, axis: int):
    axis = canonical_axis(axis, a.ndim)
    shape = (*a.shape[: axis + 1], times, *a.shape[axis + 1 :])
    spread = lax.broadcast_in_dim(a, shape, [i for i in range(len(shape)) if i != axis + 1])
    return lax.reshape(spread, (*a.shape[:axis], a.shape[axis] * times, *a.shape[axis + 1 :]))


def _repeat_scalar(a, repeats: np.ndarray):
    if repeats.shape != (1,):
        raise ValueError(
            "`repeat` with a scalar parameter `a` is only implemented for scalar values of the parameter "
            "`repeats`."
        )
    return lax.full((int(repeats[0]),), a)


def _repeat_each(a, repeats, axis: int, length: int):
    """Repeat by a gather whose indices grow by one at the beginning of each element."""
    if length == 0:
        shape = list(a.shape)
        shape[axis] = 0
        return lax.full(shape, 0, a.dtype)
    if a.shape[axis] == 0:
        return a
    starts = cumsum(asarray(roll(repeats, shift=1)).at[0].set(0))
    steps = zeros([length], dtype=_I32).at[starts].add(1)
    return take(a, subtract(cumsum(steps), 1), axis=axis)


@jit(static_argnames=("axis",))
def append(arr, values, axis=None):
    """`values` appended to `arr` along an axis. Without an axis, both are flattened first.

    Returns:
      Array of the promoted dtype. Without `axis`, it has one axis.

    Raises:
      TypeError: the shapes differ along other axes than `axis`.

    >>> jnp.append(jnp.array([1, 2]), jnp.array([[3], [4]]))
    Array([1, 2, 3, 4], dtype=int32)
    """
    if axis is None:
        arr, values = (ensure_arraylike("ravel", x) for x in (arr, values))
        return concatenate([lax.reshape(arr, (arr.size,)), lax.reshape(values, (values.size,))])
    return concatenate([arr, values], axis=axis)


def resize(a, new_shape):
    """The elements of `a` in row-major order, repeated or cut to fill the shape.

    >>> jnp.resize(jnp.array([1, 2, 3]), (2, 2))
    Array([[1, 2],
           [3, 1]], dtype=int32)
    """
    return _resize(a, index_tuple(new_shape))


def _resize(a, new_shape):
    check_arraylike("resize", a)
    if any(n < 0 for n in new_shape):
        raise ValueError("all elements of `new_shape` must be non-negative")
    flat = ravel(a)
    size = math.prod(new_shape)
    if flat.size == 0 or size == 0:
        return lax.full_like(flat, 0, shape=new_shape)
    repeated = tile(flat, -(-size // flat.size))
    if repeated.size != size:
        repeated = lax.slice(repeated, (0,), (size,))
    return lax.reshape(repeated, new_shape)


_resize.__name__ = "resize"
_resize = jit(_resize, static_argnames=("new_shape",))
