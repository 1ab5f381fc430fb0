"""Cauchy distribution wrapped around the circle, for angles in [0, 2π] and 0 < c < 1."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, c: Any) -> Any:
    """The logarithm of the density; NaN unless 0 < c < 1.

    >>> mpijax.scipy.stats.wrapcauchy.logpdf(jnp.array([1.0, 2.0]), 0.5).round(4)
    Array([-1.7826, -2.6361], dtype=float32)
    """
    x, c = args_of("wrapcauchy.logpdf", x, c)
    inside = jnp.log(1 - c * c) - float(np.log(2 * np.pi)) - jnp.log(1 + c * c - 2 * c * jnp.cos(x))
    supported = jnp.where((x >= 0) & (x <= float(2 * np.pi)), inside, -np.inf)
    return jnp.where((c > 0) & (c < 1), supported, np.nan)


pdf = exp_of(logpdf, "pdf", "1.0, 0.5", 0.1682)
