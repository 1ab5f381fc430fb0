"""Continuous distributions, as functions of uniform and normal numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base.option import values as options
from mpijax.core.tracing.out_sharding import takes_out_sharding
from mpijax.core.types.avals import number_of
from mpijax.numpy.util import promote_dtypes_inexact, scalar_like, shape_of
from mpijax.ops.random.keys import random_bits
from mpijax.ops.shapes.moves import canonical_shape
from mpijax.random.arguments import (
    broadcast_shape,
    check_castable,
    check_shape,
    sampler_dtype,
)
from mpijax.random.keys import check_key, split_key
from mpijax.random.uniform import _uniform, bernoulli, uniform
from mpijax.transforms.jit import jit


@takes_out_sharding
def normal(key: Any, shape: Sequence[int] = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Normal with mean 0 and variance 1 (for complex dtypes, variance 1/2 of each part).

    Returns an array of shape `shape`. `dtype` is a float or complex dtype, default float.

    >>> mpijax.random.normal(mpijax.random.key(0), (2,)).round(3)
    Array([1.623, 2.025], dtype=float32)
    """
    key, _ = check_key("normal", key)
    dtype = sampler_dtype("normal", dtype, float, np.inexact)
    return _normal(key, canonical_shape(shape), dtype)


@jit(static_argnums=(1, 2))
def _normal(key, shape, dtype):
    if not dtypes.issubdtype(dtype, np.complexfloating):
        return _normal_real(key, shape, dtype)
    key_re, key_im = split_key(key)
    part = np.array(0, dtype).real.dtype
    re = _normal_real(key_re, shape, part).astype(dtype)
    im = _normal_real(key_im, shape, part).astype(dtype)
    return (re + 1j * im) / number_of(np.sqrt(2), dtype)


@jit(static_argnums=(1, 2))
def _normal_real(key, shape, dtype):
    # The inverse of the distribution function, of a uniform number in (-1, 1).
    lowest = np.nextafter(np.array(-1.0, dtype), np.array(0.0, dtype), dtype=dtype)
    u = uniform(key, shape, dtype, number_of(lowest, dtype), number_of(1.0, dtype))
    return lax.mul(number_of(np.sqrt(2), dtype), lax.erf_inv(u))


