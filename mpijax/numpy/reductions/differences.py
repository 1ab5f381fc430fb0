"""Differences of neighbouring elements: finite differences, gradients, integrals by trapezoids, unwrapped angles."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.util import (
    broadcast_to,
    canonical_axis,
    ensure_arraylike,
    index_tuple,
    promote_dtypes,
    promote_dtypes_inexact,
    static_int,
)
from mpijax.transforms.jit import jit


@jit(static_argnames=("n", "axis"))
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbouring elements along an axis, taken `n` times. For bools, whether neighbours differ.

    Args:
      a: array with at least one axis.
      n: number of times; each time makes the axis shorter by 1.
      axis: axis to take differences along.
      prepend, append: values to put before and after `a` first. A scalar is one element along the axis.

    Raises:
      ValueError: `a` has no axis, or `n` is negative.

    >>> jnp.diff(jnp.array([1, 4, 9, 16]), n=2)
    Array([2, 2], dtype=int32)
    """
    arr = ensure_arraylike("diff", a)
    n = static_int(n, "'n' argument of jnp.diff")
    axis = static_int(axis, "'axis' argument of jnp.diff")
    if n == 0:
        return arr
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if arr.ndim == 0:
        raise ValueError(f"diff requires input that is at least one dimensional; got {a}")
    axis = canonical_axis(axis, arr.ndim)
    pieces = [_beside(prepend, arr, axis), arr, _beside(append, arr, axis)]
    pieces = [piece for piece in pieces if piece is not None]
    if len(pieces) > 1:
        arr = jnp.concatenate(pieces, axis)
    before = (slice(None),) * axis
    difference = operator.ne if arr.dtype == np.bool_ else operator.sub
    for _ in range(n):
        arr = difference(arr[(*before, slice(1, None))], arr[(*before, slice(None, -1))])
    return arr


def _beside(value: Any, arr: Any, axis: int) -> Any:
    """The array to put before or after `arr` along an axis; None if there is none."""
    if value is None:
        return None
    value = ensure_arraylike("diff", value)
    if value.ndim:
        return value
    return broadcast_to(value, tuple(1 if i == axis else d for i, d in enumerate(arr.shape)))


