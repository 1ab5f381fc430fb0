"""Geometric distribution: the number of trials up to the first success, each with probability p."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.special.entropy import xlog1py
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, p: Any, loc: Any = 0) -> Any:
    """The logarithm of the probability of each value k, from loc + 1 on.

    >>> mpijax.scipy.stats.geom.logpmf(jnp.array([1, 2]), 0.3).round(4)
    Array([-1.204 , -1.5606], dtype=float32)
    """
    k, p, loc = args_of("geom.logpmf", k, p, loc)
    x = k - loc
    return jnp.where(x <= 0, -np.inf, xlog1py(x - 1, -p) + jnp.log(p))


pmf = exp_of(logpmf, "pmf", "2, 0.3", 0.21)
