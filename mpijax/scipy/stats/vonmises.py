"""Von Mises distribution of angles, with concentration kappa > 0."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.scipy.stats.shared import args_of, exp_of

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, kappa: Any) -> Any:
    """The logarithm of the density; NaN unless kappa is positive.

    >>> mpijax.scipy.stats.vonmises.logpdf(jnp.array([0.0, 1.0]), 2.0).round(4)
    Array([-0.6619, -1.5813], dtype=float32)
    """
    x, kappa = args_of("vonmises.logpdf", x, kappa)
    inside = kappa * (jnp.cos(x) - 1) - jnp.log(float(2 * np.pi) * lax.bessel_i0e(kappa))
    return jnp.where(kappa > 0, inside, np.nan)


pdf = exp_of(logpdf, "pdf", "1.0, 2.0", 0.2057)
