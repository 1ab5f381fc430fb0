"""Uniform distribution on [loc, loc + scale]."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.stats.shared import args_of, exp_of


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density."""
    x, loc, scale = args_of("uniform.logpdf", x, loc, scale)
    return jnp.where((x > loc + scale) | (x < loc), -np.inf, -jnp.log(scale))


pdf = exp_of(logpdf, "pdf")


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x."""
    x, loc, scale = args_of("uniform.cdf", x, loc, scale)
    inside = (x - loc) / scale
    return jnp.where(x < loc, 0.0, jnp.where(x > loc + scale, 1.0, inside))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value up to which the probability is q; NaN for q beyond 0 and 1."""
    q, loc, scale = args_of("uniform.ppf", q, loc, scale)
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), np.nan, loc + scale * q)
