"""Chi-squared distribution of `df` degrees of freedom."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.special import gammainc, gammaincc, gammaln
from mpijax.scipy.stats.shared import args_of, exp_of, log_of


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density."""
    x, df, loc, scale = args_of("chi2.logpdf", x, df, loc, scale)
    y, half = (x - loc) / scale, df / 2
    inside = (half - 1) * jnp.log(y) - y / 2 - gammaln(half) - float(np.log(2)) * half - jnp.log(scale)
    return jnp.where(x < loc, -np.inf, inside)


pdf = exp_of(logpdf, "pdf")


def _scaled(name, x, df, loc, scale):
    x, df, loc, scale = args_of(name, x, df, loc, scale)
    return df / 2, jnp.clip((x - loc) / (scale * 2), 0)


def cdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x."""
    return gammainc(*_scaled("chi2.cdf", x, df, loc, scale))


def sf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x."""
    return gammaincc(*_scaled("chi2.sf", x, df, loc, scale))


logcdf = log_of(cdf, "logcdf")
logsf = log_of(sf, "logsf")
