"""Distributions of counts: Poisson, binomial, multinomial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.tracing.out_sharding import takes_out_sharding
from mpijax.numpy.util import check_arraylike, promote_dtypes_inexact, scalar_like, shape_of
from mpijax.ops.random.keys import threefry_prng_impl
from mpijax.ops.shapes.moves import canonical_shape
from mpijax.random.arguments import check_shape, sampler_dtype
from mpijax.random.keys import check_key, split_key
from mpijax.random.uniform import uniform
from mpijax.transforms.jit import jit

_F32 = np.dtype(np.float32)


@takes_out_sharding
def poisson(
    key: Any, lam: Any, shape: Sequence[int] | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Poisson: probability lam^k exp(-lam) / k!.

    Args:
      key: PRNG key.
      lam: rate, a number or an array.
      shape: shape of the result; default that of `lam`.
      dtype: an integer dtype; default int.

    >>> mpijax.random.poisson(mpijax.random.key(0), 4.0, (5,))
    Array([0, 1, 5, 5, 2], dtype=int32)
    """
    key, _ = check_key("poisson", key)
    dtype = dtypes.check_user_dtype_supported(int if dtype is None else dtype)
    impl = key.dtype._impl
    if impl is not threefry_prng_impl:
        raise NotImplementedError(f"`poisson` is only implemented for the threefry2x32 RNG, not {impl}")
    shape = shape_of(lam) if shape is None else canonical_shape(shape)
    lam = lax.convert_element_type(jnp.broadcast_to(lam, shape), _F32)
    return _poisson(key, lam, shape, dtype)


@jit(static_argnums=(2, 3))
def _poisson(key, lam, shape, dtype):
    small = lax.ne(lam, lam) | (lam < 10)
    # Where the other method's result is used, each method gets rates for which it is fast.
    few = lax.select(small, lam, lax.full_like(lam, 0.0))
    many = lax.select(small, lax.full_like(lam, 1e5), lam)
    longest = np.dtype(dtype).type(dtypes.iinfo(dtype).max)
    result = lax.select(
        small,
        _poisson_knuth(key, few, shape, dtype, longest),
        _poisson_rejection(key, many, shape, dtype, longest),
    )
    return lax.select(lam == 0, jnp.zeros_like(result), result)


@jit(static_argnums=(2, 3, 4))
def _poisson_knuth(key, lam, shape, dtype, max_iters):
    """The number of uniform numbers that can be multiplied before the product falls below exp(-lam). Knuth (1969)."""

    def going(state):
        i, _, _, log_product = state
        return (log_product > -lam).any() & (i < max_iters)

    def multiply(state):
        i, k, key, log_product = state
        key, subkey = split_key(key)
        k = lax.select(log_product > -lam, k + 1, k)
        u = uniform(subkey, shape, _F32)
        return i + 1, k, key, log_product + jnp.log(u)

    start = (0, lax.full(shape, 0, dtype), key, lax.full(shape, 0, _F32))
    return (lax.while_loop(going, multiply, start)[1] - 1).astype(dtype)


def _until_accepted(propose: Callable, key: Any, shape: tuple[int, ...], dtype: Any, max_iters: Any) -> Any:
    """Repeats `propose(u, v) -> (numbers, mask of accepted ones)` for uniform u and v until all are accepted."""

    def going(state):
        i, _, accepted, _ = state
        return (~accepted).any() & (i < max_iters)

    def again(state):
        i, out, accepted, key = state
        key, u_key, v_key = split_key(key, 3)
        k, accept = propose(uniform(u_key, shape, dtype), uniform(v_key, shape, dtype))
        return i + 1, lax.select(accept, k, out), accepted | accept, key

    start = (0, lax.full(shape, -1, dtype), lax.full(shape, False, np.dtype(bool)), key)
    return lax.while_loop(going, again, start)[1]


