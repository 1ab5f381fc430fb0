"""Cauchy distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.stats.shared import args_of, exp_of, log_of


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density."""
    x, loc, scale = args_of("cauchy.logpdf", x, loc, scale)
    y = (x - loc) / scale
    return -(jnp.log(np.pi * scale) + jnp.log1p(y * y))


pdf = exp_of(logpdf, "pdf")


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x."""
    x, loc, scale = args_of("cauchy.cdf", x, loc, scale)
    return 0.5 + jnp.arctan((x - loc) / scale) / np.pi


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x."""
    x, loc, scale = args_of("cauchy.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


logcdf = log_of(cdf, "logcdf")
logsf = log_of(sf, "logsf")


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value up to which the probability is q."""
    q, loc, scale = args_of("cauchy.ppf", q, loc, scale)
    return jnp.tan(np.pi * q - np.pi / 2) * scale + loc


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value above which the probability is q."""
    q, loc, scale = args_of("cauchy.isf", q, loc, scale)
    return jnp.tan(np.pi / 2 - np.pi * q) * scale + loc
