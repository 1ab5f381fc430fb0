"""Comparisons, logical and bitwise functions, and tests for NaN, infinite and close values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.ufuncs.complexes import imag
from mpijax.numpy.util import (
    as_array,
    check_arraylike,
    convert,
    ensure_arraylike,
    is_complex,
    is_float,
    promote_args,
    promote_args_inexact,
    promote_args_numeric,
    promote_pair,
    scalar_like,
    strong_like,
)
from mpijax.transforms.jit import jit

_BOOL = np.dtype(bool)


# -- comparisons ---------------------------------------------------------------------------------------------


def equal(x, y, /):
    """x == y, elementwise.

    NaN is not equal to any value.

    >>> jnp.equal(jnp.array([1.0, 2.0, jnp.nan]), jnp.array([1.0, 3.0, jnp.nan]))
    Array([ True, False, False], dtype=bool)
    """
    x, y = promote_pair("equal", x, y)
    return lax.eq(x, y)


def not_equal(x, y, /):
    """x != y, elementwise.

    >>> jnp.not_equal(jnp.array([1, 2, 3]), 2)
    Array([ True, False,  True], dtype=bool)
    """
    x, y = promote_pair("not_equal", x, y)
    return lax.ne(x, y)


def _ordering(name: str, op: Callable[[Any, Any], Any], summary: str, result: str) -> Callable[[Any, Any], Any]:
    """The comparison `name`; its docstring shows the `result` of it between 1, 2, 3 and 2."""

    def fun(x, y, /):
        x, y = promote_pair(name, x, y)
        if x.dtype.kind == "c":
            tied = lax.eq(lax.real(x), lax.real(y))
            return lax.select(tied, op(lax.imag(x), lax.imag(y)), op(lax.real(x), lax.real(y)))
        return op(x, y)

    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = f"""{summary}, elementwise. Complex numbers are compared by real, then by imaginary part.

    >>> jnp.{name}(jnp.array([1, 2, 3]), 2)
    Array({result}, dtype=bool)
    """
    return fun


less = _ordering("less", lax.lt, "x < y", "[ True, False, False]")
less_equal = _ordering("less_equal", lax.le, "x <= y", "[ True,  True, False]")
greater = _ordering("greater", lax.gt, "x > y", "[False, False,  True]")
greater_equal = _ordering("greater_equal", lax.ge, "x >= y", "[False,  True,  True]")


# -- logical and bitwise -------------------------------------------------------------------------------------


def to_bool(x):
    """Whether elements differ from 0."""
    return x if x.dtype == _BOOL else lax.ne(x, scalar_like(x, 0))


def logical_and(x, y, /):
    """Whether both are true (nonzero), elementwise.

    >>> jnp.logical_and(jnp.array([0, 1, 2]), jnp.array([True, True, False]))
    Array([False,  True, False], dtype=bool)
    """
    x, y = promote_pair("logical_and", x, y)
    return lax.bitwise_and(to_bool(x), to_bool(y))


def logical_or(x, y, /):
    """Whether either is true (nonzero), elementwise.

    >>> jnp.logical_or(jnp.array([0, 1, 0]), jnp.array([True, True, False]))
    Array([ True,  True, False], dtype=bool)
    """
    x, y = promote_pair("logical_or", x, y)
    return lax.bitwise_or(to_bool(x), to_bool(y))


def logical_xor(x, y, /):
    """Whether exactly one is true (nonzero), elementwise.

    >>> jnp.logical_xor(jnp.array([0, 1, 2]), jnp.array([True, True, False]))
    Array([ True, False,  True], dtype=bool)
    """
    x, y = promote_pair("logical_xor", x, y)
    return lax.bitwise_xor(to_bool(x), to_bool(y))


def logical_not(x, /):
    """Whether x is false (zero), elementwise.

    >>> jnp.logical_not(jnp.array([0, 0.5, jnp.nan]))
    Array([ True, False, False], dtype=bool)
    """
    (x,) = promote_args("logical_not", x)
    return lax.bitwise_not(to_bool(x))


def bitwise_and(x, y, /):
    """x & y, elementwise, of integers or bools.

    Raises:
      TypeError: an argument is a float or complex.

    >>> jnp.bitwise_and(jnp.array([12, 10]), 6)
    Array([4, 2], dtype=int32)
    """
    x, y = promote_pair("bitwise_and", x, y)
    return lax.bitwise_and(x, y)


def bitwise_or(x, y, /):
    """x | y, elementwise, of integers or bools.

    Raises:
      TypeError: an argument is a float or complex.

    >>> jnp.bitwise_or(jnp.array([12, 10]), 6)
    Array([14, 14], dtype=int32)
    """
    x, y = promote_pair("bitwise_or", x, y)
    return lax.bitwise_or(x, y)


def bitwise_xor(x, y, /):
    """x ^ y, elementwise, of integers or bools.

    Raises:
      TypeError: an argument is a float or complex.

    >>> jnp.bitwise_xor(jnp.array([12, 10]), 6)
    Array([10, 12], dtype=int32)
    """
    x, y = promote_pair("bitwise_xor", x, y)
    return lax.bitwise_xor(x, y)


def bitwise_not(x, /):
    """~x, elementwise, of integers or bools.

    >>> jnp.bitwise_not(jnp.array([0, 5], dtype=jnp.uint8))
    Array([255, 250], dtype=uint8)
    """
    return lax.bitwise_not(*promote_args("bitwise_not", x))


def bitwise_invert(x, /):
    """~x, elementwise, of integers or bools.

    >>> jnp.bitwise_invert(jnp.array([True, False]))
    Array([False,  True], dtype=bool)
    """
    return lax.bitwise_not(*promote_args("bitwise_invert", x))


def invert(x, /):
    """~x, elementwise, of integers or bools.

    Raises:
      TypeError: x is a float or complex.

    >>> jnp.invert(jnp.array([0, 5, -1]))
    Array([-1, -6,  0], dtype=int32)
    """
    return lax.bitwise_not(*promote_args("invert", x))


def left_shift(x, y, /):
    """x << y, elementwise, of integers.

    A shift by the number of bits or more gives 0.

    >>> jnp.left_shift(1, jnp.array([0, 3, 32]))
    Array([1, 8, 0], dtype=int32)
    """
    return lax.shift_left(*promote_args_numeric("left_shift", x, y))


def bitwise_left_shift(x, y, /):
    """x << y, elementwise, of integers.

    >>> jnp.bitwise_left_shift(jnp.array([1, 5]), 2)
    Array([ 4, 20], dtype=int32)
    """
    return lax.shift_left(*promote_args_numeric("bitwise_left_shift", x, y))


def right_shift(x1, x2, /):
    """x1 >> x2, elementwise, of integers. Signed integers keep their sign.

    >>> jnp.right_shift(jnp.array([20, -20]), 2)
    Array([ 5, -5], dtype=int32)
    """
    x1, x2 = promote_args_numeric("right_shift", x1, x2)
    if dtypes.issubdtype(x1.dtype, np.unsignedinteger):
        return lax.shift_right_logical(x1, x2)
    return lax.shift_right_arithmetic(x1, x2)


def bitwise_right_shift(x1, x2, /):
    """x1 >> x2, elementwise, of integers. Signed integers keep their sign.

    >>> jnp.bitwise_right_shift(jnp.array([20, -20]), 2)
    Array([ 5, -5], dtype=int32)
    """
    return right_shift(x1, x2)


# -- what values are -----------------------------------------------------------------------------------------


def isnan(x, /):
    """Whether x is NaN, elementwise.

    >>> jnp.isnan(jnp.array([1.0, jnp.nan, jnp.inf]))
    Array([False,  True, False], dtype=bool)
    """
    x = ensure_arraylike("isnan", x)
    return lax.ne(x, x)


@jit(inline=True)
def isfinite(x, /):
    """Whether x is neither NaN nor infinite, elementwise.

    >>> jnp.isfinite(jnp.array([1.0, jnp.nan, jnp.inf]))
    Array([ True, False, False], dtype=bool)
    """
    x = ensure_arraylike("isfinite", x)
    if is_float(x.dtype):
        return lax.is_finite(x)
    if is_complex(x.dtype):
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    return lax.full_like(x, True, dtype=_BOOL)


@jit
def isinf(x, /):
    """Whether x is infinite, elementwise.

    >>> jnp.isinf(jnp.array([1.0, jnp.nan, -jnp.inf]))
    Array([False, False,  True], dtype=bool)
    """
    x = ensure_arraylike("isinf", x)
    if is_float(x.dtype):
        return lax.eq(lax.abs(x), strong_like(x, np.inf))
    if is_complex(x.dtype):
        re, im = lax.real(x), lax.imag(x)
        inf = strong_like(re, np.inf)
        return lax.bitwise_or(lax.eq(lax.abs(re), inf), lax.eq(lax.abs(im), inf))
    return lax.full_like(x, False, dtype=_BOOL)


def _is_signed_infinity(x, infinity: float, out):
    if out is not None:
        raise NotImplementedError("The 'out' argument to isneginf/isposinf is not supported.")
    if is_float(x.dtype):
        return lax.eq(x, strong_like(x, infinity))
    if is_complex(x.dtype):
        raise ValueError("isposinf/isneginf are not well defined for complex types")
    return lax.full_like(x, False, dtype=_BOOL)


def isposinf(x, /, out=None):
    """Whether x is positive infinity, elementwise.

    Raises:
      ValueError: x is complex.

    >>> jnp.isposinf(jnp.array([jnp.inf, -jnp.inf, 1.0]))
    Array([ True, False, False], dtype=bool)
    """
    return _is_signed_infinity(ensure_arraylike("isposinf", x), np.inf, out)


def isneginf(x, /, out=None):
    """Whether x is negative infinity, elementwise.

    Raises:
      ValueError: x is complex.

    >>> jnp.isneginf(jnp.array([jnp.inf, -jnp.inf, 1.0]))
    Array([False,  True, False], dtype=bool)
    """
    return _is_signed_infinity(ensure_arraylike("isneginf", x), -np.inf, out)


# -- equality of arrays --------------------------------------------------------------------------------------


def _all(x):
    return lax.reduce_and(convert(x, _BOOL), tuple(range(x.ndim)))


@jit(static_argnames=("equal_nan",))
def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether abs(a - b) <= atol + rtol * abs(b), elementwise.

    An infinity is close to itself. NaN is close to NaN if `equal_nan`.

    >>> jnp.isclose(jnp.array([1.0, 1.1, jnp.nan]), jnp.array([1.000001, 1.0, jnp.nan]), equal_nan=True)
    Array([ True, False,  True], dtype=bool)
    """
    a, b = promote_args("isclose", a, b)
    if dtypes.issubdtype(a.dtype, dtypes.extended):
        return lax.eq(a, b)
    a, b = promote_args_inexact("isclose", a, b)
    tolerance = dtypes.to_floating_dtype(a.dtype)
    rtol, atol = convert(rtol, tolerance), convert(atol, tolerance)
    both_nan = logical_and(isnan(a), isnan(b))
    finite = isfinite(b)
    within = lax.le(lax.abs(lax.sub(a, b)), lax.add(atol, lax.mul(rtol, lax.abs(b))))
    close = logical_or(lax.eq(a, b), logical_and(finite, within))
    return logical_or(close, both_nan) if equal_nan else close


