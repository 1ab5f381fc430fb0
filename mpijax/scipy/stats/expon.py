"""Exponential distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density.

    >>> mpijax.scipy.stats.expon.logpdf(jnp.array([1.0, 2.0])).round(4)
    Array([-1., -2.], dtype=float32)
    """
    x, loc, scale = args_of("expon.logpdf", x, loc, scale)
    return jnp.where(x < loc, -np.inf, -((x - loc) / scale + jnp.log(scale)))


pdf = exp_of(logpdf, "pdf", "1.0", 0.3679)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x.

    >>> mpijax.scipy.stats.expon.cdf(jnp.array([1.0, 2.0])).round(4)
    Array([0.6321, 0.8647], dtype=float32)
    """
    x, loc, scale = args_of("expon.cdf", x, loc, scale)
    return jnp.where(x < loc, 0.0, -jnp.expm1((loc - x) / scale))


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values above x.

    >>> mpijax.scipy.stats.expon.logsf(jnp.array([1.0, 2.0])).round(4)
    Array([-1., -2.], dtype=float32)
    """
    x, loc, scale = args_of("expon.logsf", x, loc, scale)
    return jnp.where(x < loc, 0.0, (loc - x) / scale)


sf = exp_of(logsf, "sf", "1.0", 0.3679)


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values up to x.

    >>> mpijax.scipy.stats.expon.logcdf(jnp.array([1.0, 2.0])).round(4)
    Array([-0.4587, -0.1454], dtype=float32)
    """
    return lax.log1p(-sf(x, loc, scale))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value such that the probability of values up to it is q; NaN for q outside of [0, 1].

    >>> mpijax.scipy.stats.expon.ppf(jnp.array([0.25, 0.5])).round(4)
    Array([0.2877, 0.6931], dtype=float32)
    """
    q, loc, scale = args_of("expon.ppf", q, loc, scale)
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), np.nan, loc - scale * jnp.log1p(-q))
