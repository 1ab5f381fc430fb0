"""Functions of the representation of floats: sign bits, exponents, rounding, neighbours, special values."""

from __future__ import annotations

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.ufuncs.arithmetic import add, maximum, minimum, multiply, power, subtract
from mpijax.numpy.ufuncs.complexes import iscomplexobj
from mpijax.numpy.ufuncs.elementwise import exp2
from mpijax.numpy.ufuncs.logic import bitwise_or, equal, greater, isinf, isnan, isneginf, isposinf, less
from mpijax.numpy.util import (
    _where,
    as_array,
    check_arraylike,
    convert,
    ensure_arraylike,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    number_beside,
    promote_args,
    promote_args_inexact,
    promote_dtypes_inexact,
    scalar_like,
    static_int,
    strong_like,
)
from mpijax.transforms.custom_jvp import custom_jvp
from mpijax.transforms.jit import jit

_BOOL = np.dtype(bool)
_INTEGER_OF_BITS = {16: np.dtype(np.int16), 32: np.dtype(np.int32), 64: np.dtype(np.int64)}


def _is_exact(dtype) -> bool:
    return dtype == _BOOL or is_integer(dtype)


# -- rounding ------------------------------------------------------------------------------------------------


def floor(x, /):
    """The largest integer <= x, elementwise, as a float. Integers and bools do not change.

    Raises:
      TypeError: x is complex.

    >>> jnp.floor(jnp.array([1.7, -1.2]))
    Array([ 1., -2.], dtype=float32)
    """
    x = ensure_arraylike("floor", x)
    return x if _is_exact(x.dtype) else lax.floor(x)


def ceil(x, /):
    """The smallest integer >= x, elementwise, as a float. Integers and bools do not change.

    Raises:
      TypeError: x is complex.

    >>> jnp.ceil(jnp.array([1.2, -1.7]))
    Array([ 2., -1.], dtype=float32)
    """
    x = ensure_arraylike("ceil", x)
    return x if _is_exact(x.dtype) else lax.ceil(x)


@jit
def trunc(x):
    """x rounded towards 0, elementwise.

    Integers and bools do not change.

    >>> jnp.trunc(jnp.array([1.7, -1.7]))
    Array([ 1., -1.], dtype=float32)
    """
    x = ensure_arraylike("trunc", x)
    if _is_exact(x.dtype):
        return x
    return _where(lax.lt(x, scalar_like(x, 0)), lax.ceil(x), lax.floor(x))


@jit
def rint(x, /):
    """x rounded to the nearest integer, elementwise, as a float; halves are rounded to even.

    >>> jnp.rint(jnp.array([0.5, 1.5, -2.7]))
    Array([ 0.,  2., -3.], dtype=float32)
    """
    x = ensure_arraylike("rint", x)
    if _is_exact(x.dtype):
        return convert(x, dtypes.default_float_dtype())
    if is_complex(x.dtype):
        return lax.complex(rint(lax.real(x)), rint(lax.imag(x)))
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


@jit(static_argnames=("decimals",))
def round(a, decimals=0, out=None):
    """x rounded to `decimals` decimal places, elementwise; halves are rounded to even.

    Integers do not change; with negative `decimals` they raise NotImplementedError.

    >>> jnp.round(jnp.array([1.25, 2.675, -3.14159]), 1)
    Array([ 1.2,  2.7, -3.1], dtype=float32)
    """
    a = ensure_arraylike("round", a)
    decimals = static_int(decimals, "'decimals' argument of jnp.round")
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.round is not supported.")
    if is_integer(a.dtype):
        if decimals < 0:
            raise NotImplementedError("integer np.round not implemented for decimals < 0")
        return a
    if decimals > np.log10(float(dtypes.finfo(a.dtype).max)):
        return a
    if is_complex(a.dtype):
        return lax.complex(_round(lax.real(a), decimals), _round(lax.imag(a), decimals))
    return _round(a, decimals)


