"""Gumbel distribution of the largest of many values. All functions return NaN unless scale is positive."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.nn.activations import log1mexp
from mpijax.scipy.special.entropy import xlogy
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density.

    >>> mpijax.scipy.stats.gumbel_r.logpdf(jnp.array([0.0, 1.0])).round(4)
    Array([-1.    , -1.3679], dtype=float32)
    """
    x, loc, scale = args_of("gumbel_r.logpdf", x, loc, scale)
    z = (x - loc) / scale
    return jnp.where(scale > 0, xlogy(-1, scale) - z - jnp.exp(-z), np.nan)


pdf = exp_of(logpdf, "pdf", "1.0", 0.2546)


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values up to x.

    >>> mpijax.scipy.stats.gumbel_r.logcdf(jnp.array([0.0, 1.0])).round(4)
    Array([-1.    , -0.3679], dtype=float32)
    """
    x, loc, scale = args_of("gumbel_r.logcdf", x, loc, scale)
    return jnp.where(scale > 0, -jnp.exp(-(x - loc) / scale), np.nan)


cdf = exp_of(logcdf, "cdf", "1.0", 0.6922)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values above x.

    >>> mpijax.scipy.stats.gumbel_r.logsf(jnp.array([0.0, 1.0])).round(4)
    Array([-0.4587, -1.1783], dtype=float32)
    """
    x, loc, scale = args_of("gumbel_r.logsf", x, loc, scale)
    return jnp.where(scale > 0, log1mexp(jnp.exp((loc - x) / scale)), np.nan)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x.

    >>> mpijax.scipy.stats.gumbel_r.sf(jnp.array([0.0, 1.0])).round(4)
    Array([0.6321, 0.3078], dtype=float32)
    """
    x, loc, scale = args_of("gumbel_r.sf", x, loc, scale)
    return jnp.where(scale > 0, -jnp.expm1(-jnp.exp((loc - x) / scale)), np.nan)


def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value such that the probability of values up to it is p, for 0 < p < 1.

    >>> mpijax.scipy.stats.gumbel_r.ppf(jnp.array([0.25, 0.5])).round(4)
    Array([-0.3266,  0.3665], dtype=float32)
    """
    p, loc, scale = args_of("gumbel_r.ppf", p, loc, scale)
    return jnp.where((p > 0) & (p < 1), loc - scale * jnp.log(-jnp.log(p)), np.nan)
