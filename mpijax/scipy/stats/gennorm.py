"""Generalized normal distribution, whose density falls with exp(-|x| ** beta)."""

from __future__ import annotations

from typing import Any

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.scipy.stats.shared import args_of, exp_of


def logpdf(x: Any, beta: Any) -> Any:
    """The logarithm of the density."""
    x, beta = args_of("gennorm.logpdf", x, beta)
    return jnp.log(0.5 * beta) - lax.lgamma(1 / beta) - abs(x) ** beta


pdf = exp_of(logpdf, "pdf")


def cdf(x: Any, beta: Any) -> Any:
    """The probability of values up to x."""
    x, beta = args_of("gennorm.cdf", x, beta)
    return 0.5 * (1 + jnp.sign(x) * lax.igamma(*jnp.broadcast_arrays(1 / beta, abs(x) ** beta)))
