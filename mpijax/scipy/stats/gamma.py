"""Gamma distribution with shape parameter a."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.special.entropy import xlogy
from mpijax.scipy.special.gamma import gammainc, gammaincc, gammaln
from mpijax.scipy.stats.shared import args_of, exp_of, log_of

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density.

    >>> mpijax.scipy.stats.gamma.logpdf(jnp.array([1.0, 2.0]), 3.0).round(4)
    Array([-1.6931, -1.3069], dtype=float32)
    """
    x, a, loc, scale = args_of("gamma.logpdf", x, a, loc, scale)
    supported = x >= loc
    y = jnp.where(supported, (x - loc) / scale, 1.0)
    return jnp.where(supported, xlogy(a - 1, y) - y - gammaln(a) - jnp.log(scale), -np.inf)


pdf = exp_of(logpdf, "pdf", "2.0, 3.0", 0.2707)


def cdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x.

    >>> mpijax.scipy.stats.gamma.cdf(jnp.array([1.0, 2.0]), 3.0).round(4)
    Array([0.0803, 0.3233], dtype=float32)
    """
    x, a, loc, scale = args_of("gamma.cdf", x, a, loc, scale)
    return gammainc(a, jnp.clip((x - loc) / scale, 0))


def sf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x.

    >>> mpijax.scipy.stats.gamma.sf(jnp.array([1.0, 2.0]), 3.0).round(4)
    Array([0.9197, 0.6767], dtype=float32)
    """
    x, a, loc, scale = args_of("gamma.sf", x, a, loc, scale)
    y = (x - loc) / scale
    return jnp.where(y < 0, 1.0, gammaincc(a, jnp.where(y < 0, 1.0, y)))


logcdf = log_of(cdf, "logcdf", "2.0, 3.0", -1.1291)
logsf = log_of(sf, "logsf", "2.0, 3.0", -0.3906)
