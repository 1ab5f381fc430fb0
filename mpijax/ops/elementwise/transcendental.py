"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions, with their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.rules.lowering import Meaning, Zeros
from mpijax.core.rules.primitive import Primitive
from mpijax.ops.elementwise.binary import add, div, mul, neg, sub
from mpijax.ops.elementwise.power import integer_pow, reciprocal, square
from mpijax.ops.families import FLOATING, INEXACT, PerOperand, elementwise
from mpijax.ops.rules import const_like


def _function(
    name: str,
    reference: Callable,
    cost: int,
    derivative: Callable,
    accepts=INEXACT,
    accuracy=False,
    zeros=Zeros.SHOWN,
    meaning=Meaning.OTHER,
) -> Primitive:
    """A differentiable function: `derivative(g, ans, x) -> tangent`."""
    return elementwise(
        name,
        accepts,
        reference=reference,
        cost=cost,
        accuracy=accuracy,
        jvp=PerOperand(lambda g, ans, x, **_: derivative(g, ans, x)),
        zeros=zeros,
        meaning=meaning,
    )


def _accurate(name: str, reference: Callable, cost: int, derivative: Callable, accepts=INEXACT, **says) -> Primitive:
    """A function with the parameter `accuracy`."""
    return _function(name, reference, cost, derivative, accepts, accuracy=True, **says)


# ---------------------------------------------------------------- exponentials and logarithms


def exp(x: Any, *, accuracy=None) -> Any:
    """e ** x.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.exp(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 2.7183], dtype=float32)
    """
    return exp_p.bind(x, accuracy=accuracy)


def log2(x: Any, *, accuracy=None) -> Any:
    """The logarithm of x to base 2.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.log2(jnp.array([1.0, 8.0]))
    Array([0., 3.], dtype=float32)
    """
    return div(log(x, accuracy=accuracy), log(const_like(x, 2)))


def exp2(x: Any, *, accuracy=None) -> Any:
    """2 ** x.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.exp2(jnp.array([0.0, 3.0]))
    Array([1., 8.], dtype=float32)
    """
    return exp2_p.bind(x, accuracy=accuracy)


def expm1(x: Any, *, accuracy=None) -> Any:
    """e ** x - 1, accurate near 0.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.expm1(jnp.array([0.0, 1e-6]))
    Array([0.0000000e+00, 1.0000005e-06], dtype=float32)
    """
    return expm1_p.bind(x, accuracy=accuracy)


def log(x: Any, *, accuracy=None) -> Any:
    """The natural logarithm.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.log(jnp.array([1.0, 10.0])).round(4)
    Array([0.    , 2.3026], dtype=float32)
    """
    return log_p.bind(x, accuracy=accuracy)


def log1p(x: Any, *, accuracy=None) -> Any:
    """log(1 + x), accurate near 0.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.log1p(jnp.array([0.0, 1e-6]))
    Array([0.000000e+00, 9.999995e-07], dtype=float32)
    """
    return log1p_p.bind(x, accuracy=accuracy)


def logistic(x: Any, *, accuracy=None) -> Any:
    """1 / (1 + e ** -x).

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.logistic(jnp.array([0.0, 2.0])).round(4)
    Array([0.5   , 0.8808], dtype=float32)
    """
    return logistic_p.bind(x, accuracy=accuracy)


exp_p = _accurate(
    "exp", np.exp, 10, lambda g, ans, x: mul(g, ans), zeros=Zeros.POSITIVE, meaning=Meaning.EXPONENTIAL
)
exp2_p = _accurate(
    "exp2", np.exp2, 10, lambda g, ans, x: mul(log(const_like(x, 2)), mul(g, ans)), zeros=Zeros.POSITIVE
)
expm1_p = _accurate(
    "expm1", np.expm1, 15, lambda g, ans, x: mul(g, add(ans, const_like(ans, 1))), zeros=Zeros.PASSED
)
log_p = _accurate("log", np.log, 12, lambda g, ans, x: div(g, x), zeros=Zeros.POSITIVE)
log1p_p = _accurate(
    "log1p", np.log1p, 15, lambda g, ans, x: div(g, add(x, const_like(x, 1))), zeros=Zeros.PASSED
)
logistic_p = _accurate(
    "logistic",
    lambda x: 1 / (1 + np.exp(-x)),
    14,
    lambda g, ans, x: mul(g, mul(ans, sub(const_like(ans, 1), ans))),
    zeros=Zeros.POSITIVE,
)