@jit(static_argnums=(2, 3, 4))
def _poisson_rejection(key, lam, shape, dtype, max_iters):
    """Transformed rejection, for rates of at least 10. Hörmann (1993), algorithm PTRS."""
    log_lam = lax.log(lam)
    b = 0.931 + 2.53 * lax.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def propose(u, v):
        u = u - 0.5
        distance = 0.5 - jnp.abs(u)
        k = lax.floor((2 * a / distance + b) * u + lam + 0.43)
        s = lax.log(v * inverse_alpha / (a / (distance * distance) + b))
        log_density = -lam + k * log_lam - lax.lgamma(k + 1)
        surely = (distance >= 0.07) & (v <= v_r)
        never = (k < 0) | ((distance < 0.013) & (v > distance))
        return k, surely | (~never & (s <= log_density))

    return _until_accepted(propose, key, shape, lam.dtype, max_iters).astype(dtype)


def binomial(key: Any, n: Any, p: Any, shape: Sequence[int] | None = None, dtype: Any = None) -> Any:
    """Binomial: the number of successes in `n` trials, each with probability `p`.

    Args:
      key: PRNG key.
      n, p: numbers or arrays.
      shape: shape of the result; default the broadcast shape of `n` and `p`.
      dtype: a float dtype; default float.

    Returns:
      Whole numbers as floats; NaN where n is negative or p is not a probability.

    >>> mpijax.random.binomial(mpijax.random.key(0), 10, 0.3, (4,))
    Array([2., 2., 1., 2.], dtype=float32)
    """
    key, _ = check_key("binomial", key)
    check_arraylike("binomial", n, p)
    dtype = sampler_dtype("binomial", dtype, float)
    return _binomial(key, n, p, None if shape is None else canonical_shape(shape), dtype)


@jit(static_argnums=(3, 4), inline=True)
def _binomial(key, count, prob, shape, dtype):
    if shape is None:
        shape = lax.broadcast_shapes(shape_of(count), shape_of(prob))
    else:
        check_shape("binomial", shape, shape_of(count), shape_of(prob))
    (prob,) = promote_dtypes_inexact(prob)
    count = jnp.broadcast_to(lax.convert_element_type(count, prob.dtype), shape)
    prob = jnp.broadcast_to(prob, shape)
    # Count successes or failures, whichever are rarer.
    rare = prob < 0.5
    q = lax.select(rare, prob, 1.0 - prob)
    bad_count = lax.ne(count, count) | (count < 0.0)
    infinite = jnp.isinf(count)
    q_is_nan, q_negative = lax.ne(q, q), q < 0.0
    q = lax.select(q_is_nan | q_negative, lax.full_like(q, 0.01), q)
    few = bad_count | (count * q <= 10.0)
    count = jnp.floor(count)
    longest = np.dtype(dtype).type(dtypes.finfo(dtype).max)
    # Where the other method's result is used, each method gets parameters for which it is fast.
    samples = lax.select(
        few,
        _binomial_inversion(key, lax.select(few, count, lax.full_like(count, 0.0)), q, shape, dtype, longest),
        _btrs(
            key,
            lax.select(few, lax.full_like(count, 1e4), count),
            lax.select(few, lax.full_like(q, 0.5), q),
            shape,
            dtype,
            longest,
        ),
    )
    invalid = q_negative | q_is_nan | bad_count
    samples = lax.select(invalid, lax.full_like(samples, np.nan), samples)
    samples = lax.select(infinite & ~invalid, lax.full_like(samples, np.inf), samples)
    return lax.select(rare | bad_count | q_is_nan | infinite, samples, count.astype(dtype) - samples)


@jit(static_argnums=(3, 4, 5), inline=True)
def _binomial_inversion(key, count, prob, shape, dtype, max_iters):
    """The number of geometric variables (waits for successes) that fit into `count` trials."""
    log_failure = jnp.log1p(-prob)

    def going(state):
        i, _, trials, _ = state
        return (trials <= count).any() & (i < max_iters)

    def wait(state):
        i, successes, trials, key = state
        subkey, key = split_key(key)
        successes = lax.select(trials <= count, successes + 1, successes)
        u = uniform(subkey, shape, prob.dtype)
        return i + 1, successes, trials + jnp.ceil(jnp.log(u) / log_failure), key

    zeros = lax.full(shape, 0, prob.dtype)
    return (lax.while_loop(going, wait, (0, zeros, zeros, key))[1] - 1).astype(dtype)