@takes_out_sharding
def truncated_normal(
    key: Any,
    lower: Any,
    upper: Any,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Standard normal truncated to (lower, upper).

    Args:
      key: PRNG key.
      lower, upper: numbers or arrays.
      shape: shape of the result; default the broadcast shape of `lower` and `upper`.
      dtype: a float dtype; default float.

    >>> mpijax.random.truncated_normal(mpijax.random.key(0), -1.0, 1.0, (2,)).round(3)
    Array([0.862, 0.941], dtype=float32)
    """
    shape = None if shape is None else canonical_shape(shape)
    key, _ = check_key("truncated_normal", key)
    dtype = sampler_dtype("truncated_normal", dtype, float)
    return _truncated_normal(key, lower, upper, shape, dtype)


@jit(static_argnums=(3, 4))
def _truncated_normal(key, lower, upper, shape, dtype):
    if shape is None:
        shape = lax.broadcast_shapes(shape_of(lower), shape_of(upper))
    else:
        check_shape("truncated_normal", shape, shape_of(lower), shape_of(upper))
    root2 = number_of(np.sqrt(2), dtype)
    lower, upper = lax.convert_element_type(lower, dtype), lax.convert_element_type(upper, dtype)
    # The distribution function maps (lower, upper) to (a, b), up to scale and shift.
    a, b = lax.erf(lower / root2), lax.erf(upper / root2)
    out = root2 * lax.erf_inv(uniform(key, shape, dtype, minval=a, maxval=b))
    infinity = number_of(np.inf, dtype)
    return jnp.clip(
        out,
        lax.nextafter(lax.stop_gradient(lower), infinity),
        lax.nextafter(lax.stop_gradient(upper), -infinity),
    )


def _standard(name: str, doc: str, draw: Any, shown: str) -> Any:
    """A sampler without parameters, made from `draw(key, shape, dtype)` and jitted under its name. Its example prints
    `shown`."""
    jitted = jit(static_argnums=(1, 2))(draw)

    def sampler(key: Any, shape: Sequence[int] = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
        key, _ = check_key(name, key)
        dtype = sampler_dtype(name, dtype, float)
        return jitted(key, canonical_shape(shape), dtype)

    sampler.__name__ = sampler.__qualname__ = name
    sampler.__doc__ = f"""{doc}

    Args:
      key: PRNG key.
      shape: shape of the result.
      dtype: a float dtype; default float.

    >>> mpijax.random.{name}(mpijax.random.key(0), (2,)).round(3)
    Array({shown}, dtype=float32)
    """
    return takes_out_sharding(sampler)


def _exponential(key, shape, dtype):
    return lax.neg(lax.log1p(lax.neg(uniform(key, shape, dtype))))


def _laplace(key, shape, dtype):
    u = uniform(key, shape, dtype, minval=-1.0 + dtypes.finfo(dtype).epsneg, maxval=1.0)
    return lax.mul(lax.sign(u), lax.log1p(lax.neg(lax.abs(u))))


def _logistic(key, shape, dtype):
    u = uniform(key, shape, dtype, minval=dtypes.finfo(dtype).tiny, maxval=1.0)
    return lax.sub(lax.log(u), lax.log1p(lax.neg(u)))


def _cauchy(key, shape, dtype):
    u = uniform(key, shape, dtype, minval=dtypes.finfo(dtype).eps, maxval=1.0)
    return lax.tan(lax.mul(scalar_like(u, np.pi), lax.sub(u, scalar_like(u, 0.5))))


def _maxwell(key, shape, dtype):
    return norm(normal(key, (*shape, 3), dtype))


@jit
def norm(x):
    """Length of real vectors along the last axis."""
    return jnp.sqrt(jnp.sum(x * x, axis=-1))


_EXPONENTIAL = "Exponential with rate 1: density exp(-x) for x > 0."
exponential = _standard("exponential", _EXPONENTIAL, _exponential, "[2.95 , 3.843]")
laplace = _standard("laplace", "Laplace: density exp(-|x|) / 2.", _laplace, "[-2.257, -3.15 ]")
logistic = _standard("logistic", "Logistic: density exp(-x) / (1 + exp(-x))².", _logistic, "[2.896, 3.822]")
cauchy = _standard("cauchy", "Cauchy: density 1 / (π (x² + 1)).", _cauchy, "[ 6.027, 14.838]")
maxwell = _standard("maxwell", "Length of a vector of three standard normals.", _maxwell, "[2.631, 0.991]")


@takes_out_sharding
def gumbel(
    key: Any,
    shape: Sequence[int] = (),
    dtype: Any = None,
    mode: str | None = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Gumbel: density exp(-(x + exp(-x))).

    Args:
      key: PRNG key.
      shape: shape of the result.
      dtype: a float dtype; default float.
      mode: "low", "high" or "highest": the precision of the tail, that is, how rare the rarest values are.

    >>> mpijax.random.gumbel(mpijax.random.key(0), (2,)).round(3)
    Array([2.923, 3.833], dtype=float32)
    """
    key, _ = check_key("gumbel", key)
    dtype = sampler_dtype("gumbel", dtype, float)
    if mode is None:
        mode = "high" if options.jax_high_dynamic_range_gumbel else "low"
    if mode not in ("highest", "high", "low"):
        raise ValueError(f"Must provide valid mode for gumbel got: {mode}")
    return _gumbel(key, canonical_shape(shape), dtype, mode)


@jit(static_argnums=(1, 2, 3))
def _gumbel(key, shape, dtype, mode):
    info = dtypes.finfo(dtype)
    if mode == "highest" and dtype == np.float32:
        return _gumbel_highest(key, shape, info)
    if mode != "low":
        high, low = _uniform(key, minval=0.0, maxval=1.0, shape=(2, *shape), dtype=dtype)
        # If the float is small, draw its low bits, too.
        u = jnp.where(high >= 0.5, high, high + 2 ** (-info.nmant) * low + info.tiny)
        return -jnp.log(-jnp.log1p(-u))
    return -jnp.log(-jnp.log(_uniform(key, minval=info.tiny, maxval=1.0, shape=shape, dtype=dtype)))


def _gumbel_highest(key, shape, info):
    """Gumbel from a 64-bit fixed-point number, measured from the nearer end of [0, 1]."""
    drawn = random_bits(key, bit_width=info.bits, shape=(2, *shape))
    negated = lax.bitwise_not(drawn)
    low_word = negated[1]
    carry = low_word == np.array((1 << info.bits) - 1, dtype=np.uint32)
    negated = negated + jnp.array([carry, jnp.ones_like(low_word)], dtype=np.uint32)
    low_half = drawn[0] < np.array(1 << (info.bits - 1), dtype=np.uint32)
    x = _fixed_point_to_float(jnp.where(low_half, drawn, negated), np.float32)
    return jnp.where(low_half, -jnp.log(-jnp.log1p(-x)), -jnp.log(-jnp.log(x)))


def _fixed_point_to_float(words, dtype):
    """uint32 of shape [2, ...], the high word first, as a fraction of 2^64, truncated to float32."""
    info = dtypes.finfo(dtype)
    high_zeros, low_zeros = lax.clz(words)
    high, low = words
    shifted = lax.shift_left(high, high_zeros)
    carried = jnp.where(
        high_zeros == 32, lax.shift_left(low, low_zeros), lax.shift_right_logical(low, info.bits - high_zeros)
    )
    mantissa = lax.bitwise_or(shifted, carried)
    mantissa = lax.shift_right_logical(mantissa, np.array(info.bits - info.nmant - 1, dtype=np.uint32))
    mantissa = lax.bitwise_and(mantissa, np.array((1 << info.nmant) - 1, dtype=np.uint32))
    exponent = -info.minexp - jnp.where(high_zeros == 32, 32 + low_zeros, high_zeros)
    exponent = lax.shift_left(exponent, np.array(info.nmant, dtype=np.uint32))
    # The bits of the exponent, without its highest, which is not set below 2.
    exponent = lax.bitwise_and(exponent, np.array((1 << (info.bits - 2)) - (1 << (info.nmant - 1)), dtype=np.uint32))
    return lax.bitwise_or(exponent, mantissa).view(dtype)


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Sequence[int] = (), dtype: Any = None) -> Any:
    """Maxwell with a random sign, times `scale`, plus `loc`.

    Args:
      key: PRNG key.
      loc, scale: numbers or arrays.
      shape: leading axes of the result; the broadcast shape of `loc` and `scale` follows.
      dtype: a float dtype; default float.

    >>> mpijax.random.double_sided_maxwell(mpijax.random.key(0), 0.0, 1.0, (2,)).round(3)
    Array([1.546, 1.574], dtype=float32)
    """
    key, _ = check_key("double_sided_maxwell", key)
    dtype = sampler_dtype("double_sided_maxwell", dtype, float)
    return _double_sided_maxwell(key, loc, scale, canonical_shape(shape), dtype)


