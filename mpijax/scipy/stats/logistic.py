"""Logistic distribution."""

from __future__ import annotations

from typing import Any

import mpijax.numpy as jnp
from mpijax.scipy.special.entropy import expit, logit
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density.

    >>> mpijax.scipy.stats.logistic.logpdf(jnp.array([0.0, 1.0])).round(4)
    Array([-1.3863, -1.6265], dtype=float32)
    """
    x, loc, scale = args_of("logistic.logpdf", x, loc, scale)
    half = (x - loc) / scale / 2
    return -2 * jnp.logaddexp(half, -half) - jnp.log(scale)


pdf = exp_of(logpdf, "pdf", "1.0", 0.1966)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x.

    >>> mpijax.scipy.stats.logistic.cdf(jnp.array([0.0, 1.0])).round(4)
    Array([0.5   , 0.7311], dtype=float32)
    """
    x, loc, scale = args_of("logistic.cdf", x, loc, scale)
    return expit((x - loc) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x.

    >>> mpijax.scipy.stats.logistic.sf(jnp.array([0.0, 1.0])).round(4)
    Array([0.5   , 0.2689], dtype=float32)
    """
    x, loc, scale = args_of("logistic.sf", x, loc, scale)
    return expit((loc - x) / scale)


def ppf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value such that the probability of values up to it is x.

    >>> mpijax.scipy.stats.logistic.ppf(jnp.array([0.25, 0.5])).round(4)
    Array([-1.0986,  0.    ], dtype=float32)
    """
    x, loc, scale = args_of("logistic.ppf", x, loc, scale)
    return logit(x) * scale + loc


def isf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value such that the probability of values above it is x.

    >>> mpijax.scipy.stats.logistic.isf(jnp.array([0.25, 0.5])).round(4)
    Array([1.0986, 0.    ], dtype=float32)
    """
    x, loc, scale = args_of("logistic.isf", x, loc, scale)
    return loc - logit(x) * scale