def _round(x, decimals: int):
    if decimals == 0:
        return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    # 10**decimals leaves float16's range early.
    wide = convert(x, np.dtype(np.float32)) if x.dtype == np.float16 else x
    factor = scalar_like(wide, 10**decimals)
    rounded = lax.div(lax.round(lax.mul(wide, factor), lax.RoundingMethod.TO_NEAREST_EVEN), factor)
    return convert(rounded, x.dtype) if x.dtype == np.float16 else rounded


@jit(static_argnames=("decimals",))
def around(a, decimals=0, out=None):
    """x rounded to `decimals` decimal places; see `round`.

    >>> jnp.around(jnp.array([1234.0, 5678.0]), -2)
    Array([1200., 5700.], dtype=float32)
    """
    return round(a, decimals, out)


@jit
def modf(x, /, out=None):
    """(fractional part, integral part) of x, elementwise, both with the sign of x.

    Integers become floats first.

    >>> jnp.modf(jnp.array([2.75, -2.75]))
    (Array([ 0.75, -0.75], dtype=float32), Array([ 2., -2.], dtype=float32))
    """
    (x,) = promote_dtypes_inexact(ensure_arraylike("modf", x))
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.modf is not supported.")
    whole = _where(lax.ge(x, scalar_like(x, 0)), lax.floor(x), lax.ceil(x))
    return lax.sub(x, whole), whole


# -- ranges --------------------------------------------------------------------------------------------------


@jit
def clip(arr=None, /, min=None, max=None):
    """Values below `min` become `min`, and values above `max` become `max`. Either may be None.

    Raises:
      ValueError: an argument is complex.

    >>> jnp.clip(jnp.array([-4, 1, 9]), 0, 5)
    Array([0, 1, 5], dtype=int32)
    """
    if arr is None:
        raise ValueError("No input was provided to the clip function.")
    check_arraylike("clip", arr)
    if any(iscomplexobj(x) for x in (arr, min, max)):
        raise ValueError(
            "Clip received a complex value either through the input or the min/max keywords. Complex "
            "values have no ordering and cannot be clipped. Please convert to a real value or array by "
            "taking the real or imaginary components via jax.numpy.real/imag respectively."
        )
    if min is not None:
        arr = maximum(min, arr)
    if max is not None:
        arr = minimum(max, arr)
    return as_array(arr)


@jit
def fmin(x1, x2):
    """The smaller of x1 and x2, elementwise. If one is NaN, the other one.

    The dtype is the promoted one.

    >>> jnp.fmin(jnp.array([1.0, jnp.nan]), jnp.array([3.0, 2.0]))
    Array([1., 2.], dtype=float32)
    """
    return _where(bitwise_or(less(x1, x2), isnan(x2)), x1, x2)


@jit
def fmax(x1, x2):
    """The larger of x1 and x2, elementwise. If one is NaN, the other one.

    The dtype is the promoted one.

    >>> jnp.fmax(jnp.array([1.0, jnp.nan]), jnp.array([3.0, 2.0]))
    Array([3., 2.], dtype=float32)
    """
    return _where(bitwise_or(greater(x1, x2), isnan(x2)), x1, x2)


@jit
def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """x with NaN replaced by `nan`, and infinities by `posinf` and `neginf` (default: the largest and the smallest
    number).

    >>> jnp.nan_to_num(jnp.array([1.0, jnp.nan, -jnp.inf]), nan=-1.0, neginf=0.0)
    Array([ 1., -1.,  0.], dtype=float32)
    """
    del copy
    x = ensure_arraylike("nan_to_num", x)
    if not is_inexact(x.dtype):
        return x
    if is_complex(x.dtype):
        parts = [nan_to_num(part(x), nan=nan, posinf=posinf, neginf=neginf) for part in (lax.real, lax.imag)]
        return lax.complex(*parts)
    info = dtypes.finfo(x.dtype)
    out = x
    for found, value in (
        (isnan, nan),
        (isposinf, info.max if posinf is None else posinf),
        (isneginf, info.min if neginf is None else neginf),
    ):
        mask = found(out)
        out = _where(mask, convert(value, x.dtype), out)
    return out


