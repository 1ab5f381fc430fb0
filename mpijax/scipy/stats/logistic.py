"""Logistic distribution."""

from __future__ import annotations

from typing import Any

import mpijax.numpy as jnp
from mpijax.scipy.special import expit, logit
from mpijax.scipy.stats.shared import args_of, exp_of


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density."""
    x, loc, scale = args_of("logistic.logpdf", x, loc, scale)
    half = (x - loc) / scale / 2
    return -2 * jnp.logaddexp(half, -half) - jnp.log(scale)


pdf = exp_of(logpdf, "pdf")


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x."""
    x, loc, scale = args_of("logistic.cdf", x, loc, scale)
    return expit((x - loc) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x."""
    x, loc, scale = args_of("logistic.sf", x, loc, scale)
    return expit((loc - x) / scale)


def ppf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value up to which the probability is x."""
    x, loc, scale = args_of("logistic.ppf", x, loc, scale)
    return logit(x) * scale + loc


def isf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value above which the probability is x."""
    x, loc, scale = args_of("logistic.isf", x, loc, scale)
    return loc - logit(x) * scale
