"""Laplace distribution."""

from __future__ import annotations

from typing import Any

import mpijax.numpy as jnp
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["cdf", "logpdf", "pdf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density.

    >>> mpijax.scipy.stats.laplace.logpdf(jnp.array([0.0, 1.0])).round(4)
    Array([-0.6931, -1.6931], dtype=float32)
    """
    x, loc, scale = args_of("laplace.logpdf", x, loc, scale)
    return -(abs(x - loc) / scale + jnp.log(2 * scale))


pdf = exp_of(logpdf, "pdf", "1.0", 0.1839)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x.

    >>> mpijax.scipy.stats.laplace.cdf(jnp.array([0.0, 1.0])).round(4)
    Array([0.5   , 0.8161], dtype=float32)
    """
    x, loc, scale = args_of("laplace.cdf", x, loc, scale)
    y = (x - loc) / scale
    tail = 0.5 * jnp.exp(-abs(y))
    return jnp.where(y <= 0, tail, 1 - tail)