@jit
def heaviside(x1, x2, /):
    """0 where x1 < 0, 1 where x1 > 0, and x2 where x1 is 0, elementwise.

    Integers become floats first.

    >>> jnp.heaviside(jnp.array([-2.0, 0.0, 3.0]), 0.5)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    x1, x2 = promote_dtypes_inexact(*ensure_arraylike("heaviside", x1, x2))
    zero, one = scalar_like(x1, 0), scalar_like(x1, 1)
    negative, positive, undefined = lax.lt(x1, zero), lax.gt(x1, zero), lax.ne(x1, x1)
    return _where(negative, zero, _where(positive, one, _where(undefined, x1, x2)))


# -- bits ----------------------------------------------------------------------------------------------------


@jit
def signbit(x, /):
    """Whether the sign bit is set, elementwise, also of -0.0 and of NaN.

    For integers, whether they are negative. Raises ValueError for complex numbers.

    >>> jnp.signbit(jnp.array([-1.5, -0.0, 0.0]))
    Array([ True,  True, False], dtype=bool)
    """
    (x,) = promote_args("signbit", x)
    if is_integer(x.dtype):
        return lax.lt(x, strong_like(x, 0))
    if x.dtype == _BOOL:
        return lax.full_like(x, False, dtype=_BOOL)
    if not is_float(x.dtype):
        raise ValueError(f"jax.numpy.signbit is not well defined for {x.dtype}")
    info = dtypes.finfo(x.dtype)
    if info.bits not in _INTEGER_OF_BITS:
        raise NotImplementedError("jax.numpy.signbit only supports 16, 32, and 64-bit types.")
    bits = lax.bitcast_convert_type(x, _INTEGER_OF_BITS[info.bits])
    return convert(lax.shift_right_arithmetic(bits, scalar_like(bits, info.nexp + info.nmant)), _BOOL)


@jit
def copysign(x1, x2, /):
    """abs(x1) with the sign of x2, elementwise.

    Integers become floats first. Raises TypeError for complex numbers.

    >>> jnp.copysign(jnp.array([1.0, -2.0]), jnp.array([-0.0, 3.0]))
    Array([-1.,  2.], dtype=float32)
    """
    x1, x2 = promote_args_inexact("copysign", x1, x2)
    if is_complex(x1.dtype):
        raise TypeError("copysign does not support complex-valued inputs")
    negative = signbit(x2)
    return _where(negative, lax.neg(lax.abs(x1)), lax.abs(x1))


def nextafter(x, y, /):
    """The next representable number after x towards y, elementwise.

    Integers become floats first.

    >>> jnp.nextafter(jnp.bfloat16(1), jnp.bfloat16(2))
    Array(1.00781, dtype=bfloat16)
    """
    return lax.nextafter(*promote_args_inexact("nextafter", x, y))


@jit(inline=True)
def spacing(x, /):
    """The distance from x to the next representable number away from 0, elementwise, with the sign of x.

    Integers become floats first.

    >>> jnp.spacing(jnp.array([1.0, 1024.0]))
    Array([1.1920929e-07, 1.2207031e-04], dtype=float32)
    """
    (x,) = promote_args_inexact("spacing", x)
    if is_complex(x.dtype):
        raise ValueError("jnp.spacing is not defined for complex inputs.")
    inf = scalar_like(x, np.inf)
    if x.dtype == np.float16:
        return lax.sub(lax.nextafter(x, inf), x)
    gap = lax.sub(lax.nextafter(x, copysign(inf, x)), x)
    smallest = dtypes.finfo(x.dtype).smallest_subnormal
    return _where(lax.eq(gap, number_beside(gap, 0)), copysign(smallest, x), gap)


@jit
def frexp(x, /):
    """(mantissa in [0.5, 1), int32 exponent) with x = mantissa * 2**exponent, elementwise.

    Integers become floats first. Raises TypeError for complex numbers.

    >>> jnp.frexp(jnp.array([6.0, 0.3125]))
    (Array([0.75 , 0.625], dtype=float32), Array([ 3, -1], dtype=int32))
    """
    (x,) = promote_dtypes_inexact(ensure_arraylike("frexp", x))
    if is_complex(x.dtype):
        raise TypeError("frexp does not support complex-valued inputs")
    return _frexp(x)


def _normalized(x):
    """(bits of x scaled to be no denormal, exponent of that scale)."""
    info = dtypes.finfo(x.dtype)
    bits = _INTEGER_OF_BITS[info.bits]
    tiny = less(lax.abs(x), np.asarray(info.tiny, x.dtype)[()])
    scaled = _where(tiny, multiply(x, scalar_like(x, 1 << info.nmant)), x)
    shift = _where(tiny, bits.type(-info.nmant), bits.type(0))
    return lax.bitcast_convert_type(scaled, bits), shift


@custom_jvp
def _frexp(x):
    info = dtypes.finfo(x.dtype)
    mask, bias = (1 << info.nexp) - 1, 1 - info.minexp
    bits, shift = _normalized(x)
    field = lax.bitwise_and(
        lax.shift_right_arithmetic(bits, scalar_like(bits, info.nmant)), scalar_like(bits, mask)
    )
    exponent = lax.add(shift, lax.add(lax.sub(field, scalar_like(bits, bias)), scalar_like(bits, 1)))
    # The exponent field of numbers in [0.5, 1) replaces that of x.
    bits = lax.bitwise_and(bits, _wrapped(bits, ~(mask << info.nmant)))
    bits = lax.bitwise_or(bits, scalar_like(bits, (bias - 1) << info.nmant))
    mantissa = lax.bitcast_convert_type(bits, x.dtype)
    special = bitwise_or(bitwise_or(isinf(x), isnan(x)), equal(x, 0))
    exponent = _where(special, lax.full_like(exponent, 0), exponent)
    return _where(special, x, mantissa), convert(exponent, np.dtype(np.int32))


def _wrapped(x, value: int):
    """A Python int as a constant of x's integer dtype, its high bits cut off."""
    return np.asarray(value).astype(x.dtype)[()]


