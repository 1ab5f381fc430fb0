"""Cauchy distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.stats.shared import args_of, exp_of, log_of

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density.

    >>> mpijax.scipy.stats.cauchy.logpdf(jnp.array([0.0, 1.0])).round(4)
    Array([-1.1447, -1.8379], dtype=float32)
    """
    x, loc, scale = args_of("cauchy.logpdf", x, loc, scale)
    y = (x - loc) / scale
    return -(jnp.log(np.pi * scale) + jnp.log1p(y * y))


pdf = exp_of(logpdf, "pdf", "1.0", 0.1592)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x.

    >>> mpijax.scipy.stats.cauchy.cdf(jnp.array([0.0, 1.0])).round(4)
    Array([0.5 , 0.75], dtype=float32)
    """
    x, loc, scale = args_of("cauchy.cdf", x, loc, scale)
    return 0.5 + jnp.arctan((x - loc) / scale) / np.pi


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x.

    >>> mpijax.scipy.stats.cauchy.sf(jnp.array([0.0, 1.0])).round(4)
    Array([0.5 , 0.25], dtype=float32)
    """
    x, loc, scale = args_of("cauchy.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


logcdf = log_of(cdf, "logcdf", "1.0", -0.2877)
logsf = log_of(sf, "logsf", "1.0", -1.3863)


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value such that the probability of values up to it is q.

    >>> mpijax.scipy.stats.cauchy.ppf(jnp.array([0.25, 0.5])).round(4)
    Array([-1.,  0.], dtype=float32)
    """
    q, loc, scale = args_of("cauchy.ppf", q, loc, scale)
    return jnp.tan(np.pi * q - np.pi / 2) * scale + loc


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value such that the probability of values above it is q.

    >>> mpijax.scipy.stats.cauchy.isf(jnp.array([0.25, 0.5])).round(4)
    Array([1., 0.], dtype=float32)
    """
    q, loc, scale = args_of("cauchy.isf", q, loc, scale)
    return jnp.tan(np.pi / 2 - np.pi * q) * scale + loc
