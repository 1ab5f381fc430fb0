"""Gumbel distribution of the smallest of many values. All functions return NaN unless scale is positive."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.special.entropy import xlogy
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density.

    >>> mpijax.scipy.stats.gumbel_l.logpdf(jnp.array([0.0, 1.0])).round(4)
    Array([-1.    , -1.7183], dtype=float32)
    """
    x, loc, scale = args_of("gumbel_l.logpdf", x, loc, scale)
    z = (x - loc) / scale
    return jnp.where(scale > 0, xlogy(-1, scale) + z - jnp.exp(z), np.nan)


pdf = exp_of(logpdf, "pdf", "1.0", 0.1794)


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values up to x.

    >>> mpijax.scipy.stats.gumbel_l.logcdf(jnp.array([0.0, 1.0])).round(4)
    Array([-0.4587, -0.0683], dtype=float32)
    """
    x, loc, scale = args_of("gumbel_l.logcdf", x, loc, scale)
    return jnp.where(scale > 0, jnp.log(-jnp.expm1(-jnp.exp((x - loc) / scale))), np.nan)


cdf = exp_of(logcdf, "cdf", "1.0", 0.934)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values above x.

    >>> mpijax.scipy.stats.gumbel_l.logsf(jnp.array([0.0, 1.0])).round(4)
    Array([-1.    , -2.7183], dtype=float32)
    """
    x, loc, scale = args_of("gumbel_l.logsf", x, loc, scale)
    return jnp.where(scale > 0, -jnp.exp((x - loc) / scale), np.nan)


sf = exp_of(logsf, "sf", "1.0", 0.066)


def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value such that the probability of values up to it is p, for 0 < p < 1.

    >>> mpijax.scipy.stats.gumbel_l.ppf(jnp.array([0.25, 0.5])).round(4)
    Array([-1.2459, -0.3665], dtype=float32)
    """
    p, loc, scale = args_of("gumbel_l.ppf", p, loc, scale)
    return jnp.where((p > 0) & (p < 1), loc + scale * jnp.log(-jnp.log1p(-p)), np.nan)