@jit(static_argnames=("equal_nan",))
def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether all elements are close; see `isclose`.

    Returns:
      A bool scalar; the arguments broadcast.

    >>> jnp.allclose(jnp.array([1.0, 2.0]), jnp.array([1.0, 2.001]), rtol=1e-2)
    Array(True, dtype=bool)
    """
    check_arraylike("allclose", a, b)
    return _all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1, a2, equal_nan=False):
    """Whether two arrays have the same shape and equal elements.

    The result is a scalar of dtype bool. NaN equals NaN if `equal_nan`.

    >>> jnp.array_equal(jnp.array([1, 2]), jnp.array([[1, 2]]))
    Array(False, dtype=bool)
    """
    a1, a2 = asarray(a1), asarray(a2)
    if a1.shape != a2.shape:
        return as_array(False)
    same = equal(a1, a2)
    if equal_nan:
        same = logical_or(same, logical_and(isnan(a1), isnan(a2)))
    return _all(same)


def array_equiv(a1, a2):
    """Whether two arrays are equal after broadcasting. False if they do not broadcast.

    The result is a scalar of dtype bool.

    >>> jnp.array_equiv(jnp.array([1, 2]), jnp.array([[1, 2], [1, 2]]))
    Array(True, dtype=bool)
    """
    a1, a2 = asarray(a1), asarray(a2)
    try:
        lax.broadcast_shapes(a1.shape, a2.shape)
    except ValueError:
        return as_array(False)
    return _all(equal(a1, a2))


@jit
def iscomplex(x):
    """Whether the imaginary part is not 0, elementwise.

    >>> jnp.iscomplex(jnp.array([1 + 2j, 3]))
    Array([ True, False], dtype=bool)
    """
    im = imag(x)
    return lax.ne(im, scalar_like(im, 0))


@jit
def isreal(x):
    """Whether the imaginary part is 0, elementwise.

    >>> jnp.isreal(jnp.array([1 + 2j, 3]))
    Array([False,  True], dtype=bool)
    """
    im = imag(x)
    return lax.eq(im, scalar_like(im, 0))
