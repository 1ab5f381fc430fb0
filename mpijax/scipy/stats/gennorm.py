"""Generalized normal distribution, with a density proportional to exp(-|x| ** beta)."""

from __future__ import annotations

from typing import Any

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["cdf", "logpdf", "pdf"]


def logpdf(x: Any, beta: Any) -> Any:
    """The logarithm of the density.

    >>> mpijax.scipy.stats.gennorm.logpdf(jnp.array([0.0, 1.0]), 4.0).round(4)
    Array([-0.5949, -1.5949], dtype=float32)
    """
    x, beta = args_of("gennorm.logpdf", x, beta)
    return jnp.log(0.5 * beta) - lax.lgamma(1 / beta) - abs(x) ** beta


pdf = exp_of(logpdf, "pdf", "1.0, 4.0", 0.2029)


def cdf(x: Any, beta: Any) -> Any:
    """The probability of values up to x.

    >>> mpijax.scipy.stats.gennorm.cdf(jnp.array([0.0, 1.0]), 4.0).round(4)
    Array([0.5  , 0.966], dtype=float32)
    """
    x, beta = args_of("gennorm.cdf", x, beta)
    return 0.5 * (1 + jnp.sign(x) * lax.igamma(*jnp.broadcast_arrays(1 / beta, abs(x) ** beta)))
