"""Multinomial distribution: the number of times that each of several outcomes occurs in n trials."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.numpy.util import promote_args_numeric
from mpijax.scipy.special.entropy import xlogy
from mpijax.scipy.special.gamma import gammaln
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["logpmf", "pmf"]


def logpmf(x: Any, n: Any, p: Any) -> Any:
    """The logarithm of the probability of counts x (ints, with outcomes along the last axis) in n trials.

    Args:
      x: counts; the result is -inf unless their sum is n.
      n: number of trials, an int.
      p: probabilities of the outcomes, along the last axis.

    >>> mpijax.scipy.stats.multinomial.logpmf(jnp.array([1, 2]), 3, jnp.array([0.4, 0.6])).round(4)
    Array(-0.8393, dtype=float32)
    """
    (p,) = args_of("multinomial.logpmf", p)
    x, n = promote_args_numeric("multinomial.logpmf", x, n)
    if not jnp.issubdtype(x.dtype, np.integer):
        raise ValueError(f"x and n must be of integer type; got x.dtype={x.dtype}, n.dtype={n.dtype}")
    x, n = x.astype(p.dtype), n.astype(p.dtype)
    inside = gammaln(n + 1) + (xlogy(x, p) - gammaln(x + 1)).sum(-1)
    return jnp.where(jnp.sum(x) == n, inside, -np.inf)


pmf = exp_of(logpmf, "pmf", "jnp.array([1, 2]), 3, jnp.array([0.4, 0.6])", 0.432)
