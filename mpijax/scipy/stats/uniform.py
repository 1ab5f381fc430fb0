"""Uniform distribution on [loc, loc + scale]."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["cdf", "logpdf", "pdf", "ppf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density.

    >>> mpijax.scipy.stats.uniform.logpdf(jnp.array([0.5, 2.0]), scale=4.0).round(4)
    Array([-1.3863, -1.3863], dtype=float32)
    """
    x, loc, scale = args_of("uniform.logpdf", x, loc, scale)
    return jnp.where((x > loc + scale) | (x < loc), -np.inf, -jnp.log(scale))


pdf = exp_of(logpdf, "pdf", "0.5", 1.0)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x.

    >>> mpijax.scipy.stats.uniform.cdf(jnp.array([0.5, 3.0]), 0.0, 2.0).round(4)
    Array([0.25, 1.  ], dtype=float32)
    """
    x, loc, scale = args_of("uniform.cdf", x, loc, scale)
    inside = (x - loc) / scale
    return jnp.where(x < loc, 0.0, jnp.where(x > loc + scale, 1.0, inside))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value such that the probability of values up to it is q; NaN for q outside of [0, 1].

    >>> mpijax.scipy.stats.uniform.ppf(jnp.array([0.25, 0.5])).round(4)
    Array([0.25, 0.5 ], dtype=float32)
    """
    q, loc, scale = args_of("uniform.ppf", q, loc, scale)
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), np.nan, loc + scale * q)
