"""Chi-squared distribution with `df` degrees of freedom."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.special.gamma import gammainc, gammaincc, gammaln
from mpijax.scipy.stats.shared import args_of, exp_of, log_of

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density.

    >>> mpijax.scipy.stats.chi2.logpdf(jnp.array([1.0, 2.0]), 3.0).round(4)
    Array([-1.4189, -1.5724], dtype=float32)
    """
    x, df, loc, scale = args_of("chi2.logpdf", x, df, loc, scale)
    y, half = (x - loc) / scale, df / 2
    inside = (half - 1) * jnp.log(y) - y / 2 - gammaln(half) - float(np.log(2)) * half - jnp.log(scale)
    return jnp.where(x < loc, -np.inf, inside)


pdf = exp_of(logpdf, "pdf", "2.0, 3.0", 0.2076)


def _scaled(name, x, df, loc, scale):
    x, df, loc, scale = args_of(name, x, df, loc, scale)
    return df / 2, jnp.clip((x - loc) / (scale * 2), 0)


def cdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x.

    >>> mpijax.scipy.stats.chi2.cdf(jnp.array([1.0, 2.0]), 3.0).round(4)
    Array([0.1987, 0.4276], dtype=float32)
    """
    return gammainc(*_scaled("chi2.cdf", x, df, loc, scale))


def sf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x.

    >>> mpijax.scipy.stats.chi2.sf(jnp.array([1.0, 2.0]), 3.0).round(4)
    Array([0.8013, 0.5724], dtype=float32)
    """
    return gammaincc(*_scaled("chi2.sf", x, df, loc, scale))


logcdf = log_of(cdf, "logcdf", "2.0, 3.0", -0.8496)
logsf = log_of(sf, "logsf", "2.0, 3.0", -0.5579)
