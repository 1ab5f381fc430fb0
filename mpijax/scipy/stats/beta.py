"""Beta distribution on [loc, loc + scale]."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.special.entropy import xlog1py, xlogy
from mpijax.scipy.special.gamma import betainc, betaln
from mpijax.scipy.stats.shared import args_of, exp_of, log_of

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density; NaN unless a, b and scale are positive.

    >>> mpijax.scipy.stats.beta.logpdf(jnp.array([0.25, 0.5]), 2.0, 3.0).round(4)
    Array([0.5232, 0.4055], dtype=float32)
    """
    x, a, b, loc, scale = args_of("beta.logpdf", x, a, b, loc, scale)
    y = (x - loc) / scale
    inside = xlogy(a - 1, y) + xlog1py(b - 1, -y) - betaln(a, b) - jnp.log(scale)
    supported = jnp.where((x > loc + scale) | (x < loc), -np.inf, inside)
    return jnp.where((a <= 0) | (b <= 0) | (scale <= 0), np.nan, supported)


pdf = exp_of(logpdf, "pdf", "0.5, 2.0, 3.0", 1.5)


def _scaled(name, x, a, b, loc, scale):
    x, a, b, loc, scale = args_of(name, x, a, b, loc, scale)
    return jnp.clip((x - loc) / scale, 0, 1), a, b


def cdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x.

    >>> mpijax.scipy.stats.beta.cdf(jnp.array([0.25, 0.5]), 2.0, 3.0).round(4)
    Array([0.2617, 0.6875], dtype=float32)
    """
    y, a, b = _scaled("beta.cdf", x, a, b, loc, scale)
    return betainc(a, b, y)


def sf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x.

    >>> mpijax.scipy.stats.beta.sf(jnp.array([0.25, 0.5]), 2.0, 3.0).round(4)
    Array([0.7383, 0.3125], dtype=float32)
    """
    y, a, b = _scaled("beta.sf", x, a, b, loc, scale)
    return betainc(b, a, 1 - y)


logcdf = log_of(cdf, "logcdf", "0.5, 2.0, 3.0", -0.3747)
logsf = log_of(sf, "logsf", "0.5, 2.0, 3.0", -1.1632)
