"""Bernoulli distribution: 1 with probability p, else 0."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.special.entropy import xlog1py, xlogy
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["cdf", "logpmf", "pmf", "ppf"]


def logpmf(k: Any, p: Any, loc: Any = 0) -> Any:
    """The logarithm of the probability of each value k; -inf except at loc and loc + 1.

    >>> mpijax.scipy.stats.bernoulli.logpmf(jnp.array([0, 1]), 0.3).round(4)
    Array([-0.3567, -1.204 ], dtype=float32)
    """
    k, p, loc = args_of("bernoulli.logpmf", k, p, loc)
    x = k - loc
    return jnp.where((x < 0) | (x > 1), -np.inf, xlogy(x, p) + xlog1py(1 - x, -p))


pmf = exp_of(logpmf, "pmf", "1, 0.3", 0.3)


def _invalid(x, p):
    return jnp.isnan(x) | jnp.isnan(p) | (p < 0) | (p > 1)


def cdf(k: Any, p: Any) -> Any:
    """The probability of values up to k.

    >>> mpijax.scipy.stats.bernoulli.cdf(jnp.array([0, 1]), 0.3).round(4)
    Array([0.7, 1. ], dtype=float32)
    """
    k, p = args_of("bernoulli.cdf", k, p)
    inside = jnp.where(k < 0, 0.0, jnp.where(k < 1, 1 - p, 1.0))
    return jnp.where(_invalid(k, p), np.nan, inside)


def ppf(q: Any, p: Any) -> Any:
    """The smallest value such that the probability of values up to it is at least q.

    >>> mpijax.scipy.stats.bernoulli.ppf(jnp.array([0.5, 0.9]), 0.3).round(4)
    Array([0., 1.], dtype=float32)
    """
    q, p = args_of("bernoulli.ppf", q, p)
    return jnp.where(_invalid(q, p) | (q < 0) | (q > 1), np.nan, jnp.where(q <= 1 - p, 0.0, 1.0)).astype(q.dtype)