def _stirling_tail(k):
    """log k! minus Stirling's approximation: exact for whole numbers up to 9, then the first terms of a series."""
    exact = jnp.array(
        [
            0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
            0.0138761288230707, 0.0118967099458917, 0.010411265261972, 0.00925546218271273, 0.00833056343336287,
        ],
        dtype=k.dtype,
    )  # fmt: skip
    is_small = k <= 9
    k = lax.clamp(scalar_like(k, 0.0), k, scalar_like(k, 9.0))
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    return lax.select(is_small, exact[jnp.asarray(jnp.floor(k), dtype="int32")], series)


@jit(static_argnums=(3, 4, 5), inline=True)
def _btrs(key, count, prob, shape, dtype, max_iters):
    """Transformed rejection, if at least 10 successes are expected. Hörmann (1993), algorithm BTRS."""
    deviation = jnp.sqrt(count * prob * (1 - prob))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * prob
    c = count * prob + 0.5
    v_r = 0.92 - 4.2 / b
    odds = prob / (1 - prob)
    alpha = (2.83 + 5.1 / b) * deviation
    mode = jnp.floor((count + 1) * prob)

    def propose(u, v):
        u = u - 0.5
        distance = 0.5 - jnp.abs(u)
        surely = (distance >= 0.07) & (v <= v_r)
        k = jnp.floor((2 * a / distance + b) * u + c)
        never = (k < 0) | (k > count)
        v = jnp.log(v * alpha / (a / (distance * distance) + b))
        # The logarithm of the ratio of the probabilities of k and of the mode.
        bound = (
            (mode + 0.5) * jnp.log((mode + 1) / (odds * (count - mode + 1)))
            + (count + 1) * jnp.log((count - mode + 1) / (count - k + 1))
            + (k + 0.5) * jnp.log(odds * (count - k + 1) / (k + 1))
            + _stirling_tail(mode)
            + _stirling_tail(count - mode)
            - _stirling_tail(k)
            - _stirling_tail(count - k)
        )
        return k, surely | (~never & (v <= bound))

    return _until_accepted(propose, key, shape, prob.dtype, max_iters).astype(dtype)


def multinomial(
    key: Any, n: Any, p: Any, *, shape: Sequence[int] | None = None, dtype: Any = None, unroll: int | bool = 1
) -> Any:
    """Multinomial: the number of times that each of k outcomes occurs in `n` trials.

    Args:
      key: PRNG key.
      n: number of trials, a number or an array.
      p: probabilities of the outcomes, of shape [..., k].
      shape: shape of the result, including k; default that of `p`.
      dtype: default the promoted dtype of `n` and `p`.
      unroll: number of outcomes in one iteration of the loop over outcomes.

    >>> mpijax.random.multinomial(mpijax.random.key(0), 10.0, jnp.array([0.2, 0.3, 0.5]))
    Array([1., 1., 8.], dtype=float32)
    """
    key, _ = check_key("multinomial", key)
    check_arraylike("multinomial", n, p)
    n, p = promote_dtypes_inexact(n, p)
    shape = p.shape if shape is None else shape
    n, p = jnp.broadcast_to(n, shape[:-1]), jnp.moveaxis(jnp.broadcast_to(p, shape), -1, 0)
    left = lax.cumsum(p, 0, reverse=True)
    ratios = p / jnp.where(left == 0, 1, left)
    keys = split_key(key, ratios.shape[0])

    def step(remainder, ratio_and_key):
        ratio, key = ratio_and_key
        count = binomial(key, remainder, ratio.clip(0, 1), dtype=remainder.dtype)
        return remainder - count, count

    _, counts = lax.scan(step, n, (ratios, keys), unroll=unroll)
    return jnp.moveaxis(counts, 0, -1).astype(dtype)
