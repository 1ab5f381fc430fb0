"""Poisson distribution with mean mu."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.special.entropy import entr, xlogy
from mpijax.scipy.special.gamma import gammaincc, gammaln
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["cdf", "entropy", "logpmf", "pmf"]


def logpmf(k: Any, mu: Any, loc: Any = 0) -> Any:
    """The logarithm of the probability of each value k.

    >>> mpijax.scipy.stats.poisson.logpmf(jnp.array([0, 2]), 3.0).round(4)
    Array([-3.    , -1.4959], dtype=float32)
    """
    k, mu, loc = args_of("poisson.logpmf", k, mu, loc)
    x = k - loc
    return jnp.where((x < 0) | (jnp.round(k) != k), -np.inf, xlogy(x, mu) - gammaln(x + 1) - mu)


pmf = exp_of(logpmf, "pmf", "2, 3.0", 0.224)


def cdf(k: Any, mu: Any, loc: Any = 0) -> Any:
    """The probability of values up to k.

    >>> mpijax.scipy.stats.poisson.cdf(jnp.array([0, 2]), 3.0).round(4)
    Array([0.0498, 0.4232], dtype=float32)
    """
    k, mu, loc = args_of("poisson.cdf", k, mu, loc)
    x = k - loc
    below = x < 0
    return jnp.where(below, 0.0, gammaincc(jnp.floor(1 + jnp.where(below, 0.0, x)), mu))


# Up to these means the entropy is a sum of this many terms; above, an expansion in 1 / mu.
_SUMMED_UP_TO, _TERMS = 100, 250


def entropy(mu: Any, loc: Any = 0) -> Any:
    """The entropy in nats: 0 for mu = 0, NaN for mu < 0. `loc` only broadcasts; it does not change the value.

    >>> mpijax.scipy.stats.poisson.entropy(jnp.array([0.5, 3.0])).round(4)
    Array([0.9276, 1.9315], dtype=float32)
    """
    mu, loc = args_of("poisson.entropy", mu, loc)
    k = jnp.arange(_TERMS, dtype=mu.dtype).reshape(-1, *(1,) * mu.ndim)
    summed = entr(pmf(k, jnp.clip(mu, 0, _SUMMED_UP_TO))).sum(0)
    expanded = 0.5 * jnp.log(float(2 * np.pi * np.e) * mu) - 1 / (12 * mu)
    out = jnp.where(mu == 0, 0.0, jnp.where(mu < _SUMMED_UP_TO, summed, expanded))
    out = jnp.where(mu < 0, np.nan, out)
    return jnp.broadcast_to(out, jnp.broadcast_shapes(mu.shape, loc.shape))
