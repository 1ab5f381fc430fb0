"""Arithmetic of arrays: sums, products, quotients, remainders, powers, by NumPy's rules."""

from __future__ import annotations

import operator

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.tracing.tracer import Tracer
from mpijax.numpy.ufuncs.logic import equal, logical_and, not_equal
from mpijax.numpy.util import (
    _where,
    as_array,
    check_arraylike,
    check_no_float0s,
    convert,
    ensure_arraylike,
    is_complex,
    is_inexact,
    is_integer,
    number_beside,
    promote_args,
    promote_args_inexact,
    promote_args_numeric,
    promote_dtypes,
    promote_dtypes_numeric,
    promote_pair,
    promote_shapes,
    scalar_like,
    strong_like,
    unwrap,
)
from mpijax.transforms.jit import jit

_BOOL = np.dtype(bool)


def add(x, y, /):
    """x + y, elementwise; for bools the logical or.

    Raises:
      TypeError: an argument is not an array or number (for example a list), or the shapes do not broadcast.

    >>> jnp.add(jnp.array([[1], [2]]), jnp.array([10, 20]))
    Array([[11, 21],
           [12, 22]], dtype=int32)
    >>> jnp.add.accumulate(jnp.array([1, 2, 3]))
    Array([1, 3, 6], dtype=int32)
    """
    x, y = promote_pair("add", x, y)
    return lax.add(x, y) if x.dtype != _BOOL else lax.bitwise_or(x, y)


def subtract(x, y, /):
    """x - y, elementwise.

    Raises TypeError for bools.

    >>> jnp.subtract(jnp.array([5, 7]), 2)
    Array([3, 5], dtype=int32)
    >>> jnp.subtract.outer(jnp.array([10, 20]), jnp.array([1, 2]))
    Array([[ 9,  8],
           [19, 18]], dtype=int32)
    """
    x, y = promote_pair("subtract", x, y)
    return lax.sub(x, y)


def multiply(x, y, /):
    """x * y, elementwise; for bools the logical and.

    >>> jnp.multiply(jnp.array([1, 2, 3]), 0.5)
    Array([0.5, 1. , 1.5], dtype=float32, weak_type=True)
    >>> jnp.multiply.reduce(jnp.array([[1, 2], [3, 4]]))
    Array([3, 8], dtype=int32)
    """
    if getattr(x, "dtype", None) is _BOOL or getattr(y, "dtype", None) is _BOOL:
        return _masked_product(x, y)
    return _product(x, y)


def _product(x, y):
    x, y = promote_pair("multiply", x, y)
    return lax.mul(x, y) if x.dtype != _BOOL else lax.bitwise_and(x, y)


# One program, in which inf * False is 0 (`mpijax.compiler.graph.masks`).
_masked_product = jit(_product, inline=True)


_FLOATS = frozenset(d for d in dtypes.valid_dtypes if is_inexact(d))


def true_divide(x1, x2, /):
    """x1 / x2, elementwise; integers become floats first.

    >>> jnp.true_divide(jnp.array([1, 2, 3]), 4)
    Array([0.25, 0.5 , 0.75], dtype=float32)
    """
    aval = getattr(x1, "aval", None)
    if aval is not None and aval.dtype in _FLOATS:
        x1, x2 = promote_pair("true_divide", x1, x2)
    else:
        x1, x2 = promote_args_inexact("true_divide", x1, x2)
    return lax.div(x1, x2)


def divide(x1, x2, /):
    """x1 / x2, elementwise; integers become floats first.

    The arguments broadcast; x / 0 is an infinity, 0 / 0 NaN.

    >>> jnp.divide(jnp.array([6.0, -1.0, 0.0]), jnp.array([4.0, 0.0, 0.0]))
    Array([ 1.5, -inf,  nan], dtype=float32)
    """
    return true_divide(x1, x2)