@jit(static_argnums=(3, 4))
def _double_sided_maxwell(key, loc, scale, shape, dtype):
    params_shape = lax.broadcast_shapes(shape_of(loc), shape_of(scale))
    shape = (shape or params_shape) + params_shape
    maxwell_key, sign_key = split_key(key)
    values = maxwell(maxwell_key, shape=shape, dtype=dtype)
    return rademacher(sign_key, shape=shape, dtype=dtype) * values * scale + loc


@takes_out_sharding
def rademacher(key: Any, shape: Sequence[int] = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Rademacher: 1 or -1, with equal probability. The default dtype is int.

    Returns an array of shape `shape`. `dtype` is a numeric dtype.

    >>> mpijax.random.rademacher(mpijax.random.key(0), (4,))
    Array([-1, -1,  1,  1], dtype=int32)
    """
    key, _ = check_key("rademacher", key)
    dtype = dtypes.check_user_dtype_supported(int if dtype is None else dtype)
    return _rademacher(key, canonical_shape(shape), dtype)


@jit(static_argnums=(1, 2))
def _rademacher(key, shape, dtype):
    heads = bernoulli(key=key, p=0.5, shape=shape).astype(dtype)
    return (2 * heads - 1).astype(dtype)


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Sequence[int] = (), dtype: Any = None) -> Any:
    """Weibull: scale · x, where x has the distribution function 1 - exp(-x^concentration).

    Returns an array of shape `shape`. `dtype` is a float dtype, default float.

    >>> mpijax.random.weibull_min(mpijax.random.key(0), 1.0, 2.0, (2,)).round(3)
    Array([1.718, 1.96 ], dtype=float32)
    """
    key, _ = check_key("weibull_min", key)
    dtype = sampler_dtype("weibull_min", dtype, float)
    return _weibull_min(key, scale, concentration, canonical_shape(shape), dtype)


@jit(static_argnums=(3, 4))
def _weibull_min(key, scale, concentration, shape, dtype):
    u = uniform(key=key, shape=shape, minval=0, maxval=1, dtype=dtype)
    return jnp.power(-jnp.log1p(-u), 1.0 / concentration) * scale


@takes_out_sharding
def pareto(key: Any, b: Any, shape: Sequence[int] | None = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Pareto: density b / x^(b+1) for x > 1.

    Returns an array of shape `shape`, to which `b` broadcasts (default: its shape). `dtype` is a float dtype, default
    float.

    >>> mpijax.random.pareto(mpijax.random.key(0), 3.0, (2,)).round(3)
    Array([2.673, 3.601], dtype=float32)
    """
    key, _ = check_key("pareto", key)
    dtype = sampler_dtype("pareto", dtype, float)
    shape = broadcast_shape("pareto", shape, b)
    check_castable("pareto", dtype, b)
    return _pareto(key, b, shape, dtype)


@jit(static_argnums=(2, 3))
def _pareto(key, b, shape, dtype):
    b = lax.convert_element_type(b, dtype)
    return lax.exp(exponential(key, shape, dtype) / b)


@takes_out_sharding
def rayleigh(
    key: Any, scale: Any, shape: Sequence[int] | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Rayleigh: density x exp(-x²/2) for x > 0, times `scale`.

    Returns an array of shape `shape`, to which `scale` broadcasts (default: its shape). `dtype` is a float dtype,
    default float.

    >>> mpijax.random.rayleigh(mpijax.random.key(0), 1.0, (2,)).round(3)
    Array([0.328, 0.208], dtype=float32)
    """
    key, _ = check_key("rayleigh", key)
    dtype = sampler_dtype("rayleigh", dtype, float)
    shape = broadcast_shape("rayleigh", shape, scale)
    check_castable("rayleigh", dtype, scale)
    return _rayleigh(key, scale, shape, dtype)


@jit(static_argnums=(2, 3))
def _rayleigh(key, scale, shape, dtype):
    u = uniform(key, shape, dtype)
    scale = jnp.broadcast_to(scale.astype(dtype), shape)
    log_u = lax.log(u)
    return lax.mul(scale, lax.sqrt(lax.mul(log_u, scalar_like(scale, -2))))


@takes_out_sharding
def wald(
    key: Any, mean: Any, shape: Sequence[int] | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Inverse Gaussian with the given mean and scale 1. Michael, Schucany and Haas (1976).

    Returns an array of shape `shape`, to which `mean` broadcasts (default: its shape). `dtype` is a float dtype,
    default float.

    >>> mpijax.random.wald(mpijax.random.key(0), 1.0, (2,)).round(3)
    Array([0.381, 0.416], dtype=float32)
    """
    key, _ = check_key("wald", key)
    dtype = sampler_dtype("wald", dtype, float)
    shape = broadcast_shape("wald", shape, mean)
    check_castable("wald", dtype, mean)
    return _wald(key, mean, shape, dtype)


@jit(static_argnums=(2, 3))
def _wald(key, mean, shape, dtype):
    normal_key, uniform_key = split_key(key, 2)
    mean = jnp.broadcast_to(mean.astype(dtype), shape)
    v = normal(normal_key, shape, dtype)
    z = uniform(uniform_key, shape, dtype)
    y = lax.integer_pow(v, 2)
    y_squared = lax.integer_pow(y, 2)
    mean_squared = lax.integer_pow(mean, 2)
    root = lax.sqrt(4 * mean * y + mean_squared * y_squared)
    # The smaller root of the quadratic that a chi-square number leads to; the other is mean² / x.
    x = mean + mean_squared * y / 2 - mean / 2 * root
    return lax.select(lax.le(z, mean / (mean + x)), x, mean_squared / x)


@takes_out_sharding
def triangular(
    key: Any,
    left: Any,
    mode: Any,
    right: Any,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Triangular on [left, right] with its peak at `mode`.

    Returns an array of shape `shape`, to which `left`, `mode` and `right` broadcast (default: their shape). `dtype` is
    a float dtype, default float.

    >>> mpijax.random.triangular(mpijax.random.key(0), 0.0, 0.5, 1.0, (2,)).round(3)
    Array([0.838, 0.897], dtype=float32)
    """
    key, _ = check_key("triangular", key)
    dtype = sampler_dtype("triangular", dtype, float)
    shape = broadcast_shape("triangular", shape, left, mode, right)
    check_castable("triangular", dtype, left, mode, right)
    return _triangular(key, left, mode, right, shape, dtype)


@jit(static_argnums=(4, 5), inline=True)
def _triangular(key, left, mode, right, shape, dtype):
    left = jnp.broadcast_to(lax.convert_element_type(left, dtype), shape)
    right = jnp.broadcast_to(lax.convert_element_type(right, dtype), shape)
    mode = jnp.broadcast_to(lax.convert_element_type(mode, dtype), shape)
    at_mode = (mode - left) / (right - left)
    u = uniform(key, shape, dtype)
    rising = left + lax.sqrt(u * (right - left) * (mode - left))
    falling = right - lax.sqrt((1 - u) * (right - left) * (right - mode))
    return lax.select(u < at_mode, rising, falling)


_ONE = np.float32(1)


@takes_out_sharding
def lognormal(
    key: Any,
    sigma: Any = _ONE,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Log-normal: exp(x), where x is normal with mean 0 and standard deviation `sigma`.

    Returns an array of shape `shape`. `dtype` is a float dtype, default float.

    >>> mpijax.random.lognormal(mpijax.random.key(0), shape=(2,)).round(3)
    Array([5.066, 7.578], dtype=float32)
    """
    key, _ = check_key("lognormal", key)
    dtype = sampler_dtype("lognormal", dtype, float, np.inexact)
    shape = broadcast_shape("lognormal", shape, sigma)
    check_castable("lognormal", dtype, sigma)
    return _lognormal(key, sigma, shape, dtype)


@jit(static_argnums=(2, 3), inline=True)
def _lognormal(key, sigma, shape, dtype):
    sigma = lax.convert_element_type(sigma, dtype)
    return lax.exp(normal(key, shape, dtype) * sigma)


@takes_out_sharding
def geometric(
    key: Any, p: Any, shape: Sequence[int] | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Geometric: the number of trials until the first success, each with probability `p`.

    Returns an array of shape `shape`, to which `p` broadcasts (default: its shape). `dtype` is an integer dtype,
    default int.

    >>> mpijax.random.geometric(mpijax.random.key(0), 0.3, (4,))
    Array([1, 1, 4, 3], dtype=int32)
    """
    key, _ = check_key("geometric", key)
    dtype = sampler_dtype("geometric", dtype, int, np.integer)
    shape = broadcast_shape("geometric", shape, p)
    return _geometric(key, p, shape, dtype)


@jit(static_argnums=(2, 3))
def _geometric(key, p, shape, dtype):
    (p,) = promote_dtypes_inexact(p)
    u = uniform(key, shape, p.dtype)
    log_u = lax.log(jnp.where(u == 0, 1, u))
    log_failure = jnp.broadcast_to(lax.log1p(-p), shape)
    return (lax.floor(lax.div(log_u, log_failure)) + 1).astype(dtype)
