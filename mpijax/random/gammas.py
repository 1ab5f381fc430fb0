"""The gamma distribution, and distributions derived from it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base import provided
from mpijax.core.tracing.out_sharding import takes_out_sharding
from mpijax.numpy.util import scalar_like, shape_of, static
from mpijax.ops.random.gamma import random_gamma_p
from mpijax.ops.shapes.moves import canonical_shape
from mpijax.random.arguments import (
    broadcast_shape,
    check_castable,
    check_shape,
    sampler_dtype,
)
from mpijax.random.continuous import exponential, normal, rademacher
from mpijax.random.keys import check_key, split_key
from mpijax.transforms.jit import jit


def _optional_shape(shape: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if shape is None else canonical_shape(shape)


@takes_out_sharding
def gamma(
    key: Any, a: Any, shape: Sequence[int] | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Gamma: density x^(a-1) exp(-x) / Γ(a) for x > 0. Samples are differentiable with respect to `a`.

    Args:
      key: PRNG key.
      a: shape parameter, a number or an array.
      shape: shape of the result; default that of `a`.
      dtype: a float dtype; default float.

    >>> mpijax.random.gamma(mpijax.random.key(0), 3.0, (2,)).round(3)
    Array([2.569, 2.784], dtype=float32)
    """
    key, _ = check_key("gamma", key)
    dtype = sampler_dtype("gamma", dtype, float)
    return _gamma(key, a, shape=_optional_shape(shape), dtype=dtype)


