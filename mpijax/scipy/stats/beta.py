"""Beta distribution on [loc, loc + scale]."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.special import betainc, betaln, xlog1py, xlogy
from mpijax.scipy.stats.shared import args_of, exp_of, log_of


def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density; NaN unless a, b and scale are positive."""
    x, a, b, loc, scale = args_of("beta.logpdf", x, a, b, loc, scale)
    y = (x - loc) / scale
    inside = xlogy(a - 1, y) + xlog1py(b - 1, -y) - betaln(a, b) - jnp.log(scale)
    supported = jnp.where((x > loc + scale) | (x < loc), -np.inf, inside)
    return jnp.where((a <= 0) | (b <= 0) | (scale <= 0), np.nan, supported)


pdf = exp_of(logpdf, "pdf")


def _scaled(name, x, a, b, loc, scale):
    x, a, b, loc, scale = args_of(name, x, a, b, loc, scale)
    return jnp.clip((x - loc) / scale, 0, 1), a, b


def cdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x."""
    y, a, b = _scaled("beta.cdf", x, a, b, loc, scale)
    return betainc(a, b, y)


def sf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x."""
    y, a, b = _scaled("beta.sf", x, a, b, loc, scale)
    return betainc(b, a, 1 - y)


logcdf = log_of(cdf, "logcdf")
logsf = log_of(sf, "logsf")
