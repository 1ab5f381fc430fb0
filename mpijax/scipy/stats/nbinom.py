"""Negative binomial distribution: the number of failures before the n-th success, which has probability p."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.special.entropy import xlogy
from mpijax.scipy.special.gamma import gammaln
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Any:
    """The logarithm of the probability of each value k.

    >>> mpijax.scipy.stats.nbinom.logpmf(jnp.array([0, 2]), 4, 0.3).round(4)
    Array([-4.8159, -3.2267], dtype=float32)
    """
    k, n, p, loc = args_of("nbinom.logpmf", k, n, p, loc)
    y = k - loc
    ways = gammaln(y + n) - gammaln(n) - gammaln(y + 1)
    return jnp.where(k < loc, -np.inf, ways + xlogy(n, p) + xlogy(y, 1 - p))


pmf = exp_of(logpmf, "pmf", "2, 4, 0.3", 0.0397)