@takes_out_sharding
def loggamma(
    key: Any, a: Any, shape: Sequence[int] | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Logarithms of gamma variables. They stay finite where the variables themselves underflow to 0. See `gamma`.

    Returns an array of shape `shape`, to which `a` broadcasts (default: its shape). `dtype` is a float dtype, default
    float.

    >>> mpijax.random.loggamma(mpijax.random.key(0), 1e-4, (2,)).round(0)
    Array([-1102.,  -953.], dtype=float32)
    """
    key, _ = check_key("loggamma", key)
    dtype = sampler_dtype("gamma", dtype, float)
    return _gamma(key, a, shape=_optional_shape(shape), dtype=dtype, log_space=True)


@jit(static_argnames=("shape", "dtype", "log_space"))
def _gamma(key, a, shape, dtype, log_space=False):
    if shape is None:
        shape = shape_of(a)
    else:
        check_shape("gamma", shape, shape_of(a))
    a = lax.convert_element_type(a, dtype)
    if shape_of(a) != shape:
        a = jnp.broadcast_to(a, shape)
    return random_gamma_p.bind(key, a, log_space=log_space)


@takes_out_sharding
def beta(
    key: Any, a: Any, b: Any, shape: Sequence[int] | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Beta: density proportional to x^(a-1) (1-x)^(b-1) for x in (0, 1).

    Returns an array of shape `shape`, to which `a` and `b` broadcast (default: their shape). `dtype` is a float dtype,
    default float.

    >>> mpijax.random.beta(mpijax.random.key(0), 2.0, 3.0, (2,)).round(3)
    Array([0.236, 0.49 ], dtype=float32)
    """
    key, _ = check_key("beta", key)
    dtype = sampler_dtype("beta", dtype, float)
    check_castable("beta", dtype, a, b)
    shape = broadcast_shape("beta", shape, a, b)
    return _beta(key, a, b, shape, dtype)


@jit(static_argnums=(3, 4))
def _beta(key, a, b, shape, dtype):
    a, b = lax.convert_element_type(a, dtype), lax.convert_element_type(b, dtype)
    key_a, key_b = split_key(key)
    a, b = jnp.broadcast_to(a, shape), jnp.broadcast_to(b, shape)
    log_a, log_b = loggamma(key_a, a, shape, dtype), loggamma(key_b, b, shape, dtype)
    largest = lax.max(log_a, log_b)
    a, b = jnp.exp(log_a - largest), jnp.exp(log_b - largest)
    return a / (a + b)


@takes_out_sharding
def dirichlet(
    key: Any, alpha: Any, shape: Sequence[int] | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Dirichlet: n fractions with sum 1, with a density proportional to the product of x_i^(alpha_i - 1).

    Args:
      key: PRNG key.
      alpha: array of shape [..., n].
      shape: shape of the result without n; default that of `alpha` without n.
      dtype: a float dtype; default float.

    >>> mpijax.random.dirichlet(mpijax.random.key(0), jnp.array([1.0, 2.0, 3.0])).round(3)
    Array([0.142, 0.405, 0.453], dtype=float32)
    """
    key, _ = check_key("dirichlet", key)
    dtype = sampler_dtype("dirichlet", dtype, float)
    return _dirichlet(key, alpha, _optional_shape(shape), dtype)


@jit(static_argnums=(2, 3))
def _dirichlet(key, alpha, shape, dtype):
    sizes = shape_of(alpha)
    if not sizes:
        raise ValueError(f"dirichlet requires alpha.ndim >= 1, got alpha.ndim == {len(sizes)}")
    if shape is None:
        shape = sizes[:-1]
    else:
        check_shape("dirichlet", shape, sizes[:-1])
    alpha = lax.convert_element_type(alpha, dtype)
    return provided.softmax(loggamma(key, alpha, shape + sizes[-1:], dtype), -1)


@takes_out_sharding
def chisquare(
    key: Any, df: Any, shape: Sequence[int] | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Chi-square: the sum of the squares of `df` standard normals.

    Returns an array of shape `shape`, to which `df` broadcasts (default: its shape). `dtype` is a float dtype, default
    float.

    >>> mpijax.random.chisquare(mpijax.random.key(0), 3.0, (2,)).round(3)
    Array([2.205, 2.49 ], dtype=float32)
    """
    key, _ = check_key("chisquare", key)
    dtype = sampler_dtype("chisquare", dtype, float)
    shape = broadcast_shape("chisquare", shape, df)
    check_castable("chisquare", dtype, df)
    return _chisquare(key, df, shape, dtype)


@jit(static_argnums=(2, 3))
def _chisquare(key, df, shape, dtype):
    df = lax.convert_element_type(df, dtype)
    two = scalar_like(df, 2)
    return lax.mul(jnp.exp(loggamma(key, lax.div(df, two), shape, dtype)), two)


@takes_out_sharding
def f(
    key: Any,
    dfnum: Any,
    dfden: Any,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """F: the ratio of two chi-square variables, each divided by its degrees of freedom.

    Returns an array of shape `shape`, to which `dfnum` and `dfden` broadcast (default: their shape). `dtype` is a float
    dtype, default float.

    >>> mpijax.random.f(mpijax.random.key(0), 2.0, 3.0, (2,)).round(3)
    Array([3.27 , 0.063], dtype=float32)
    """
    key, _ = check_key("f", key)
    dtype = sampler_dtype("f", dtype, float)
    shape = broadcast_shape("f", shape, dfnum, dfden)
    check_castable("f", dtype, dfnum, dfden)
    return _f(key, dfnum, dfden, shape, dtype)


@jit(static_argnums=(3, 4))
def _f(key, dfnum, dfden, shape, dtype):
    dfden, dfnum = lax.convert_element_type(dfden, dtype), lax.convert_element_type(dfnum, dtype)
    key_below, key_above = split_key(key)
    above, below = chisquare(key_above, dfnum, shape, dtype), chisquare(key_below, dfden, shape, dtype)
    return lax.div(lax.div(above, _spread(dfnum, shape)), lax.div(below, _spread(dfden, shape)))


def _spread(x: Any, shape: tuple[int, ...]) -> Any:
    """A parameter with as many axes as the samples. Scalars do not change."""
    return x if not x.ndim else lax.broadcast_to_rank(x, len(shape))


@takes_out_sharding
def t(key: Any, df: Any, shape: Sequence[int] | None = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Student's t with `df` degrees of freedom.

    Returns an array of shape `shape`, to which `df` broadcasts (default: its shape). `dtype` is a float dtype, default
    float.

    >>> mpijax.random.t(mpijax.random.key(0), 3.0, (2,)).round(3)
    Array([ 0.69 , -3.239], dtype=float32)
    """
    key, _ = check_key("t", key)
    dtype = sampler_dtype("t", dtype, float)
    shape = broadcast_shape("t", shape, df)
    check_castable("t", dtype, df)
    return _t(key, df, shape, dtype)


@jit(static_argnums=(2, 3))
def _t(key, df, shape, dtype):
    df = lax.convert_element_type(df, dtype)
    key_normal, key_gamma = split_key(key)
    n = normal(key_normal, shape, dtype)
    half = lax.div(df, scalar_like(n, 2))
    return n * jnp.sqrt(half / gamma(key_gamma, half, shape, dtype))


@takes_out_sharding
def generalized_normal(
    key: Any, p: Any, shape: Sequence[int] = (), dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Generalized normal: density proportional to exp(-|x|^p).

    Returns an array of shape `shape`. `dtype` is a float dtype, default float.

    >>> mpijax.random.generalized_normal(mpijax.random.key(0), 4.0, (2,)).round(3)
    Array([0.879, 0.103], dtype=float32)
    """
    shape = canonical_shape(shape)
    key, _ = check_key("generalized_normal", key)
    dtype = dtypes.check_user_dtype_supported(float if dtype is None else dtype)
    return _generalized_normal(key, p, shape, dtype)


@jit(static_argnums=(2, 3))
def _generalized_normal(key, p, shape, dtype):
    keys = split_key(key)
    g = gamma(keys[0], 1 / p, shape, dtype)
    return rademacher(keys[1], shape, dtype) * g ** (1 / p)


@takes_out_sharding
def ball(
    key: Any, d: int, p: Any = 2, shape: Sequence[int] = (), dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Uniform points in the unit ball of the p-norm in `d` dimensions: an array of shape [*shape, d].

    Barthe, Guédon, Mendelson and Naor (2005).

    `p` is the order of the norm; `dtype` is a float dtype, default float.

    >>> mpijax.random.ball(mpijax.random.key(0), d=2, shape=(2,)).round(3)
    Array([[ 0.917,  0.393],
           [ 0.043, -0.909]], dtype=float32)
    """
    shape = canonical_shape(shape)
    key, _ = check_key("ball", key)
    dtype = dtypes.check_user_dtype_supported(float if dtype is None else dtype)
    d = static(d, "The error occurred in jax.random.ball()", operator.index)
    return _ball(key, p, d, shape, dtype)


@jit(static_argnums=(2, 3, 4))
def _ball(key, p, d, shape, dtype):
    key_direction, key_radius = split_key(key)
    g = generalized_normal(key_direction, p, (*shape, d), dtype)
    e = exponential(key_radius, shape, dtype)
    return g / (((jnp.abs(g) ** p).sum(-1) + e) ** (1 / p))[..., None]
