"""Beta-binomial distribution: the number of successes in n trials, whose probability has the distribution beta(a,
b)."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.special.gamma import betaln
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, n: Any, a: Any, b: Any, loc: Any = 0) -> Any:
    """The logarithm of the probability of each value k; NaN if n < 0, or if a or b is not positive.

    >>> mpijax.scipy.stats.betabinom.logpmf(jnp.array([0, 2]), 4, 2.0, 3.0).round(4)
    Array([-1.5404, -1.3581], dtype=float32)
    """
    k, n, a, b, loc = args_of("betabinom.logpmf", k, n, a, b, loc)
    y = jnp.floor(k) - loc
    ways = -jnp.log1p(n) - betaln(n - y + 1, y + 1)
    inside = ways + betaln(y + a, n - y + b) - betaln(a, b)
    inside = jnp.where((y == 0) & (n == 0), 0.0, inside)
    supported = jnp.where((y < -loc) | (y > n) | (y + a <= 0), -np.inf, inside)
    return jnp.where((n < 0) | (a <= 0) | (b <= 0), np.nan, supported)


pmf = exp_of(logpmf, "pmf", "2, 4, 2.0, 3.0", 0.2571)
