"""Random vectors and matrices that need linear algebra."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base.config import numpy_rank_promotion
from mpijax.core.tracing.out_sharding import takes_out_sharding
from mpijax.numpy.util import promote_dtypes_inexact, static
from mpijax.ops.shapes.moves import canonical_shape
from mpijax.random.arguments import check_shape, sampler_dtype
from mpijax.random.continuous import normal
from mpijax.random.keys import check_key
from mpijax.transforms.jit import jit


@takes_out_sharding
def multivariate_normal(
    key: Any,
    mean: Any,
    cov: Any,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    method: str = "cholesky",
    *,
    out_sharding: Any = None,
) -> Any:
    """Normal vectors: an array of shape [*shape, n].

    Args:
      key: PRNG key.
      mean: array of shape [..., n].
      cov: covariance matrices, of shape [..., n, n].
      shape: shape of the result without n; default the broadcast shape of the leading axes of `mean` and `cov`.
      dtype: a float dtype; default that of `mean` and `cov`.
      method: how to compute a square root of `cov`: "cholesky", or "eigh" or "svd" if `cov` is only semidefinite.

    >>> mpijax.random.multivariate_normal(mpijax.random.key(0), jnp.zeros(2), jnp.eye(2)).round(3)
    Array([1.623, 2.025], dtype=float32)
    """
    key, _ = check_key("multivariate_normal", key)
    mean, cov = promote_dtypes_inexact(mean, cov)
    if method not in ("svd", "eigh", "cholesky"):
        raise ValueError(f"method must be one of {{'svd', 'eigh', 'cholesky'}}; got {method!r}")
    dtype = sampler_dtype("multivariate_normal", mean.dtype if dtype is None else dtype, float)
    return _multivariate_normal(key, mean, cov, None if shape is None else canonical_shape(shape), dtype, method)


@jit(static_argnums=(3, 4, 5))
def _multivariate_normal(key, mean, cov, shape, dtype, method):
    if mean.ndim < 1:
        raise ValueError(f"multivariate_normal requires mean.ndim >= 1, got mean.ndim == {mean.ndim}")
    if cov.ndim < 2:
        raise ValueError(f"multivariate_normal requires cov.ndim >= 2, got cov.ndim == {cov.ndim}")
    n = mean.shape[-1]
    if cov.shape[-2:] != (n, n):
        raise ValueError(
            f"multivariate_normal requires cov.shape == (..., n, n) for n={n}, but got cov.shape == {cov.shape}."
        )
    if shape is None:
        shape = lax.broadcast_shapes(mean.shape[:-1], cov.shape[:-2])
    else:
        check_shape("normal", shape, mean.shape[:-1], cov.shape[:-2])
    samples = normal(key, (*shape, n), dtype)
    with numpy_rank_promotion("allow"):
        return mean + jnp.einsum("...ij,...j->...i", _square_root(cov, method), samples)


def _square_root(cov: Any, method: str) -> Any:
    """A matrix L with L Lᵀ = cov."""
    if method == "svd":
        u, s, _ = jnp.linalg.svd(cov)
        return u * jnp.sqrt(s[..., None, :])
    if method == "eigh":
        w, v = jnp.linalg.eigh(cov)
        return v * jnp.sqrt(w[..., None, :])
    return jnp.linalg.cholesky(cov)


@takes_out_sharding
def orthogonal(
    key: Any,
    n: int,
    shape: Sequence[int] = (),
    dtype: Any = None,
    m: int | None = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Uniformly distributed orthogonal matrices, of shape [*shape, n, m], with orthonormal columns (rows if n < m).

    Args:
      key: PRNG key.
      n, m: numbers of rows and columns; default m: n.
      shape: shape of the leading axes.
      dtype: a float dtype, or a complex dtype for unitary matrices; default float.

    >>> q = mpijax.random.orthogonal(mpijax.random.key(0), 3)
    >>> jnp.allclose(q @ q.T, jnp.eye(3), atol=1e-5)
    Array(True, dtype=bool)
    """
    shape = canonical_shape(shape)
    key, _ = check_key("orthogonal", key)
    dtype = dtypes.check_user_dtype_supported(float if dtype is None else dtype)
    where = "The error occurred in jax.random.orthogonal()"
    n = static(n, where, operator.index)
    columns = n if m is None else static(m, where, operator.index)
    return _orthogonal(key, n, columns, shape, dtype)


@jit(static_argnums=(1, 2, 3, 4))
def _orthogonal(key, n, _m, shape, dtype):
    q, r = jnp.linalg.qr(normal(key, (*shape, max(n, _m), min(n, _m)), dtype))
    # With positive diagonals of r the factorization is unique, and q as uniform as the normal matrix.
    q = q * jnp.expand_dims(jnp.sign(jnp.linalg.diagonal(r)), -2)
    return q.mT if n < _m else q