def negative(x, /):
    """-x, elementwise.

    The dtype is that of x. Raises TypeError for bools.

    >>> jnp.negative(jnp.array([1, -2, 0]))
    Array([-1,  2,  0], dtype=int32)
    """
    return lax.neg(*promote_args("negative", x))


def positive(x, /):
    """x itself.

    Its dtype is kept.

    >>> jnp.positive(jnp.array([-1.5, 2.0]))
    Array([-1.5,  2. ], dtype=float32)
    """
    return as_array(*promote_args("positive", x))


def absolute(x, /):
    """Absolute value, elementwise; for complex numbers the modulus.

    The dtype is that of x; for complex x it is the real dtype of the same precision.

    >>> jnp.absolute(jnp.array([3 + 4j, -2]))
    Array([5., 2.], dtype=float32)
    """
    x = ensure_arraylike("absolute", x)
    if x.dtype == _BOOL or dtypes.issubdtype(x.dtype, np.unsignedinteger):
        return x
    return lax.abs(x)


def abs(x, /):
    """Absolute value, elementwise; for complex numbers the modulus.

    The dtype is that of x; for complex x it is the real dtype of the same precision.

    >>> jnp.abs(jnp.array([-3, 0, 2]))
    Array([3, 0, 2], dtype=int32)
    """
    return absolute(x)


