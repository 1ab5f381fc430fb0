"""Student's t distribution with `df` degrees of freedom."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density.

    >>> mpijax.scipy.stats.t.logpdf(jnp.array([0.0, 1.0]), 3.0).round(4)
    Array([-1.0009, -1.5763], dtype=float32)
    """
    x, df, loc, scale = args_of("t.logpdf", x, df, loc, scale)
    y = (x - loc) / scale
    power = df / 2 + 0.5
    normalizer = lax.lgamma(df / 2) + jnp.log(scale * scale * float(np.pi) * df) / 2 - lax.lgamma(power)
    return -(normalizer + power * jnp.log1p(y * y / df))


pdf = exp_of(logpdf, "pdf", "1.0, 3.0", 0.2067)
