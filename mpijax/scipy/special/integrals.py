"""Integrals without a closed form: exponential, sine and cosine, Fresnel's, Spence's."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.rules.primitive import Primitive
from mpijax.numpy.util import dtype_of, is_complex
from mpijax.ops.elementwise.hosted import compiled, in_double, scipy_function
from mpijax.ops.families import PerOperand
from mpijax.scipy.special.arguments import check_single_or_double, inexact_args, real_args


def expi(x: Any) -> Any:
    """The integral of eᵗ / t from -inf to x.

    Elementwise; integers become floats. Raises ValueError for complex numbers.

    >>> mpijax.scipy.special.expi(jnp.array([1.0, 2.0])).round(4)
    Array([1.8951, 4.9542], dtype=float32)
    """
    return expi_p.bind(*real_args("expi", x))


def exp1(x: Any) -> Any:
    """The integral of e⁻ᵗ / t from x to inf; NaN for x < 0.

    Elementwise; integers become floats. Raises ValueError for complex numbers.

    >>> mpijax.scipy.special.exp1(jnp.array([1.0, 2.0])).round(4)
    Array([0.2194, 0.0489], dtype=float32)
    """
    return exp1_p.bind(*real_args("exp1", x))


def expn(n: Any, x: Any) -> Any:
    """The integral of e ** (-x t) / t ** n over t from 1 to inf, for ints n >= 0; NaN for x < 0. Differentiable in x.

    >>> mpijax.scipy.special.expn(2, jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.1485], dtype=float32)
    """
    return expn_p.bind(*real_args("expn", n, x))


def _exp1(x):
    return np.where(x < 0, np.nan, scipy_function("exp1")(x))


def _expn(n, x):
    return np.where((n < 0) | (x < 0), np.nan, scipy_function("expn")(np.floor(n), x))


def _no_derivative_by_order(*_args):
    raise ValueError("expn has no derivative with respect to its order n.")


expi_p = compiled(
    "expi", 1, in_double(scipy_function("expi")), PerOperand(lambda g, ans, x: g * lax.exp(x) / x), 200, weak=False
)
exp1_p = compiled("exp1", 1, in_double(_exp1), PerOperand(lambda g, ans, x: -g * lax.exp(-x) / x), 100, weak=False)
expn_p: Primitive = compiled(
    "expn",
    2,
    in_double(_expn),
    PerOperand(_no_derivative_by_order, lambda g, ans, n, x: -g * expn_p.bind(n - 1, x)),
    700,
    weak=False,
)

# ---------------------------------------------------------------- sine and cosine integrals


def sici(x: Any) -> tuple[Any, Any]:
    """The integrals of sin t / t from 0 to x and, of |x|, of cos t / t from inf to x.

    >>> mpijax.scipy.special.sici(jnp.array([1.0]))[0].round(4)
    Array([0.9461], dtype=float32)
    """
    (x,) = inexact_args("sici", x)
    if is_complex(dtype_of(x)):
        raise ValueError(f"Argument `x` to sici must be real-valued. Got dtype {dtype_of(x)}.")
    return sine_integral_p.bind(x), cosine_integral_p.bind(x)


sine_integral_p = compiled(
    "sine_integral",
    1,
    in_double(lambda x: scipy_function("sici")(x)[0]),
    PerOperand(lambda g, ans, x: g * jnp.sinc(x / np.pi)),
    150,
    weak=False,
)
cosine_integral_p = compiled(
    "cosine_integral",
    1,
    in_double(lambda x: scipy_function("sici")(x)[1]),
    PerOperand(lambda g, ans, x: g * jnp.cos(x) / x),
    180,
    weak=False,
)


def fresnel(x: Any) -> tuple[Any, Any]:
    """The integrals of sin(π t² / 2) and of cos(π t² / 2) from 0 to x.

    >>> mpijax.scipy.special.fresnel(1.0)[0].round(4)
    Array(0.4383, dtype=float32)
    """
    (x,) = inexact_args("fresnel", x)
    if is_complex(dtype_of(x)):
        raise NotImplementedError(f"fresnel takes real numbers, got dtype {dtype_of(x)}.")
    return fresnel_sine_p.bind(x), fresnel_cosine_p.bind(x)


fresnel_sine_p = compiled(
    "fresnel_sine",
    1,
    in_double(lambda x: scipy_function("fresnel")(x)[0]),
    PerOperand(lambda g, ans, x: g * jnp.sin(np.pi / 2 * x * x)),
    150,
    weak=False,
)
fresnel_cosine_p = compiled(
    "fresnel_cosine",
    1,
    in_double(lambda x: scipy_function("fresnel")(x)[1]),
    PerOperand(lambda g, ans, x: g * jnp.cos(np.pi / 2 * x * x)),
    150,
    weak=False,
)

# ---------------------------------------------------------------- dilogarithm


def spence(x: Any) -> Any:
    """Spence's function: the integral of log t / (1 - t) from 1 to x; float32 or float64.

    Elementwise, on floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.spence(jnp.array([0.0, 1.0])).round(4)
    Array([1.6449, 0.    ], dtype=float32)
    """
    x = jnp.asarray(x)
    check_single_or_double("spence", x)
    return spence_p.bind(x)


def _spence_tangent(g, ans, x):
    """log x / (1 - x), and -1, its limit, at 1; 0 below 0, where the function is NaN."""
    away = jnp.where((x == 1) | (x < 0), 2.0, x)
    return g * jnp.where(x == 1, -1.0, jnp.where(x < 0, 0.0, jnp.log(away) / (1 - away)))


spence_p = compiled("spence", 1, in_double(scipy_function("spence")), PerOperand(_spence_tangent), 80, weak=False)
