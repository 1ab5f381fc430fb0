"""Random bits, uniform floats and integers, coin flips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.tracing.out_sharding import takes_out_sharding
from mpijax.core.types.avals import number_of
from mpijax.numpy.util import check_arraylike, dtype_of, scalar_like, shape_of
from mpijax.ops.random.keys import random_bits
from mpijax.ops.shapes.moves import canonical_shape
from mpijax.random.arguments import check_shape, sampler_dtype
from mpijax.random.keys import check_key, split_key
from mpijax.transforms.jit import jit

_UINT = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: np.dtype(np.uint32), 64: np.dtype(np.uint64)}


@takes_out_sharding
def bits(key: Any, shape: Sequence[int] = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Uniform random bits.

    Args:
      key: PRNG key.
      shape: shape of the result.
      dtype: an unsigned integer dtype; default uint32.

    >>> mpijax.random.bits(mpijax.random.key(0), (2,), "uint8")
    Array([167, 146], dtype=uint8)
    """
    key, _ = check_key("bits", key)
    dtype = dtypes.default_uint_dtype() if dtype is None else dtypes.check_user_dtype_supported(dtype)
    if not dtypes.issubdtype(dtype, np.unsignedinteger):
        raise ValueError(f"dtype argument to `bits` must be an unsigned int dtype, got {dtype}")
    return random_bits(key, bit_width=dtype.itemsize * 8, shape=canonical_shape(shape))


@takes_out_sharding
def uniform(
    key: Any,
    shape: Sequence[int] = (),
    dtype: Any = None,
    minval: Any = 0.0,
    maxval: Any = 1.0,
    *,
    out_sharding: Any = None,
) -> Any:
    """Uniform floats in [minval, maxval).

    Args:
      key: PRNG key.
      shape: shape of the result.
      dtype: a float dtype; default float.
      minval, maxval: numbers or arrays that broadcast to `shape`.

    >>> mpijax.random.uniform(mpijax.random.key(0), (2,)).round(3)
    Array([0.948, 0.979], dtype=float32)
    """
    key, _ = check_key("uniform", key)
    dtype = sampler_dtype("uniform", dtype, float)
    return _uniform(key, minval, maxval, canonical_shape(shape), dtype)


@jit(static_argnums=(3, 4))
def _uniform(key, minval, maxval, shape, dtype):
    minval, maxval = lax.convert_element_type(minval, dtype), lax.convert_element_type(maxval, dtype)
    minval, maxval = lax.broadcast_to_rank(minval, len(shape)), lax.broadcast_to_rank(maxval, len(shape))
    info = dtypes.finfo(dtype)
    if info.bits not in _UINT:
        raise TypeError(f"uniform only accepts 8-, 16-, 32-, or 64-bit dtypes, got {dtype}.")
    # Random mantissa bits under the exponent of 1 give a float in [1, 2). Formats of few mantissa bits need
    # few.
    drawn = 8 if info.nmant < 8 else info.bits
    word = _UINT[info.bits]
    random = random_bits(key, bit_width=drawn, shape=shape)
    if drawn != info.bits:
        random = lax.convert_element_type(random, word)
    mantissa = lax.shift_right_logical(random, number_of(drawn - info.nmant, word))
    exponent = number_of(np.array(1.0, dtype).view(word), word)
    floats = lax.bitcast_convert_type(lax.bitwise_or(mantissa, exponent), dtype) - number_of(1.0, dtype)
    # Rounding may raise the product to maxval; it goes below minval by at most the last bit.
    return lax.max(minval, lax.reshape(floats * (maxval - minval) + minval, shape))


