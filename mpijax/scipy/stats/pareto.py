"""Pareto distribution, from loc + scale on, with exponent b."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.stats.shared import args_of, exp_of


def _scaled(name, x, b, loc, scale):
    """(x scaled, b, scale, whether x is below the support, where it counts as 1)."""
    x, b, loc, scale = args_of(name, x, b, loc, scale)
    below = x < loc + scale
    return jnp.where(below, 1.0, (x - loc) / scale), b, scale, below


def logpdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density."""
    y, b, scale, below = _scaled("pareto.logpdf", x, b, loc, scale)
    return jnp.where(below, -np.inf, -(jnp.log(scale / b) + (b + 1) * jnp.log(y)))


pdf = exp_of(logpdf, "pdf")


def cdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x."""
    y, b, _, below = _scaled("pareto.cdf", x, b, loc, scale)
    return jnp.where(below, 0.0, 1 - y**-b)


def logcdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values up to x."""
    y, b, _, below = _scaled("pareto.logcdf", x, b, loc, scale)
    return jnp.where(below, -np.inf, jnp.log1p(-(y**-b)))


def logsf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values above x."""
    y, b, _, below = _scaled("pareto.logsf", x, b, loc, scale)
    return jnp.where(below, 0.0, -b * jnp.log(y))


sf = exp_of(logsf, "sf")


def ppf(q: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value up to which the probability is q; NaN for q beyond 0 and 1."""
    q, b, loc, scale = args_of("pareto.ppf", q, b, loc, scale)
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), np.nan, loc + scale * (1 - q) ** (-1 / b))
