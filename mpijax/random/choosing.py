"""Permutations, choices and categories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.shapes.dimensions import DimExpr
from mpijax.core.tracing.out_sharding import takes_out_sharding
from mpijax.numpy.util import (
    canonical_axis,
    check_arraylike,
    dtype_of,
    promote_dtypes_inexact,
    shape_of,
    static,
)
from mpijax.ops.random.keys import random_bits
from mpijax.ops.shapes.moves import canonical_shape
from mpijax.random.arguments import check_shape
from mpijax.random.continuous import gumbel
from mpijax.random.keys import check_key, split_key
from mpijax.random.uniform import randint, uniform
from mpijax.transforms.jit import jit


@takes_out_sharding
def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None) -> Any:
    """`x` in random order along `axis`.

    Args:
      key: PRNG key.
      x: array; or an integer, for a permutation of 0 ... x - 1.
      axis: axis to permute.
      independent: permute each line along `axis` independently; otherwise, all lines get the same permutation.

    >>> mpijax.random.permutation(mpijax.random.key(1), jnp.array([10, 20, 30]))
    Array([30, 10, 20], dtype=int32)
    """
    key, _ = check_key("permutation", key)
    check_arraylike("permutation", x)
    ndim = len(shape_of(x))
    axis = canonical_axis(axis, ndim or 1)
    if not ndim:
        if not dtypes.issubdtype(dtype_of(x), np.integer):
            raise TypeError(f"x must be an integer or at least 1-dimensional, got a scalar of dtype {dtype_of(x)}")
        return _shuffle(key, jnp.arange(static(x, "argument x of jax.random.permutation()", int)), axis)
    if independent or ndim == 1:
        return _shuffle(key, x, axis)
    order = _shuffle(key, jnp.arange(shape_of(x)[axis]), 0)
    return jnp.take(x, order, axis, unique_indices=True)


@jit(static_argnums=(2,))
def _shuffle(key, x, axis):
    # Sort by random keys. Two equal keys keep their order, which is a bias. So use enough rounds that the
    # chance of a pair that ties in all of them is below 1 / size.
    if isinstance(x.size, DimExpr):
        raise NotImplementedError(
            f"shape polymorphism for `permutation` or `shuffle` for arrays of non-constant size: {x.size}"
        )
    rounds = int(np.ceil(3 * np.log(max(1, x.size)) / np.log(np.iinfo(np.uint32).max)))
    for _ in range(rounds):
        key, subkey = split_key(key)
        _, x = lax.sort_key_val(random_bits(subkey, bit_width=32, shape=x.shape), x, axis)
    return x


def choice(
    key: Any,
    a: Any,
    shape: Sequence[int] = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    mode: str | None = None,
) -> Any:
    """Random slices of `a` along `axis`.

    Args:
      key: PRNG key.
      a: array; or an integer, for numbers 0 ... a - 1.
      shape: shape of the choices.
      replace: whether a slice may be chosen twice.
      p: array of the probabilities; default: all are equal.
      axis: axis of `a` to choose along.
      mode: as for `gumbel`, for a choice without replacement by `p`.

    Returns:
      Array with the axes of `a`, in which `shape` replaces `axis`.

    >>> mpijax.random.choice(mpijax.random.key(1), jnp.array([10, 20, 30, 40]), (2,), replace=False)
    Array([40, 30], dtype=int32)
    """
    key, _ = check_key("choice", key)
    if not isinstance(shape, Sequence):
        raise TypeError(f"shape argument of jax.random.choice must be a sequence, got {shape}")
    check_arraylike("choice", a)
    array = jnp.asarray(a)
    if array.ndim == 0:
        count = static(a, "The error occurred in jax.random.choice()", int)
    else:
        axis = canonical_axis(axis, array.ndim)
        count = array.shape[axis]
    draws = math.prod(shape)
    if draws == 0:
        return jnp.zeros(shape, dtype=array.dtype)
    if count <= 0:
        raise ValueError("a must be greater than 0 unless no samples are taken")
    if not replace and draws > count:
        raise ValueError(
            f"Cannot take a larger sample (size {draws}) than population (size {count}) when 'replace=False'"
        )
    if p is None and not replace:
        whole = permutation(key, count if array.ndim == 0 else array, axis)
        chosen = whole[(slice(None),) * axis + (slice(draws),)]
    else:
        positions = randint(key, shape, 0, count) if p is None else _by_probability(key, p, count, shape, replace, mode)
        chosen = positions if array.ndim == 0 else jnp.take(array, positions, axis)
    return chosen.reshape(shape if array.ndim == 0 else array.shape[:axis] + tuple(shape) + array.shape[axis + 1 :])


def _by_probability(key, p, count, shape, replace, mode):
    check_arraylike("choice", p)
    (p,) = promote_dtypes_inexact(p)
    if p.shape != (count,):
        raise ValueError(
            f"p must be None or a 1D vector with the same size as a.shape[axis]. p has shape {p.shape} and "
            f"a.shape[axis] is {count}."
        )
    if replace:
        cumulative = jnp.cumsum(p)
        r = cumulative[-1] * (1 - uniform(key, shape, dtype=cumulative.dtype))
        return jnp.searchsorted(cumulative, r).astype(int)
    # The largest of log p plus Gumbel noise are a sample without replacement.
    noisy = gumbel(key, (count,), dtype=p.dtype, mode=mode) + jnp.log(p)
    return lax.top_k(noisy, k=math.prod(shape))[1].astype(int)


@takes_out_sharding
def categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: Sequence[int] | None = None,
    replace: bool = True,
    mode: str | None = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Positions along `axis`, with probabilities softmax(logits).

    Args:
      key: PRNG key.
      logits: array of logarithms of probabilities, up to a constant.
      axis: the axis of the categories.
      shape: shape of the result. It must end in the shape of `logits` without `axis`, which is the default.
      replace: whether the draws along the leading axes of `shape` may have a category twice.
      mode: as for `gumbel`.

    >>> mpijax.random.categorical(mpijax.random.key(0), jnp.log(jnp.array([0.1, 0.2, 0.7])), shape=(6,))
    Array([1, 2, 2, 1, 2, 2], dtype=int32)
    """
    key, _ = check_key("categorical", key)
    check_arraylike("categorical", logits)
    logits = jnp.asarray(logits)
    batch_shape = tuple(np.delete(logits.shape, axis).tolist())
    if shape is None:
        shape = batch_shape
    else:
        shape = canonical_shape(shape)
        check_shape("categorical", shape, batch_shape)
    lead = shape[: len(shape) - len(batch_shape)]
    if replace:
        axis = axis - logits.ndim if axis >= 0 else axis
        sizes = list(shape[len(lead) :])
        sizes.insert(axis % logits.ndim, logits.shape[axis])
        noise = gumbel(key, (*lead, *sizes), logits.dtype, mode=mode)
        return jnp.argmax(noise + lax.expand_dims(logits, tuple(range(len(lead)))), axis=axis)
    logits += gumbel(key, logits.shape, logits.dtype, mode=mode)
    count = math.prod(lead)
    if count > logits.shape[axis]:
        raise ValueError(
            f"Number of samples without replacement ({count}) cannot exceed number of categories "
            f"({logits.shape[axis]})."
        )
    _, positions = lax.top_k(jnp.moveaxis(logits, axis, -1), count)
    return lax.reshape(positions, shape, (positions.ndim - 1, *range(positions.ndim - 1)))
