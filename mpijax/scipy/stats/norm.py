"""Normal distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy import special
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density.

    >>> mpijax.scipy.stats.norm.logpdf(jnp.array([0.0, 1.0])).round(4)
    Array([-0.9189, -1.4189], dtype=float32)
    """
    x, loc, scale = args_of("norm.logpdf", x, loc, scale)
    variance = scale * scale
    return -0.5 * (jnp.log(float(2 * np.pi) * variance) + jnp.square(x - loc) / variance)


pdf = exp_of(logpdf, "pdf", "1.0", 0.242)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x.

    >>> mpijax.scipy.stats.norm.cdf(jnp.array([0.0, 1.0])).round(4)
    Array([0.5   , 0.8413], dtype=float32)
    """
    x, loc, scale = args_of("norm.cdf", x, loc, scale)
    return special.ndtr((x - loc) / scale)


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values up to x, accurate in both tails.

    >>> mpijax.scipy.stats.norm.logcdf(jnp.array([0.0, 1.0])).round(4)
    Array([-0.6931, -0.1728], dtype=float32)
    """
    x, loc, scale = args_of("norm.logcdf", x, loc, scale)
    return special.log_ndtr((x - loc) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x.

    >>> mpijax.scipy.stats.norm.sf(jnp.array([0.0, 1.0])).round(4)
    Array([0.5   , 0.1587], dtype=float32)
    """
    x, loc, scale = args_of("norm.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values above x.

    >>> mpijax.scipy.stats.norm.logsf(jnp.array([0.0, 1.0])).round(4)
    Array([-0.6931, -1.841 ], dtype=float32)
    """
    x, loc, scale = args_of("norm.logsf", x, loc, scale)
    return logcdf(-x, -loc, scale)


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value such that the probability of values up to it is q.

    >>> mpijax.scipy.stats.norm.ppf(jnp.array([0.25, 0.5])).round(4)
    Array([-0.6745,  0.    ], dtype=float32)
    """
    return jnp.asarray(special.ndtri(q) * scale + loc, float)


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value such that the probability of values above it is q.

    >>> mpijax.scipy.stats.norm.isf(jnp.array([0.25, 0.5])).round(4)
    Array([0.6745, 0.    ], dtype=float32)
    """
    return ppf(1 - q, loc, scale)
