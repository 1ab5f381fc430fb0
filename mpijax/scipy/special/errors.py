"""Error functions, the normal distribution and its quantiles, the plasma dispersion function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.rules.primitive import Primitive
from mpijax.numpy.util import dtype_of, is_complex, promote_args_complex
from mpijax.ops.elementwise.hosted import compiled, hosted, in_double, scipy_function
from mpijax.ops.families import PerOperand
from mpijax.scipy.special.arguments import check_single_or_double, inexact_args, real_args

_SLOPE = float(2 / np.sqrt(np.pi))
_HALF_ROOT = float(np.sqrt(0.5))
_LOG_SQRT_2PI = float(np.log(2 * np.pi) / 2)


def _of_one(name: str, derivative: Callable, cost: int) -> Primitive:
    return compiled(name, 1, in_double(scipy_function(name)), PerOperand(derivative), cost, weak=False)


def erf(x: Any) -> Any:
    """2 / √π times the integral of exp(-t²) from 0 to x.

    Elementwise; integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.erf(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.8427], dtype=float32)
    """
    return lax.erf(*inexact_args("erf", x))


def erfc(x: Any) -> Any:
    """1 - erf(x), also accurate for large x.

    Elementwise; integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.erfc(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.1573], dtype=float32)
    """
    return lax.erfc(*inexact_args("erfc", x))


def erfinv(x: Any) -> Any:
    """The y with erf(y) = x.

    Elementwise; integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.erfinv(jnp.array([0.0, 0.5])).round(4)
    Array([0.    , 0.4769], dtype=float32)
    """
    return lax.erf_inv(*inexact_args("erfinv", x))


def erfcinv(x: Any) -> Any:
    """The y with erfc(y) = x, for 0 < x < 2. Infinities at 0 and 2, NaN elsewhere.

    Small x keep all digits unless x / 2 is denormal.

    Elementwise; integers become floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.erfcinv(jnp.array([1e-30, 0.5, 1.0])).round(4)
    Array([8.1486, 0.4769, 0.    ], dtype=float32)
    """
    (x,) = inexact_args("erfcinv", x)
    return -ndtri(0.5 * x) * _HALF_ROOT


def wofz(z: Any) -> Any:
    """Faddeeva's function exp(-z²) erfc(-iz), of complex z.

    Elementwise; the result is complex.

    >>> mpijax.scipy.special.wofz(jnp.array([0j])).round(4)
    Array([1.+0.j], dtype=complex64)
    """
    return wofz_p.bind(*promote_args_complex("wofz", z))


wofz_p = hosted(
    "wofz",
    1,
    in_double(scipy_function("wofz")),
    PerOperand(lambda g, ans, z: g * (_SLOPE * 1j - 2 * z * ans)),
    (np.complexfloating,),
    weak=False,
)


def erfcx(x: Any) -> Any:
    """exp(x²) erfc(x), for real or complex x. It neither overflows nor underflows for large x.

    Elementwise; integers become floats. Complex numbers are allowed.

    >>> mpijax.scipy.special.erfcx(jnp.array([0.0, 100.0])).round(4)
    Array([1.    , 0.0056], dtype=float32)
    """
    (x,) = inexact_args("erfcx", x)
    return wofz(1j * x) if is_complex(dtype_of(x)) else erfcx_p.bind(x)


erfcx_p = _of_one("erfcx", lambda g, ans, x: g * (2 * x * ans - _SLOPE), 40)


def dawsn(x: Any) -> Any:
    """Dawson's integral: exp(-x²) times the integral of exp(t²) from 0 to x.

    Elementwise; integers become floats. Raises ValueError for complex numbers.

    >>> mpijax.scipy.special.dawsn(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.5381], dtype=float32)
    """
    return dawsn_p.bind(*real_args("dawsn", x))


dawsn_p = _of_one("dawsn", lambda g, ans, x: g * (1 - 2 * x * ans), 80)

# ---------------------------------------------------------------- the normal distribution


def ndtr(x: Any) -> Any:
    """The probability that a standard normal variable is below x; float32 or float64.

    Elementwise, on floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.ndtr(jnp.array([0.0, 1.0])).round(4)
    Array([0.5   , 0.8413], dtype=float32)
    """
    x = jnp.asarray(x)
    check_single_or_double("ndtr", x)
    w = x * _HALF_ROOT
    near = abs(w) < _HALF_ROOT
    tail = lax.erfc(abs(w))
    return 0.5 * jnp.where(near, 1 + lax.erf(w), jnp.where(w > 0, 2 - tail, tail)).astype(x.dtype)


def ndtri(p: Any) -> Any:
    """The quantile of the standard normal distribution, the inverse of `ndtr`; float32 or float64.

    Elementwise, on floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.ndtri(jnp.array([0.5, 0.975])).round(4)
    Array([0.  , 1.96], dtype=float32)
    """
    check_single_or_double("ndtri", p)
    return ndtri_p.bind(p)


ndtri_p = _of_one("ndtri", lambda g, ans, p: g * lax.exp(0.5 * ans * ans + _LOG_SQRT_2PI), 40)


def log_ndtr(x: Any, series_order: int = 3) -> Any:
    """log(ndtr(x)), accurate in both tails; float32 or float64.

    `series_order` (0 … 30) has no effect: it is the number of terms of JAX's series for the lower tail. Values here are
    accurate without it.

    Elementwise, on floats. Raises TypeError for complex numbers.

    >>> mpijax.scipy.special.log_ndtr(jnp.array([-10.0, 0.0])).round(3)
    Array([-53.231,  -0.693], dtype=float32)
    """
    if not isinstance(series_order, int):
        raise TypeError(f"series_order must be a Python integer; got {series_order!r}.")
    if not 0 <= series_order <= 30:
        raise ValueError(f"series_order must be non-negative and at most 30; got {series_order}.")
    x = jnp.asarray(x)
    check_single_or_double("log_ndtr", x)
    return log_ndtr_p.bind(x)


def _density_ratio(x, log_ndtr_of_x):
    """The normal density at x divided by the probability below x."""
    return lax.exp(-0.5 * x * x - _LOG_SQRT_2PI - log_ndtr_of_x)


log_ndtr_p = _of_one("log_ndtr", lambda g, ans, x: g * _density_ratio(x, ans), 80)


def owens_t(h: Any, a: Any) -> Any:
    """Owen's T: the probability that X > h and 0 < Y < aX for standard normal X and Y.

    Elementwise; the arguments broadcast, integers and floats narrower than float32 become float32. Raises TypeError for
    complex numbers.

    >>> mpijax.scipy.special.owens_t(jnp.array([0.0, 1.0]), 1.0).round(4)
    Array([0.125 , 0.0667], dtype=float32)
    """
    h, a = inexact_args("owens_t", h, a)
    if dtype_of(h).itemsize < np.dtype(np.float32).itemsize:
        h, a = h.astype(np.float32), a.astype(np.float32)
    return owens_t_p.bind(h, a)


def _by_h(g, ans, h, a):
    return g * lax.exp(-0.5 * h * h) * lax.erf(a * h * float(np.sqrt(0.5))) * float(-1 / np.sqrt(8 * np.pi))


def _by_a(g, ans, h, a):
    return g * lax.exp(-0.5 * (a * a + 1) * h * h) / ((a * a + 1) * float(2 * np.pi))


owens_t_p = compiled("owens_t", 2, in_double(scipy_function("owens_t")), PerOperand(_by_h, _by_a), 700, weak=False)