# ---------------------------------------------------------------- roots


def sqrt(x: Any, *, accuracy=None) -> Any:
    """The square root; NaN below 0.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.sqrt(jnp.array([4.0, 9.0]))
    Array([2., 3.], dtype=float32)
    """
    return sqrt_p.bind(x, accuracy=accuracy)


def rsqrt(x: Any, *, accuracy=None) -> Any:
    """1 / sqrt(x).

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.rsqrt(jnp.array([4.0, 16.0]))
    Array([0.5 , 0.25], dtype=float32)
    """
    return rsqrt_p.bind(x, accuracy=accuracy)


def cbrt(x: Any, *, accuracy=None) -> Any:
    """The real cube root.

    Elementwise on floats; the result has the same shape and dtype. TypeError for others.

    >>> lax.cbrt(jnp.array([8.0, -27.0])).round(4)
    Array([ 2., -3.], dtype=float32)
    """
    return cbrt_p.bind(x, accuracy=accuracy)


sqrt_p = _accurate(
    "sqrt", np.sqrt, 4, lambda g, ans, x: mul(g, div(const_like(x, 0.5), ans)), zeros=Zeros.PASSED
)
rsqrt_p = _accurate(
    "rsqrt", lambda x: 1 / np.sqrt(x), 8, lambda g, ans, x: mul(g, mul(const_like(x, -0.5), div(ans, x)))
)
cbrt_p = _accurate(
    "cbrt", np.cbrt, 15, lambda g, ans, x: mul(g, mul(const_like(x, 1 / 3), integer_pow(ans, -2))), FLOATING
)

# ---------------------------------------------------------------- trigonometric functions


def sin(x: Any, *, accuracy=None) -> Any:
    """Sine of x in radians.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.sin(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.8415], dtype=float32)
    """
    return sin_p.bind(x, accuracy=accuracy)


def cos(x: Any, *, accuracy=None) -> Any:
    """Cosine of x in radians.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.cos(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.5403], dtype=float32)
    """
    return cos_p.bind(x, accuracy=accuracy)


def tan(x: Any, *, accuracy=None) -> Any:
    """Tangent of x in radians.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.tan(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 1.5574], dtype=float32)
    """
    return tan_p.bind(x, accuracy=accuracy)


def asin(x: Any) -> Any:
    """Arc sine, in [-pi/2, pi/2].

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.asin(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 1.5708], dtype=float32)
    """
    return asin_p.bind(x)


def acos(x: Any) -> Any:
    """Arc cosine, in [0, pi].

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.acos(jnp.array([1.0, 0.0])).round(4)
    Array([0.    , 1.5708], dtype=float32)
    """
    return acos_p.bind(x)


def atan(x: Any) -> Any:
    """Arc tangent, in [-pi/2, pi/2].

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.atan(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.7854], dtype=float32)
    """
    return atan_p.bind(x)


def _one_minus_square(x):
    return sub(const_like(x, 1), square(x))


