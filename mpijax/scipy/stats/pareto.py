"""Pareto distribution with exponent b, on [loc + scale, inf)."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _scaled(name, x, b, loc, scale):
    """(x scaled, b, scale, whether x is below the support, where it counts as 1)."""
    x, b, loc, scale = args_of(name, x, b, loc, scale)
    below = x < loc + scale
    return jnp.where(below, 1.0, (x - loc) / scale), b, scale, below


def logpdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density.

    >>> mpijax.scipy.stats.pareto.logpdf(jnp.array([1.0, 2.0]), 3.0).round(4)
    Array([ 1.0986, -1.674 ], dtype=float32)
    """
    y, b, scale, below = _scaled("pareto.logpdf", x, b, loc, scale)
    return jnp.where(below, -np.inf, -(jnp.log(scale / b) + (b + 1) * jnp.log(y)))


pdf = exp_of(logpdf, "pdf", "2.0, 3.0", 0.1875)


def cdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x.

    >>> mpijax.scipy.stats.pareto.cdf(jnp.array([1.0, 2.0]), 3.0).round(4)
    Array([0.   , 0.875], dtype=float32)
    """
    y, b, _, below = _scaled("pareto.cdf", x, b, loc, scale)
    return jnp.where(below, 0.0, 1 - y**-b)


def logcdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values up to x.

    >>> mpijax.scipy.stats.pareto.logcdf(jnp.array([1.0, 2.0]), 3.0).round(4)
    Array([   -inf, -0.1335], dtype=float32)
    """
    y, b, _, below = _scaled("pareto.logcdf", x, b, loc, scale)
    return jnp.where(below, -np.inf, jnp.log1p(-(y**-b)))


def logsf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values above x.

    >>> mpijax.scipy.stats.pareto.logsf(jnp.array([1.0, 2.0]), 3.0).round(4)
    Array([-0.    , -2.0794], dtype=float32)
    """
    y, b, _, below = _scaled("pareto.logsf", x, b, loc, scale)
    return jnp.where(below, 0.0, -b * jnp.log(y))


sf = exp_of(logsf, "sf", "2.0, 3.0", 0.125)


def ppf(q: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value such that the probability of values up to it is q; NaN for q outside of [0, 1].

    >>> mpijax.scipy.stats.pareto.ppf(jnp.array([0.5, 0.9]), 3.0).round(4)
    Array([1.2599, 2.1544], dtype=float32)
    """
    q, b, loc, scale = args_of("pareto.ppf", q, b, loc, scale)
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), np.nan, loc + scale * (1 - q) ** (-1 / b))