@_frexp.defjvp
def _frexp_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    mantissa, exponent = frexp(x)
    scale = exp2(convert(lax.neg(exponent), t.dtype))
    return (mantissa, exponent), (lax.mul(t, scale), np.zeros(exponent.shape, dtypes.float0))


@jit
def ldexp(x1, x2, /):
    """x1 * 2**x2, elementwise; x2 holds integers.

    Raises:
      ValueError: x2 is a float, or x1 is complex.

    >>> jnp.ldexp(jnp.array([0.75, 3.0]), jnp.array([3, -1]))
    Array([6. , 1.5], dtype=float32)
    """
    x1, x2 = ensure_arraylike("ldexp", x1, x2)
    if is_complex(x1.dtype) or is_inexact(x2.dtype):
        raise ValueError(f"ldexp not supported for input types {(x1.dtype, x2.dtype)}")
    (x1,) = promote_args_inexact("ldexp", x1)
    x2 = convert(x2, x1.dtype)
    mantissa, exponent = frexp(x1)
    exponent = convert(add(convert(exponent, x2.dtype), x2), x1.dtype)
    # 2**exponent overflows one step earlier than the result does.
    mantissa = _where(greater(exponent, 0), multiply(mantissa, 2), mantissa)
    exponent = _where(greater(exponent, 0), subtract(exponent, 1), exponent)
    out = multiply(mantissa, power(2, convert(exponent, mantissa.dtype)))
    unchanged = bitwise_or(isinf(x1), equal(x1, 0))
    return _where(unchanged, x1, out)
