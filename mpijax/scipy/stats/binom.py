"""Binomial distribution: the number of successes in n trials, each with probability p."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.special.entropy import xlog1py, xlogy
from mpijax.scipy.special.gamma import gammaln
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Any:
    """The logarithm of the probability of each value k.

    >>> mpijax.scipy.stats.binom.logpmf(jnp.array([0, 2]), 4, 0.3).round(4)
    Array([-1.4267, -1.3295], dtype=float32)
    """
    k, n, p, loc = args_of("binom.logpmf", k, n, p, loc)
    y = k - loc
    ways = gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
    chances = xlogy(y, p) + xlog1py(n - y, -p)
    certain = ((y == 0) & (n == 0)) | (chances == 0)
    return jnp.where((k >= loc) & (k < loc + n + 1), jnp.where(certain, 0.0, ways + chances), -np.inf)


pmf = exp_of(logpmf, "pmf", "2, 4, 0.3", 0.2646)