def sign(x, /):
    """The sign of x, elementwise: -1, 0 or 1; for complex numbers x / abs(x).

    The sign of NaN is NaN. The dtype is that of x. Raises TypeError for bools.

    >>> jnp.sign(jnp.array([-2.5, 0.0, 3.0]))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    return lax.sign(*promote_args("sign", x))


def maximum(x, y, /):
    """The larger of x and y, elementwise; NaN if either is NaN.

    Complex numbers are compared by their real part, then by their imaginary part.

    >>> jnp.maximum(jnp.array([1.0, jnp.nan, 3.0]), 2.0)
    Array([ 2., nan,  3.], dtype=float32)
    """
    x, y = promote_pair("maximum", x, y)
    return lax.max(x, y)


def minimum(x, y, /):
    """The smaller of x and y, elementwise; NaN if either is NaN.

    Complex numbers are compared by their real part, then by their imaginary part.

    >>> jnp.minimum(jnp.array([1.0, jnp.nan, 3.0]), 2.0)
    Array([ 1., nan,  2.], dtype=float32)
    """
    x, y = promote_pair("minimum", x, y)
    return lax.min(x, y)


@jit
def floor_divide(x1, x2, /):
    """The largest integer <= x1 / x2, elementwise, in the promoted dtype.

    The result of an integer division by 0 is undefined. Raises TypeError for complex numbers.

    >>> jnp.floor_divide(jnp.array([7, -7]), 2)
    Array([ 3, -4], dtype=int32)
    """
    x1, x2 = promote_args_numeric("floor_divide", x1, x2)
    if dtypes.issubdtype(x1.dtype, np.unsignedinteger):
        return lax.div(x1, x2)
    if is_integer(x1.dtype):
        quotient = lax.div(x1, x2)
        signs_differ = lax.ne(lax.sign(x1), lax.sign(x2))
        rest = lax.rem(x1, x2)
        inexact = lax.ne(rest, number_beside(rest, 0))
        return _where(
            logical_and(signs_differ, inexact), lax.sub(quotient, number_beside(quotient, 1)), quotient
        )
    if is_complex(x1.dtype):
        raise TypeError("floor_divide does not support complex-valued inputs")
    return _float_divmod(x1, x2)[0]


@jit
def divmod(x1, x2, /):
    """(floor_divide(x1, x2), remainder(x1, x2)).

    Raises:
      TypeError: an argument is complex.

    >>> jnp.divmod(jnp.array([7, -7]), 3)
    (Array([ 2, -3], dtype=int32), Array([1, 2], dtype=int32))
    """
    x1, x2 = promote_args_numeric("divmod", x1, x2)
    if is_integer(x1.dtype):
        return floor_divide(x1, x2), remainder(x1, x2)
    return _float_divmod(x1, x2)


def _float_divmod(x1, x2):
    """The quotient rounded down, and the remainder with the sign of x2."""
    rest = lax.rem(x1, x2)
    exact = _where(lax.eq(x2, number_beside(x2, 0)), x1, lax.sub(x1, rest))
    quotient = lax.div(exact, x2)
    nonzero = lax.ne(rest, number_beside(rest, 0))
    wrong_sign = lax.bitwise_and(nonzero, lax.ne(lax.sign(x2), lax.sign(rest)))
    rest = lax.select(wrong_sign, lax.add(rest, x2), rest)
    quotient = lax.select(wrong_sign, lax.sub(quotient, number_beside(quotient, 1.0)), quotient)
    return lax.round(quotient), rest


@jit
def remainder(x1, x2, /):
    """x1 modulo x2, elementwise, with the sign of x2. Integers modulo 0 give 0.

    >>> jnp.remainder(jnp.array([5.5, -5.5]), 2)
    Array([1.5, 0.5], dtype=float32)
    """
    x1, x2 = promote_args_numeric("remainder", x1, x2)
    zero = strong_like(x1, 0)
    if is_integer(x2.dtype):
        x2 = _where(lax.eq(x2, number_beside(x2, 0)), lax.full_like(x2, 1), x2)
    rest = lax.rem(x1, x2)
    nonzero = lax.ne(rest, zero)
    wrong_sign = lax.bitwise_and(lax.ne(lax.lt(rest, zero), lax.lt(x2, zero)), nonzero)
    return lax.select(wrong_sign, lax.add(rest, x2), rest)


def mod(x1, x2, /):
    """x1 modulo x2, elementwise, with the sign of x2.

    >>> jnp.mod(jnp.array([7, -7]), 3)
    Array([1, 2], dtype=int32)
    """
    return remainder(x1, x2)


@jit
def fmod(x1, x2, /):
    """The remainder of x1 / x2 rounded towards zero, elementwise, with the sign of x1.

    Raises:
      TypeError: an argument is complex.

    >>> jnp.fmod(jnp.array([7, -7]), 3)
    Array([ 1, -1], dtype=int32)
    """
    x1, x2 = ensure_arraylike("fmod", x1, x2)
    if is_integer(dtypes.result_type(x1, x2)):
        x2 = _where(equal(x2, 0), lax.full_like(x2, 1), x2)
    return lax.rem(*promote_args_numeric("fmod", x1, x2))


def _known_int(x):
    """The exponent as a Python int if it is an integer known while tracing, else None."""
    if isinstance(x, Tracer):
        x = x.concrete()
    try:
        return operator.index(x)
    except TypeError:
        return None


def power(x1, x2, /):
    """x1 ** x2, elementwise.

    A known integer exponent (such as a Python int) becomes repeated multiplication. Integers
    to the power of an integer array wrap around on overflow, and give 0 for a negative exponent.

    >>> jnp.power(jnp.array([2, 3, 4]), jnp.array([3, 2, 1]))
    Array([8, 9, 4], dtype=int32)
    """
    check_arraylike("power", x1, x2)
    x1, x2 = unwrap(x1), unwrap(x2)
    check_no_float0s("power", x1, x2)
    exponent = _known_int(x2)
    if exponent is not None:
        (x1,) = promote_dtypes_numeric(x1)
        return lax.integer_pow(x1, exponent)
    return _power(x1, x2)


def pow(x1, x2, /):
    """x1 ** x2, elementwise.

    See `power`.

    >>> jnp.pow(jnp.array([2.0, 3.0]), 2)
    Array([4., 9.], dtype=float32)
    """
    return power(x1, x2)


@jit(inline=True)
def _power(x1, x2):
    x1, x2 = promote_shapes("power", as_array(x1), as_array(x2))
    base, exponent = promote_args_numeric("power", x1, x2)
    if is_integer(base.dtype):
        return _integer_power(base, exponent)
    if is_inexact(x1.dtype) and is_integer(x2.dtype):
        # lax raises to integer powers itself; the exponent stays exact.
        return lax.pow(x1, x2)
    return lax.pow(base, exponent)


def _integer_power(x, exponent):
    """x ** exponent by squaring. It uses 6 bits of the exponent: with more, any base except 0 and +-1 overflows."""
    zero, one = strong_like(exponent, 0), strong_like(exponent, 1)
    result = _where(lax.bitwise_and(lax.eq(x, zero), lax.ne(exponent, zero)), zero, one)
    for _ in range(6):
        result = _where(lax.bitwise_and(exponent, one), lax.mul(result, x), result)
        x = lax.mul(x, x)
        exponent = lax.shift_right_logical(exponent, one)
    return result


def float_power(x, y, /):
    """x ** y, elementwise, in floating point.

    Integers become floats first. A negative number to a power that is not an integer gives NaN.

    >>> jnp.float_power(jnp.array([2, 4]), -2)
    Array([0.25  , 0.0625], dtype=float32)
    """
    return lax.pow(*promote_args_inexact("float_power", x, y))


@jit
def gcd(x1, x2):
    """Greatest common divisor of the absolute values of integers, elementwise.

    The result for the most negative integer with itself or 0 overflows to that integer, as in NumPy.

    Raises:
      ValueError: an argument is not of an integer dtype.

    >>> jnp.gcd(jnp.array([12, 18, 0]), 8)
    Array([4, 2, 8], dtype=int32)
    """
    x1, x2 = promote_dtypes(*ensure_arraylike("gcd", x1, x2))
    if not is_integer(x1.dtype):
        raise ValueError("Arguments to jax.numpy.gcd must be integers.")
    shape = lax.broadcast_shapes(x1.shape, x2.shape)
    rank = len(shape)
    x1, x2 = (
        x if x.shape == shape else lax.broadcast_in_dim(x, shape, range(rank - x.ndim, rank))
        for x in (x1, x2)
    )
    # The most negative integer has no absolute value, so the steps and the result may be negative.
    divisor = absolute(lax.while_loop(_gcd_unfinished, _gcd_step, (absolute(x1), absolute(x2)))[0])
    return convert(divisor, divisor.dtype) if shape else divisor  # weakly typed if it is one number, as in JAX


def _gcd_unfinished(pair):
    x2 = pair[1]
    return lax.reduce_or(convert(not_equal(x2, 0), _BOOL), tuple(range(x2.ndim)))


def _gcd_step(pair):
    """One step of Euclid's algorithm where it has not ended. JAX's step also puts the larger number first, which it is
    but for its sign, and so does not end where there is a sign."""
    x1, x2 = pair
    going = not_equal(x2, 0)
    return _where(going, x2, x1), _where(going, lax.rem(x1, x2), scalar_like(x2, 0))


@jit
def lcm(x1, x2):
    """Least common multiple of the absolute values of integers, elementwise.

    Raises:
      ValueError: an argument is not of an integer dtype.

    >>> jnp.lcm(jnp.array([4, 6]), jnp.array([6, 7]))
    Array([12, 42], dtype=int32)
    """
    x1, x2 = promote_dtypes(*ensure_arraylike("lcm", x1, x2))
    x1, x2 = absolute(x1), absolute(x2)
    if not is_integer(x1.dtype):
        raise ValueError("Arguments to jax.numpy.lcm must be integers.")
    divisor = gcd(x1, x2)
    at_zero = lax.eq(divisor, number_beside(divisor, 0))
    return _where(at_zero, scalar_like(divisor, 0), multiply(x1, floor_divide(x2, divisor)))
