"""Functions of one array that compute in floating point: exponentials, logarithms, trigonometry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.dtypes.promotion import COMPLEX, FLOAT
from mpijax.numpy.util import (
    _where,
    convert,
    ensure_arraylike,
    is_complex,
    number_beside,
    promote_args,
    promote_args_inexact,
    promote_args_numeric,
    promote_dtypes_inexact,
    promote_dtypes_numeric,
    scalar_like,
    strong_like,
)
from mpijax.transforms.custom_jvp import custom_jvp
from mpijax.transforms.jit import jit

_INEXACT = frozenset(FLOAT + COMPLEX)


def _unary(
    name: str, op: Callable[[Any], Any], summary: str, given: str, result: str, *, of_complex: str = "allowed"
) -> Callable[[Any], Any]:
    """The function `name`: floats (after promotion of bool and integers) through the lax operation `op`.

    Its docstring is made of `summary`, and shows that it takes the numbers `given` to `result`.
    """

    def fun(x, /):
        aval = getattr(x, "aval", None)
        if aval is not None and aval.dtype in _INEXACT and not aval.is_ref:
            return op(x)
        return op(*promote_args_inexact(name, x))

    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = f"""{summary}, elementwise. Integers and bools become floats first. Complex numbers are {of_complex}.

    >>> jnp.{name}(jnp.array({given}))
    Array({result}, dtype=float32)
    """
    return fun


exp = _unary("exp", lax.exp, "e**x", "[0, 1]", "[1.       , 2.7182817]")
exp2 = _unary("exp2", lax.exp2, "2**x", "[-1, 10]", "[5.000e-01, 1.024e+03]")
expm1 = _unary("expm1", lax.expm1, "e**x - 1, precise near 0", "[0, 1e-7]", "[0.0000000e+00, 1.0000001e-07]")
log = _unary("log", lax.log, "Natural logarithm", "[1, 10, 0]", "[0.       , 2.3025851,      -inf]")
log1p = _unary("log1p", lax.log1p, "log(1 + x), precise near 0", "[0, 1e-7]", "[0.0000000e+00, 9.9999994e-08]")
sqrt = _unary("sqrt", lax.sqrt, "Square root", "[4, 2, -1]", "[2.       , 1.4142135,       nan]")
cbrt = _unary("cbrt", lax.cbrt, "Cube root", "[27, -8]", "[ 3., -2.]", of_complex="not allowed")
sin = _unary("sin", lax.sin, "Sine, x in radians", "[0, jnp.pi / 2]", "[0., 1.]")
cos = _unary("cos", lax.cos, "Cosine, x in radians", "[0, jnp.pi]", "[ 1., -1.]")
tan = _unary("tan", lax.tan, "Tangent, x in radians", "[0, jnp.pi / 4]", "[0., 1.]")
arcsin = _unary("arcsin", lax.asin, "Inverse sine, in radians", "[0, 1]", "[0.       , 1.5707964]")
arccos = _unary("arccos", lax.acos, "Inverse cosine, in radians", "[1, 0]", "[0.       , 1.5707964]")
arctan = _unary("arctan", lax.atan, "Inverse tangent, in radians", "[1, -jnp.inf]", "[ 0.7853982, -1.5707964]")
asin = _unary("asin", lax.asin, "Inverse sine, in radians", "[0, 1]", "[0.       , 1.5707964]")
acos = _unary("acos", lax.acos, "Inverse cosine, in radians", "[1, 0]", "[0.       , 1.5707964]")
atan = _unary("atan", lax.atan, "Inverse tangent, in radians", "[1, -jnp.inf]", "[ 0.7853982, -1.5707964]")
sinh = _unary("sinh", lax.sinh, "Hyperbolic sine", "[0, 1]", "[0.       , 1.1752012]")
cosh = _unary("cosh", lax.cosh, "Hyperbolic cosine", "[0, 1]", "[1.       , 1.5430806]")
tanh = _unary("tanh", lax.tanh, "Hyperbolic tangent", "[0, 0.5, 20]", "[0.        , 0.46211717, 1.        ]")
arcsinh = _unary("arcsinh", lax.asinh, "Inverse hyperbolic sine", "[0, 1]", "[0.       , 0.8813736]")
arctanh = _unary("arctanh", lax.atanh, "Inverse hyperbolic tangent", "[0, 1]", "[ 0., inf]")
asinh = _unary("asinh", lax.asinh, "Inverse hyperbolic sine", "[0, 1]", "[0.       , 0.8813736]")
atanh = _unary("atanh", lax.atanh, "Inverse hyperbolic tangent", "[0, 1]", "[ 0., inf]")


@jit
def arccosh(x, /):
    """Inverse hyperbolic cosine, elementwise; for complex numbers the branch with a real part >= 0.

    Real x below 1 gives NaN.

    >>> jnp.arccosh(jnp.array([1.0, 2.0, 0.5]))
    Array([0.      , 1.316958,      nan], dtype=float32)
    """
    (x,) = promote_args_inexact("arccosh", x)
    result = lax.acosh(x)
    if is_complex(result.dtype):
        real = lax.real(result)
        result = _where(lax.lt(real, scalar_like(real, 0)), lax.neg(result), result)
    return result


def acosh(x, /):
    """Inverse hyperbolic cosine, elementwise.

    See `arccosh`.

    >>> jnp.acosh(jnp.array([1.0, 2.0]))
    Array([0.      , 1.316958], dtype=float32)
    """
    return arccosh(*promote_args("acosh", x))


@jit(inline=True)
def log2(x, /):
    """Logarithm to base 2, elementwise.

    Integers and bool become floats first; complex numbers are allowed.

    >>> jnp.log2(jnp.array([1, 8, 0.25]))
    Array([ 0.,  3., -2.], dtype=float32)
    """
    (x,) = promote_args_inexact("log2", x)
    if is_complex(x.dtype):
        logarithm = lax.log(x)
        re, im = lax.real(logarithm), lax.imag(logarithm)
        ln2 = lax.log(strong_like(re, 2))
        return lax.complex(lax.div(re, ln2), lax.div(im, ln2))
    return lax.div(lax.log(x), lax.log(strong_like(x, 2)))


@jit(inline=True)
def log10(x, /):
    """Logarithm to base 10, elementwise.

    Integers and bool become floats first; complex numbers are allowed.

    >>> jnp.log10(jnp.array([1000, 0.1, 0]))
    Array([  3.,  -1., -inf], dtype=float32)
    """
    (x,) = promote_args_inexact("log10", x)
    scale = np.asarray(np.log10(np.e), dtypes.finfo(x.dtype).dtype)[()]
    if is_complex(x.dtype):
        logarithm = lax.log(x)
        re, im = lax.real(logarithm), lax.imag(logarithm)
        return lax.complex(lax.mul(re, scale), lax.mul(im, scale))
    return lax.mul(lax.log(x), scale)


def square(x, /):
    """x * x, elementwise.

    The dtype is that of x; bool becomes the default integer type.

    >>> jnp.square(jnp.array([-3, 4]))
    Array([ 9, 16], dtype=int32)
    """
    (x,) = promote_dtypes_numeric(ensure_arraylike("square", x))
    return lax.square(x)


def reciprocal(x, /):
    """1 / x, elementwise.

    Integers and bool become floats first; complex numbers are allowed.

    >>> jnp.reciprocal(jnp.array([4, -2, 0]))
    Array([ 0.25, -0.5 ,   inf], dtype=float32)
    """
    (x,) = promote_dtypes_inexact(ensure_arraylike("reciprocal", x))
    return lax.integer_pow(x, -1)


def deg2rad(x, /):
    """Degrees to radians, elementwise. Integers and bool become floats first.

    >>> jnp.deg2rad(jnp.array([180, 90]))
    Array([3.1415927, 1.5707964], dtype=float32)
    """
    (x,) = promote_args_inexact("deg2rad", x)
    return lax.mul(x, scalar_like(x, np.pi / 180))


def rad2deg(x, /):
    """Radians to degrees, elementwise. Integers and bool become floats first.

    >>> jnp.rad2deg(jnp.array([jnp.pi, jnp.pi / 4]))
    Array([180.,  45.], dtype=float32)
    """
    (x,) = promote_args_inexact("rad2deg", x)
    return lax.mul(x, scalar_like(x, 180 / np.pi))


def radians(x, /):
    """Degrees to radians, elementwise. Integers and bool become floats first.

    >>> jnp.radians(jnp.array([180, 90]))
    Array([3.1415927, 1.5707964], dtype=float32)
    """
    return deg2rad(x)


def degrees(x, /):
    """Radians to degrees, elementwise. Integers and bool become floats first.

    >>> jnp.degrees(jnp.array([jnp.pi, jnp.pi / 4]))
    Array([180.,  45.], dtype=float32)
    """
    return rad2deg(x)


@jit
def sinc(x, /):
    """sin(pi x) / (pi x), elementwise. All derivatives are correct at 0.

    Integers and bool become floats first.

    >>> jnp.sinc(jnp.array([0.0, 0.5, 1.5]))
    Array([ 1.        ,  0.63661975, -0.21220659], dtype=float32)
    """
    (x,) = promote_dtypes_inexact(ensure_arraylike("sinc", x))
    at_zero = lax.eq(x, scalar_like(x, 0))
    angle = lax.mul(scalar_like(x, np.pi), x)
    safe = _where(at_zero, scalar_like(x, 1), angle)
    return _where(at_zero, _sinc_maclaurin(0, angle), lax.div(lax.sin(safe), safe))


# The Taylor series of sin(x)/x at 0, one derivative at a time: each derivative of this function is the next
# one.
@partial(custom_jvp, nondiff_argnums=(0,))
def _sinc_maclaurin(order, x):
    zeros = lax.mul(x, number_beside(x, 0))
    if order % 2:
        return zeros
    return lax.add(zeros, scalar_like(x, (-1) ** (order // 2) / (order + 1)))


@_sinc_maclaurin.defjvp
def _sinc_maclaurin_jvp(order, primals, tangents):
    (x,), (t,) = primals, tangents
    return _sinc_maclaurin(order, x), lax.mul(_sinc_maclaurin(order + 1, x), t)


@jit(inline=True)
def fabs(x, /):
    """Absolute value as a float, elementwise.

    Raises:
      TypeError: x is complex.

    >>> jnp.fabs(jnp.array([-3, 2]))
    Array([3., 2.], dtype=float32)
    """
    x = ensure_arraylike("fabs", x)
    if is_complex(x.dtype):
        raise TypeError("ufunc 'fabs' does not support complex dtypes")
    return lax.abs(*promote_args_inexact("fabs", x))


def arctan2(x1, x2, /):
    """The angle of the point (x2, x1) in (-pi, pi], elementwise.

    The arguments broadcast; integers and bool become floats first.

    >>> jnp.rad2deg(jnp.arctan2(jnp.array([1.0, 0.0, -1.0]), jnp.array([1.0, -1.0, 0.0])))
    Array([ 45., 180., -90.], dtype=float32)
    """
    return lax.atan2(*promote_args_inexact("arctan2", x1, x2))


def atan2(x1, x2, /):
    """The angle of the point (x2, x1) in (-pi, pi], elementwise.

    See `arctan2`.

    >>> jnp.rad2deg(jnp.atan2(jnp.array([1.0, 0.0]), jnp.array([1.0, -1.0])))
    Array([ 45., 180.], dtype=float32)
    """
    return arctan2(*promote_args("atan2", x1, x2))


@jit
def hypot(x1, x2, /):
    """sqrt(x1**2 + x2**2), elementwise, without overflow of intermediate values.

    Raises:
      ValueError: an argument is complex.

    >>> jnp.hypot(jnp.array([3.0, 3e30]), jnp.array([4.0, 4e30]))
    Array([5.e+00, 5.e+30], dtype=float32)
    """
    x1, x2 = promote_args_inexact("hypot", x1, x2)
    if is_complex(x1.dtype):
        raise ValueError(
            "jnp.hypot is not well defined for complex-valued inputs. Please convert to real values first, "
            "such as by using abs(x)"
        )
    x1, x2 = lax.abs(x1), lax.abs(x2)
    inf = strong_like(x1, np.inf)
    infinite = lax.bitwise_or(lax.eq(x1, inf), lax.eq(x2, inf))
    x1, x2 = lax.max(x1, x2), lax.min(x1, x2)
    zero = number_beside(x1, 0)
    at_zero = lax.eq(x1, zero)
    ratio = lax.div(x2, _where(lax.eq(x1, zero), lax.full_like(x1, 1), x1))
    one = number_beside(x1, 1)
    length = _where(at_zero, x1, lax.mul(x1, lax.sqrt(lax.add(one, lax.square(ratio)))))
    return _where(infinite, scalar_like(length, np.inf), length)


@custom_jvp
def _logaddexp(x1, x2):
    return _log_sum(x1, x2, lax.exp, 1.0, np.pi, "logaddexp")


@custom_jvp
def _logaddexp2(x1, x2):
    return _log_sum(x1, x2, lax.exp2, 1 / np.log(2), np.pi / np.log(2), "logaddexp2")


for _wrapped, _name in ((_logaddexp, "logaddexp"), (_logaddexp2, "logaddexp2")):
    _wrapped.fun.__name__ = _name


@_logaddexp.defjvp
def _logaddexp_jvp(primals, tangents):
    return _log_sum_jvp(_logaddexp, lax.exp, primals, tangents)


@_logaddexp2.defjvp
def _logaddexp2_jvp(primals, tangents):
    return _log_sum_jvp(_logaddexp2, lax.exp2, primals, tangents)


def _log_sum(x1, x2, exponential, scale: float, turn: float, name: str):
    """log_b(b**x1 + b**x2) for a base b with log_b(e) = scale, by pulling out the larger exponent.

    The imaginary part of complex results lies in [-turn, turn), turn being pi times the scale.
    """
    if not is_complex(x1.dtype) and x1.dtype not in _INEXACT:
        raise ValueError(f"{name} requires floating-point or complex inputs; got {x1.dtype}")

    def log1p_of(delta):
        value = lax.log1p(exponential(delta))
        return value if scale == 1 else lax.mul(scalar_like(value, scale), value)

    larger = lax.max(x1, x2)
    if is_complex(x1.dtype):
        delta = lax.sub(lax.add(x1, x2), lax.mul(larger, scalar_like(larger, 2)))
        out = lax.add(larger, log1p_of(delta))
        return lax.complex(lax.real(out), _wrap(lax.imag(out), turn))
    delta = lax.sub(x1, x2)
    # The difference is NaN for infinities of the same sign, whose sum is right, and for NaN.
    return lax.select(
        lax.ne(delta, delta), lax.add(x1, x2), lax.add(larger, log1p_of(lax.neg(lax.abs(delta))))
    )


def _wrap(x, bound: float):
    """x shifted by multiples of 2 * bound into [-bound, bound)."""
    half, period, zero = (scalar_like(x, v) for v in (bound, 2 * bound, 0))
    rest = lax.rem(lax.add(x, half), period)
    rest = lax.select(lax.lt(rest, zero), lax.add(rest, period), rest)
    return lax.sub(rest, half)


def _log_sum_jvp(fun, exponential, primals, tangents):
    (x1, x2), (t1, t2) = primals, tangents
    out = fun(x1, x2)
    parts = [
        lax.mul(t, exponential(lax.sub(_zero_if_infinite(x), _zero_if_infinite(out))))
        for x, t in ((x1, t1), (x2, t2))
    ]
    return out, lax.add(*parts)


def _zero_if_infinite(x):
    real = lax.real(x) if is_complex(x.dtype) else x
    return lax.select(lax.eq(real, scalar_like(real, np.inf)), lax.full_like(x, 0), x)


@jit(inline=True)
def logaddexp(x1, x2, /):
    """log(exp(x1) + exp(x2)), elementwise, without overflow of intermediate values.

    Integers become floats first; complex numbers are allowed.

    >>> jnp.logaddexp(1000.0, jnp.array([1000.0, 0.0]))
    Array([1000.6932, 1000.    ], dtype=float32)
    """
    return _logaddexp(*promote_args_inexact("logaddexp", x1, x2))


@jit(inline=True)
def logaddexp2(x1, x2, /):
    """log2(2**x1 + 2**x2), elementwise, without overflow of intermediate values.

    Integers become floats first; complex numbers are allowed.

    >>> jnp.logaddexp2(jnp.array([3.0, 500.0]), jnp.array([3.0, 500.0]))
    Array([  4., 501.], dtype=float32)
    """
    return _logaddexp2(*promote_args_inexact("logaddexp2", x1, x2))


@jit
def bitwise_count(x, /):
    """Number of 1 bits of abs(x), elementwise, as uint8.

    Raises:
      TypeError: the elements of x are neither integers nor bools.

    >>> jnp.bitwise_count(jnp.array([7, 8, -3]))
    Array([3, 1, 2], dtype=uint8)
    """
    (x,) = promote_args_numeric("bitwise_count", x)
    if not dtypes.issubdtype(x.dtype, np.unsignedinteger):
        x = lax.abs(x)
    return convert(lax.population_count(x), np.dtype(np.uint8))
