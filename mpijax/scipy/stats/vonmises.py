"""Von Mises distribution of angles, concentrated by kappa > 0."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.scipy.stats.shared import args_of, exp_of


def logpdf(x: Any, kappa: Any) -> Any:
    """The logarithm of the density; NaN unless kappa is positive."""
    x, kappa = args_of("vonmises.logpdf", x, kappa)
    inside = kappa * (jnp.cos(x) - 1) - jnp.log(float(2 * np.pi) * lax.bessel_i0e(kappa))
    return jnp.where(kappa > 0, inside, np.nan)


pdf = exp_of(logpdf, "pdf")