@takes_out_sharding
def randint(
    key: Any, shape: Sequence[int], minval: Any, maxval: Any, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Uniform integers in [minval, maxval).

    Args:
      key: PRNG key.
      shape: shape of the result.
      minval, maxval: integers or arrays of them that broadcast to `shape`.
      dtype: an integer dtype; default int.

    >>> mpijax.random.randint(mpijax.random.key(0), (5,), 0, 10)
    Array([9, 0, 2, 3, 1], dtype=int32)
    """
    key, _ = check_key("randint", key)
    dtype = dtypes.check_user_dtype_supported(int if dtype is None else dtype)
    shape = canonical_shape(shape)
    if not dtypes.issubdtype(dtype, np.integer):
        raise TypeError(f"randint only accepts integer dtypes, got {dtype}")
    info = dtypes.iinfo(dtype)
    if info.bits >= 32:
        return _randint(key, minval, maxval, shape, dtype).astype(dtype)
    # In int32, where maxval may be one more than the dtype holds.
    minval = jnp.asarray(minval).astype("int32").clip(int(info.min), int(info.max))
    maxval = jnp.asarray(maxval).astype("int32").clip(int(info.min), int(info.max) + 1)
    return _randint(key, minval, maxval, shape, np.dtype(np.int32)).astype(dtype)


def _clipped_integer(x: Any, dtype: Any) -> Any:
    """Integers x as `dtype`, limited to the range of `dtype`."""
    into, of = dtypes.iinfo(dtype), dtypes.iinfo(x.dtype)
    return jnp.clip(x, scalar_like(x, max(into.min, of.min)), scalar_like(x, min(into.max, of.max))).astype(dtype)


@jit(static_argnums=(3, 4))
def _randint(key, minval, maxval, shape, dtype):
    check_shape("randint", shape, shape_of(minval), shape_of(maxval))
    check_arraylike("randint", minval, maxval)
    minval, maxval = jnp.asarray(minval), jnp.asarray(maxval)
    if not dtypes.issubdtype(minval.dtype, np.integer):
        minval = minval.astype(int)
    if not dtypes.issubdtype(maxval.dtype, np.integer):
        maxval = maxval.astype(int)
    largest = jnp.array(dtypes.iinfo(dtype).max, dtype)
    # maxval is not drawn, so one more than the largest number is a valid limit.
    beyond = lax.gt(maxval, _clipped_integer(largest, maxval.dtype))
    minval, maxval = _clipped_integer(minval, dtype), _clipped_integer(maxval, dtype)
    minval, maxval = lax.broadcast_to_rank(minval, len(shape)), lax.broadcast_to_rank(maxval, len(shape))

    width = dtypes.iinfo(dtype).bits
    high_key, low_key = split_key(key)
    high = random_bits(high_key, bit_width=width, shape=shape)
    low = random_bits(low_key, bit_width=width, shape=shape)
    span = lax.convert_element_type(maxval - minval, _UINT[width])
    # An empty range gives minval.
    span = lax.select(maxval <= minval, lax.full_like(span, 1), span)
    span = lax.select(beyond & (maxval > minval), lax.add(span, scalar_like(span, 1)), span)
    # (high · 2^width + low) mod span, which has almost no bias; 2^width mod span as a square, to stay in
    # range.
    factor = lax.rem(scalar_like(span, 2 ** (width // 2)), span)
    factor = lax.rem(lax.mul(factor, factor), span)
    offset = lax.add(lax.mul(lax.rem(high, span), factor), lax.rem(low, span))
    return lax.add(minval, lax.convert_element_type(lax.rem(offset, span), dtype))


@takes_out_sharding
def bernoulli(
    key: Any, p: Any = 0.5, shape: Sequence[int] | None = None, mode: str = "low", *, out_sharding: Any = None
) -> Any:
    """True with probability `p`.

    Args:
      key: PRNG key.
      p: probability, a float or an array of floats.
      shape: shape of the result; default that of `p`.
      mode: "low" compares one random float with `p`; "high" uses twice as many bits, for `p` near 0.

    >>> mpijax.random.bernoulli(mpijax.random.key(0), 0.7, (5,))
    Array([False, False,  True,  True,  True], dtype=bool)
    """
    if mode not in ("high", "low"):
        raise ValueError(f"got mode={mode!r}, expected 'high' or 'low'")
    shape = None if shape is None else canonical_shape(shape)
    key, _ = check_key("bernoulli", key)
    dtype = dtype_of(p)
    if not dtypes.issubdtype(dtype, np.floating):
        raise TypeError(f"bernoulli probability `p` must have a floating dtype, got {dtype}.")
    return _bernoulli(key, lax.convert_element_type(p, dtype), shape=shape, mode=mode)


@jit(static_argnames=("shape", "mode"))
def _bernoulli(key, p, shape, mode):
    if shape is None:
        shape = shape_of(p)
    else:
        check_shape("bernoulli", shape, shape_of(p))
    dtype = dtype_of(p)
    if mode == "low":
        return uniform(key, shape, dtype) < p
    coarse, fine = uniform(key, (2, *shape), dtype)
    return fine * 2 ** (-dtypes.finfo(dtype).nmant) < p - coarse
