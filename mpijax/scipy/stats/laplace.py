"""Laplace distribution."""

from __future__ import annotations

from typing import Any

import mpijax.numpy as jnp
from mpijax.scipy.stats.shared import args_of, exp_of


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density."""
    x, loc, scale = args_of("laplace.logpdf", x, loc, scale)
    return -(abs(x - loc) / scale + jnp.log(2 * scale))


pdf = exp_of(logpdf, "pdf")


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x."""
    x, loc, scale = args_of("laplace.cdf", x, loc, scale)
    y = (x - loc) / scale
    tail = 0.5 * jnp.exp(-abs(y))
    return jnp.where(y <= 0, tail, 1 - tail)
