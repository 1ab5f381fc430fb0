"""Normal distribution truncated to [a, b], in units of scale from loc."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.nn.normalize import logsumexp
from mpijax.scipy.special.errors import log_ndtr, ndtr
from mpijax.scipy.stats import norm
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def _log_difference(x, y):
    """log(eˣ - eʸ)"""
    return logsumexp(jnp.stack([x, y]), b=jnp.stack([jnp.ones_like(x), -jnp.ones_like(y)]), axis=0)


def _log_mass(a, b):
    """The logarithm of the normal probability between a and b, by the tail on the side where it is small."""
    a, b = jnp.broadcast_arrays(a, b)
    right = a > 0
    central = ~((b <= 0) | right)
    tail = _log_difference(log_ndtr(jnp.where(right, -a, b)), log_ndtr(jnp.where(right, -b, a)))
    return jnp.where(central, jnp.log1p(-ndtr(a) - ndtr(-b)), tail)


def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density; NaN unless a < b.

    >>> mpijax.scipy.stats.truncnorm.logpdf(jnp.array([0.0, 0.5]), -1.0, 1.0).round(4)
    Array([-0.5372, -0.6622], dtype=float32)
    """
    x, a, b, loc, scale = args_of("truncnorm.logpdf", x, a, b, loc, scale)
    y = (x - loc) / scale
    inside = norm.logpdf(x, loc, scale) - _log_mass(a, b)
    return jnp.where(a >= b, np.nan, jnp.where((y < a) | (y > b), -np.inf, inside))


pdf = exp_of(logpdf, "pdf", "0.5, -1.0, 1.0", 0.5157)


def logcdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values up to x.

    >>> mpijax.scipy.stats.truncnorm.logcdf(jnp.array([0.0, 0.5]), -1.0, 1.0).round(4)
    Array([-0.6931, -0.2479], dtype=float32)
    """
    x, a, b, loc, scale = args_of("truncnorm.logcdf", x, a, b, loc, scale)
    y, a, b = jnp.broadcast_arrays((x - loc) / scale, a, b)
    whole = _log_mass(a, b)
    below, above = _log_mass(a, y) - whole, _log_mass(y, b) - whole
    inside = jnp.where(below > -0.1, jnp.log1p(-jnp.exp(above)), below)
    supported = jnp.where(y >= b, 0.0, jnp.where(y <= a, -np.inf, inside))
    return jnp.where(a >= b, np.nan, supported)


cdf = exp_of(logcdf, "cdf", "0.5, -1.0, 1.0", 0.7805)


def logsf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the probability of values above x.

    >>> mpijax.scipy.stats.truncnorm.logsf(jnp.array([0.0, 0.5]), -1.0, 1.0).round(4)
    Array([-0.6931, -1.5162], dtype=float32)
    """
    x, a, b, loc, scale = args_of("truncnorm.logsf", x, a, b, loc, scale)
    return logcdf(-x, -b, -a, -loc, scale)


sf = exp_of(logsf, "sf", "0.5, -1.0, 1.0", 0.2195)
