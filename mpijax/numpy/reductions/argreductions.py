"""Positions of the largest and smallest elements."""

from __future__ import annotations

import operator

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.reductions import standard as reductions
from mpijax.numpy.util import _where, canonical_axis, ensure_arraylike, is_inexact
from mpijax.transforms.jit import jit


def _position(name: str, op, a, axis, keepdims: bool):
    dims = tuple(range(a.ndim)) if axis is None else (axis,)
    if axis is None:
        a, axis = lax.reshape(a, (a.size,)), 0
    axis = canonical_axis(axis, a.ndim)
    if a.shape[axis] == 0:
        raise ValueError(f"attempt to get {name} of an empty sequence")
    result = op(a, axis, dtypes.default_int_dtype())
    return lax.expand_dims(result, dims) if keepdims else result


def _arguments(name: str, a, axis, out):
    a = ensure_arraylike(name, a)
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{name} is not supported.")
    return a, None if axis is None else operator.index(axis)


def argmax(a, axis=None, out=None, keepdims=None):
    """The index of the largest element along an axis: the first of equal elements, or the first NaN.

    Without an axis, the index into the elements in row-major order.

    Returns:
      int32 (int64 with jax_enable_x64): a scalar, or an array without the axis (size 1 with `keepdims`).

    Raises:
      ValueError: the array, or the axis, has no elements.

    >>> jnp.argmax(jnp.array([[3, 9, 9], [8, 1, 0]]), axis=1)
    Array([1, 0], dtype=int32)
    """
    a, axis = _arguments("argmax", a, axis, out)
    return _position("argmax", lax.argmax, a, axis, bool(keepdims))


def argmin(a, axis=None, out=None, keepdims=None):
    """The index of the smallest element along an axis: the first of equal elements, or the first NaN.

    Without an axis, the index into the elements in row-major order.

    Result and errors are those of `argmax`.

    >>> jnp.argmin(jnp.array([[3, 9, 9], [8, 1, 0]]), axis=1)
    Array([0, 2], dtype=int32)
    """
    a, axis = _arguments("argmin", a, axis, out)
    return _position("argmin", lax.argmin, a, axis, bool(keepdims))


def nanargmax(a, axis=None, out=None, keepdims=None):
    """The index of the largest element along an axis, ignoring NaN; -1 if all elements are NaN.

    The result is that of `argmax`.

    >>> jnp.nanargmax(jnp.array([[3.0, jnp.nan, 4.0], [jnp.nan, jnp.nan, jnp.nan]]), axis=1)
    Array([ 2, -1], dtype=int32)
    """
    a, axis = _arguments("nanargmax", a, axis, out)
    return _nanargmax(a, axis, bool(keepdims))


def nanargmin(a, axis=None, out=None, keepdims=None):
    """The index of the smallest element along an axis, ignoring NaN; -1 if all elements are NaN.

    The result is that of `argmax`.

    >>> jnp.nanargmin(jnp.array([[3.0, jnp.nan, 4.0], [jnp.nan, jnp.nan, jnp.nan]]), axis=1)
    Array([ 0, -1], dtype=int32)
    """
    a, axis = _arguments("nanargmin", a, axis, out)
    return _nanargmin(a, axis, bool(keepdims))


@jit(static_argnames=("axis", "keepdims"))
def _nanargmax(a, axis=None, keepdims=False):
    return _skipping_nan(argmax, -np.inf, a, axis, keepdims)


@jit(static_argnames=("axis", "keepdims"))
def _nanargmin(a, axis=None, keepdims=False):
    return _skipping_nan(argmin, np.inf, a, axis, keepdims)


def _skipping_nan(position, worst, a, axis, keepdims):
    if not is_inexact(a.dtype):
        return position(a, axis=axis, keepdims=keepdims)
    undefined = lax.ne(a, a)
    result = position(_where(undefined, worst, a), axis=axis, keepdims=keepdims)
    return _where(reductions.all(undefined, axis=axis, keepdims=keepdims), -1, result)