@jit
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Differences of neighbouring elements of the flattened array, with `to_begin` before and `to_end` after them.

    >>> jnp.ediff1d(jnp.array([1, 4, 9]), to_begin=0)
    Array([0, 3, 5], dtype=int32)
    """
    arr = ensure_arraylike("ediff1d", ary).ravel()
    result = lax.sub(arr[1:], arr[:-1])
    if to_begin is not None:
        to_begin = ensure_arraylike("ediff1d", to_begin)
        result = jnp.concatenate((to_begin.astype(arr.dtype).ravel(), result))
    if to_end is not None:
        to_end = ensure_arraylike("ediff1d", to_end)
        result = jnp.concatenate((result, to_end.astype(arr.dtype).ravel()))
    return result


@jit(static_argnames=("axis", "edge_order"))
def gradient(f: Any, *varargs: Any, axis: int | Sequence[int] | None = None, edge_order: int | None = None) -> Any:
    """Gradient of sampled values: central differences inside, one-sided differences at the ends.

    Args:
      f: array of samples, with at least 2 along each axis in `axis`.
      varargs: the spacing of the samples: none (a spacing of 1), one for all axes, or one for each axis. A spacing is a
        number, or an array of the positions of the samples.
      axis: axis or axes; default all.
      edge_order: not supported.

    Returns:
      An array with the shape of `f` for one axis, else a list with an array for each axis.

    Raises:
      ValueError: fewer than two samples along an axis.

    >>> jnp.gradient(jnp.array([0.0, 1.0, 4.0, 9.0]))
    Array([1., 2., 4., 5.], dtype=float32)
    """
    if edge_order is not None:
        raise NotImplementedError("The 'edge_order' argument to jnp.gradient is not supported.")
    a, *spacing = promote_dtypes_inexact(f, *varargs)
    if axis is None:
        axes: tuple[int, ...] = tuple(range(a.ndim))
    else:
        axes = tuple(canonical_axis(i, a.ndim) for i in index_tuple(axis))
    if not axes:
        return []
    if min(a.shape[i] for i in axes) < 2:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least 2 elements are required."
        )
    if len(spacing) < 2:
        spacing = (spacing or [1.0]) * len(axes)
    if len(spacing) != len(axes):
        raise TypeError(f"Invalid number of spacing arguments {len(spacing)} for axis={axis!r}")
    slopes = [_slopes(a, h, i) for i, h in zip(axes, spacing, strict=True)]
    return slopes[0] if len(axes) == 1 else slopes


def _slopes(a: Any, h: Any, axis: int) -> Any:
    part = partial(lax.slice_in_dim, a, axis=axis)
    first, last = part(1, 2) - part(0, 1), part(-1, None) - part(-2, -1)
    if np.ndim(h) == 0:
        inner = (part(2, None) - part(None, -2)) * 0.5 / h
        return jnp.concatenate((first / h, inner, last / h), axis=axis)
    if np.ndim(h) > 1:
        raise ValueError("Spacing arrays must be 1D arrays or scalars.")
    if len(h) != a.shape[axis]:
        raise ValueError(
            "Spacing arrays must have the same length as the dimension along which the gradient is calculated."
        )
    x = partial(lax.slice_in_dim, h.reshape([-1 if i == axis else 1 for i in range(a.ndim)]), axis=axis)
    # The slope in the middle of the parabola through three neighbours, spaced by `left` and `right`.
    left, right = x(1, -1) - x(0, -2), x(2, None) - x(1, -1)
    inner = (
        -right / (left * (left + right)) * part(0, -2)
        + (right - left) / (left * right) * part(1, -1)
        + left / (right * (left + right)) * part(2, None)
    )
    first, last = first / (x(1, 2) - x(0, 1)), last / (x(-1, None) - x(-2, -1))
    return jnp.concatenate((first, inner, last), axis=axis)


@jit(static_argnames=("axis",))
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """Integral of sampled values along an axis, by the trapezoidal rule.

    Args:
      y: samples.
      x: positions of the samples: with the shape of `y`, or with one axis.
      dx: distances of the positions, if `x` is not given: a number or an array.
      axis: axis to integrate along.

    >>> jnp.trapezoid(jnp.array([0.0, 1.0, 4.0]), x=jnp.array([0.0, 1.0, 3.0]))
    Array(5.5, dtype=float32)
    """
    if x is None:
        (y,) = promote_dtypes_inexact(ensure_arraylike("trapezoid", y))
        widths = jnp.asarray(dx)
        if widths.ndim:
            widths = jnp.moveaxis(lax.expand_dims(widths, range(y.ndim - widths.ndim)), axis, -1)
    else:
        y, x = promote_dtypes_inexact(*ensure_arraylike("trapezoid", y, x))
        widths = diff(x) if x.ndim == 1 else jnp.moveaxis(diff(x, axis=axis), axis, -1)
    y = jnp.moveaxis(y, axis, -1)
    if widths.ndim == 0 or widths.shape[-1] == 1:
        width = widths if widths.ndim == 0 else widths[..., 0]
        return width * (y.sum(-1) - 0.5 * (y[..., 0] + y[..., -1]))
    return 0.5 * (widths * (y[..., 1:] + y[..., :-1])).sum(-1)


@jit(static_argnames=("axis",))
def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 2 * np.pi) -> Any:
    """Angles without jumps: adds multiples of `period` such that neighbours along an axis are close.

    Args:
      p: array of angles, or of other real numbers with the period `period`.
      discont: the smallest step that is a jump; default half a period.

    >>> jnp.unwrap(jnp.array([350.0, 358.0, 5.0, 12.0]), period=360)
    Array([350., 358., 365., 372.], dtype=float32)
    """
    p = ensure_arraylike("unwrap", p)
    p, period = promote_dtypes(p, period)
    if dtypes.issubdtype(p.dtype, np.complexfloating):
        raise ValueError("jnp.unwrap does not support complex inputs.")
    if p.shape[axis] == 0:
        return p
    if discont is None:
        discont = period / 2
    half = period // 2 if dtypes.issubdtype(p.dtype, np.integer) else period / 2
    step = diff(p, axis=axis)
    short = jnp.mod(step + half, period) - half
    # A step of half a period may go either way; it keeps its direction.
    short = jnp.where((short == -half) & (step > 0), half, short)
    correction = jnp.where(jnp.abs(step) < discont, 0, short - step)
    rest = lax.slice_in_dim(p, 1, None, axis=axis) + jnp.cumsum(correction, axis=axis)
    return jnp.concatenate((lax.slice_in_dim(p, 0, 1, axis=axis), rest), axis=axis)
