"""Normal distribution of several variables."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.numpy.util import as_array, promote_dtypes_inexact
from mpijax.scipy.stats.shared import exp_of

__all__ = ["logpdf", "pdf"]

_LOG_2PI = float(np.log(2 * np.pi))


def logpdf(x: Any, mean: Any, cov: Any, allow_singular: None = None) -> Any:
    """The logarithm of the density at x.

    Args:
      x: array of shape (..., n).
      mean: array of shape (..., n), or a scalar for one variable.
      cov: covariance, of shape (..., n, n); or a scalar, the variance of independent variables.
      allow_singular: must be None.

    >>> x = jnp.array([[0.0, 0.0], [1.0, 0.0]])
    >>> mpijax.scipy.stats.multivariate_normal.logpdf(x, jnp.zeros(2), jnp.eye(2)).round(4)
    Array([-1.8379, -2.3379], dtype=float32)
    """
    if allow_singular is not None:
        raise NotImplementedError("allow_singular argument of multivariate_normal.logpdf")
    x, mean, cov = (as_array(v) for v in promote_dtypes_inexact(x, mean, cov))
    y = x - mean
    if not mean.shape:
        return -0.5 * (y * y / cov + _LOG_2PI + jnp.log(cov))
    n = mean.shape[-1]
    if not cov.shape:
        return -0.5 * ((y * y).sum(-1) / cov + n * (_LOG_2PI + jnp.log(cov)))
    if cov.ndim < 2 or cov.shape[-2:] != (n, n):
        raise ValueError(
            f"multivariate_normal.logpdf got incompatible shapes: mean {mean.shape} needs cov (..., {n}, {n}), "
            f"got {cov.shape}"
        )
    factor = lax.linalg.cholesky(cov)
    white = _whitened(factor, y)
    half_log_det = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
    return -0.5 * ((white * white).sum(-1) + n * _LOG_2PI) - half_log_det


def _whitened(factor, y):
    """L^-1 y for lower triangular matrices [..., n, n] and vectors [..., n]."""
    n = y.shape[-1]
    if factor.ndim == 2:  # one matrix: the vectors are rows of one right-hand side
        rows = y.reshape(-1, n)
        return lax.linalg.triangular_solve(factor, rows, lower=True, transpose_a=True).reshape(y.shape)
    lead = jnp.broadcast_shapes(factor.shape[:-2], y.shape[:-1])
    factors, column = jnp.broadcast_to(factor, (*lead, n, n)), jnp.broadcast_to(y, (*lead, n))[..., None]
    return lax.linalg.triangular_solve(factors, column, left_side=True, lower=True)[..., 0]


pdf = exp_of(logpdf, "pdf", "jnp.zeros(2), jnp.zeros(2), jnp.eye(2)", 0.1592)
