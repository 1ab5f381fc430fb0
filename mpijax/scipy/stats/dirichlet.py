"""Dirichlet distribution over the simplex."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.numpy.util import as_array, promote_dtypes_inexact
from mpijax.scipy.special.entropy import xlogy
from mpijax.scipy.special.gamma import gammaln
from mpijax.scipy.stats.shared import exp_of

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, alpha: Any) -> Any:
    """The logarithm of the density at x; -inf unless x is positive and has the sum 1.

    Args:
      x: probabilities along the first axis: as many as in `alpha`, or one fewer; the last one is then 1 minus their
        sum.
      alpha: concentrations, an array with one axis.

    Returns:
      Array of shape x.shape[1:].

    >>> mpijax.scipy.stats.dirichlet.logpdf(jnp.array([0.2, 0.8]), jnp.array([2.0, 3.0])).round(4)
    Array(0.4292, dtype=float32)
    """
    x, alpha = (as_array(v) for v in promote_dtypes_inexact(x, alpha))
    if alpha.ndim != 1:
        raise ValueError(f"`alpha` must be one-dimensional; got alpha.shape={alpha.shape}")
    if x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
        raise ValueError(
            "`x` must have either the same number of entries as `alpha` or one entry fewer; "
            f"got x.shape={x.shape}, alpha.shape={alpha.shape}"
        )
    if x.shape[0] != alpha.shape[0]:
        x = jnp.concatenate([x, 1 - x.sum(0, keepdims=True)], axis=0)
    normalizer = gammaln(alpha).sum() - gammaln(alpha.sum())
    weights = (alpha - 1).reshape(-1, *(1,) * (x.ndim - 1))
    inside = xlogy(weights, x).sum(0) - normalizer
    on_simplex = jnp.all(x > 0, axis=0) & (abs(x.sum(0) - 1) < 1e-6)
    return jnp.where(on_simplex, inside, -np.inf)


pdf = exp_of(logpdf, "pdf", "jnp.array([0.2, 0.8]), jnp.array([2.0, 3.0])", 1.536)
