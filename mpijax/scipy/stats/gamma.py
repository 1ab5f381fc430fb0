"""Gamma distribution of shape a."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.scipy.special import gammainc, gammaincc, gammaln, xlogy
from mpijax.scipy.stats.shared import args_of, exp_of, log_of


def logpdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density."""
    x, a, loc, scale = args_of("gamma.logpdf", x, a, loc, scale)
    supported = x >= loc
    y = jnp.where(supported, (x - loc) / scale, 1.0)
    return jnp.where(supported, xlogy(a - 1, y) - y - gammaln(a) - jnp.log(scale), -np.inf)


pdf = exp_of(logpdf, "pdf")


def cdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x."""
    x, a, loc, scale = args_of("gamma.cdf", x, a, loc, scale)
    return gammainc(a, jnp.clip((x - loc) / scale, 0))


def sf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x."""
    x, a, loc, scale = args_of("gamma.sf", x, a, loc, scale)
    y = (x - loc) / scale
    return jnp.where(y < 0, 1.0, gammaincc(a, jnp.where(y < 0, 1.0, y)))


logcdf = log_of(cdf, "logcdf")
logsf = log_of(sf, "logsf")