sin_p = _accurate("sin", np.sin, 18, lambda g, ans, x: mul(g, cos(x)), zeros=Zeros.PASSED)
cos_p = _accurate("cos", np.cos, 18, lambda g, ans, x: neg(mul(g, sin(x))), zeros=Zeros.EQUAL)
tan_p = _accurate("tan", np.tan, 20, lambda g, ans, x: mul(g, add(const_like(x, 1), square(ans))))
asin_p = _function("asin", np.arcsin, 15, lambda g, ans, x: mul(g, rsqrt(_one_minus_square(x))))
acos_p = _function("acos", np.arccos, 15, lambda g, ans, x: mul(g, neg(rsqrt(_one_minus_square(x)))))
atan_p = _function("atan", np.arctan, 15, lambda g, ans, x: div(g, add(const_like(x, 1), square(x))))


def atan2(x: Any, y: Any) -> Any:
    """The angle of the point (y, x), in (-pi, pi].

    Elementwise on floats or complex numbers of one shape and dtype, or scalars; the result has the same shape and
    dtype. TypeError for others.

    >>> lax.atan2(jnp.array([1.0, 1.0]), jnp.array([1.0, 0.0])).round(4)
    Array([0.7854, 1.5708], dtype=float32)
    """
    return atan2_p.bind(x, y)


atan2_p = elementwise(
    "atan2",
    INEXACT,
    INEXACT,
    reference=np.arctan2,
    cost=15,
    jvp=PerOperand(
        lambda g, ans, x, y: mul(g, div(y, add(square(x), square(y)))),
        lambda g, ans, x, y: mul(g, div(neg(x), add(square(x), square(y)))),
    ),
)

# ---------------------------------------------------------------- hyperbolic functions


def sinh(x: Any) -> Any:
    """(e ** x - e ** -x) / 2.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.sinh(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 1.1752], dtype=float32)
    """
    return sinh_p.bind(x)


def cosh(x: Any) -> Any:
    """(e ** x + e ** -x) / 2.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.cosh(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 1.5431], dtype=float32)
    """
    return cosh_p.bind(x)


def tanh(x: Any, *, accuracy=None) -> Any:
    """sinh(x) / cosh(x).

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.tanh(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.7616], dtype=float32)
    """
    return tanh_p.bind(x, accuracy=accuracy)


def asinh(x: Any) -> Any:
    """The inverse of sinh.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.asinh(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.8814], dtype=float32)
    """
    return asinh_p.bind(x)


def acosh(x: Any) -> Any:
    """The nonnegative inverse of cosh; NaN below 1.

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.acosh(jnp.array([1.0, 2.0])).round(4)
    Array([0.   , 1.317], dtype=float32)
    """
    return acosh_p.bind(x)


def atanh(x: Any) -> Any:
    """The inverse of tanh; NaN outside [-1, 1].

    Elementwise on floats or complex numbers; the result has the same shape and dtype. TypeError for others.

    >>> lax.atanh(jnp.array([0.0, 0.5])).round(4)
    Array([0.    , 0.5493], dtype=float32)
    """
    return atanh_p.bind(x)


def _tanh_tangent(g, ans, x):
    """(g + g ans)(1 - ans), which stays accurate where 1 - ans ** 2 would cancel."""
    return mul(add(g, mul(g, ans)), sub(const_like(x, 1), ans))


def _atanh_tangent(g, ans, x):
    one = const_like(x, 1)
    return mul(reciprocal(add(one, x)), div(g, sub(one, x)))


sinh_p = _function("sinh", np.sinh, 18, lambda g, ans, x: mul(g, cosh(x)))
cosh_p = _function("cosh", np.cosh, 18, lambda g, ans, x: mul(g, sinh(x)), zeros=Zeros.POSITIVE)
tanh_p = _accurate("tanh", np.tanh, 14, _tanh_tangent, zeros=Zeros.PASSED)
asinh_p = _function(
    "asinh", np.arcsinh, 20, lambda g, ans, x: mul(g, rsqrt(add(square(x), const_like(x, 1))))
)
acosh_p = _function(
    "acosh", np.arccosh, 20, lambda g, ans, x: mul(g, rsqrt(sub(square(x), const_like(x, 1))))
)
atanh_p = _function("atanh", np.arctanh, 18, _atanh_tangent)
