"""Normal distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy import special
from mpijax.scipy.stats.shared import args_of, exp_of


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density."""
    x, loc, scale = args_of("norm.logpdf", x, loc, scale)
    variance = scale * scale
    return -0.5 * (jnp.log(float(2 * np.pi) * variance) + jnp.square(x - loc) / variance)


pdf = exp_of(logpdf, "pdf")


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x."""
    x, loc, scale = args_of("norm.cdf", x, loc, scale)
    return special.ndtr((x - loc) / scale)


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values up to x, exact in both tails."""
    x, loc, scale = args_of("norm.logcdf", x, loc, scale)
    return special.log_ndtr((x - loc) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x."""
    x, loc, scale = args_of("norm.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values above x."""
    x, loc, scale = args_of("norm.logsf", x, loc, scale)
    return logcdf(-x, -loc, scale)


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value up to which the probability is q."""
    return jnp.asarray(special.ndtri(q) * scale + loc, float)


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value above which the probability is q."""
    return ppf(1 - q, loc, scale)
