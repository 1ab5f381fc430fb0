"""Functions of all elements along an axis: softmax and its logarithm, logsumexp, standardize."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.base.config import debug_nans
from mpijax.core.base.option import values as options
from mpijax.numpy.util import (
    as_array,
    canonical_axes,
    check_arraylike,
    check_arraylike_or_none,
    ensure_arraylike,
    is_complex,
    promote_args_inexact,
)
from mpijax.transforms.custom_jvp import custom_jvp
from mpijax.transforms.jit import jit


def softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """exp(x), scaled to sum to 1 along `axis`.

    Args:
      x: array.
      axis: axis or axes that sum to 1; None for all.
      where: bool array that broadcasts to `x`. Elements where it is False are left out, and give 0.

    >>> mpijax.nn.softmax(jnp.array([[1.0, 1.0], [0.0, np.log(3.0)]])).round(4)
    Array([[0.5 , 0.5 ],
           [0.25, 0.75]], dtype=float32)
    """
    if options.jax_softmax_custom_jvp:
        return _softmax(x, axis, where)
    return _softmax_values(x, axis, where, -np.inf, lax.stop_gradient)


def _softmax_values(x, axis, where, initial, constant):
    largest = jnp.max(x, axis, where=where, initial=initial, keepdims=True)
    safe = x if where is None else jnp.where(where, x, initial)
    weights = jnp.exp(safe - constant(largest))
    out = weights / jnp.sum(weights, axis, where=where, keepdims=True)
    return out if where is None else jnp.where(where, out, 0)


@partial(custom_jvp, nondiff_argnums=(1,))
def _softmax(x, axis=-1, where=None, initial=-np.inf):
    return _softmax_values(x, axis, where, initial, lambda largest: largest)


@_softmax.defjvp
def _softmax_jvp(axis, primals, tangents):
    x, where, initial = primals
    y = _softmax(x, axis, where, initial)
    dx = tangents[0]
    return y, y * (dx - (y * dx).sum(axis, where=where, keepdims=True))


@jit(static_argnames=("axis",))
def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """log(softmax(x)), also accurate for small probabilities; -inf where `where` is False. See `softmax`.

    >>> mpijax.nn.log_softmax(jnp.array([1.0, 1.0, -np.inf])).round(4)
    Array([-0.6931, -0.6931,    -inf], dtype=float32)
    """
    x = ensure_arraylike("log_softmax", x)
    largest = jnp.max(x, axis, where=where, initial=-np.inf, keepdims=True)
    safe = x if where is None else jnp.where(where, x, -np.inf)
    shifted = safe - lax.stop_gradient(largest)
    out = shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis, where=where, keepdims=True))
    return out if where is None else jnp.where(where, out, -np.inf)


def logsumexp(
    a: Any,
    axis: Any = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: Any = None,
) -> Any:
    """log(sum(b · exp(a))), without overflow.

    Args:
      a: array.
      axis: axis or axes to sum over; None for all.
      b: weights that broadcast to `a`.
      keepdims: keep summed axes with size 1.
      return_sign: also return the sign of the sum; the logarithm is then that of the absolute value. Without it, a
        negative sum gives NaN.
      where: bool array that selects the elements to sum.

    Returns:
      Array, or (array, sign).

    >>> mpijax.nn.logsumexp(jnp.array([1000.0, 1000.0])).round(4)
    Array(1000.6932, dtype=float32)
    """
    if where is not None:
        a = jnp.where(where, a, 0)
    if b is not None:
        a, b = map(as_array, promote_args_inexact("logsumexp", a, b))
        a = jnp.where(b != 0, a, -np.inf)
    else:
        a = as_array(*promote_args_inexact("logsumexp", a))
    axes = canonical_axes(axis, a.ndim)
    dims = axes if axis is not None else None
    largest = jnp.max(a.real, axis=dims, keepdims=keepdims, where=where, initial=-np.inf)
    largest = lax.stop_gradient(lax.select(jnp.isfinite(largest), largest, lax.full_like(largest, 0)))
    shift = largest if keepdims else lax.expand_dims(largest, axes)
    terms = lax.exp(lax.sub(a, shift.astype(a.dtype)))
    if b is not None:
        terms = lax.mul(terms, b)
    total = terms.sum(axis=dims, keepdims=keepdims, where=where)
    sign = lax.sign(total)
    if return_sign or not is_complex(a.dtype):
        total = abs(total)
    out = lax.add(lax.log(total), largest.astype(total.dtype))
    if return_sign:
        return out, sign
    if b is not None and not is_complex(out.dtype):
        with debug_nans(False):
            out = jnp.where(sign < 0, jnp.array(np.nan, dtype=out.dtype), out)
    return out


@jit(static_argnames=("axis", "keepdims"))
def logmeanexp(x: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
    """log(mean(exp(x))), without overflow. See `logsumexp`.

    >>> mpijax.nn.logmeanexp(jnp.array([1000.0, 1000.0]))
    Array(1000., dtype=float32)
    """
    total = logsumexp(x, axis=axis, where=where, keepdims=keepdims)
    return total - jnp.log(_count(x, axis, where, keepdims, total.dtype))


def _count(x, axis, where, keepdims, dtype):
    """The number of elements in the sum, as a scalar or an array."""
    shape = jnp.shape(x)
    if where is not None:
        return jnp.sum(jnp.broadcast_to(where, shape), axis=axis, dtype=dtype, keepdims=keepdims)
    return lax.convert_element_type(math.prod(shape[i] for i in canonical_axes(axis, len(shape))), dtype)


@jit(static_argnames=("axis", "algorithm"))
def standardize(
    x: Any,
    axis: Any = -1,
    mean: Any = None,
    variance: Any = None,
    epsilon: Any = 1e-5,
    where: Any = None,
    *,
    algorithm: str = "fast",
) -> Any:
    """x shifted and scaled to mean 0 and variance 1 along `axis`.

    Args:
      x: array.
      axis: axis or axes of the mean and the variance.
      mean, variance: values to use instead of those of `x`.
      epsilon: added to the variance.
      where: bool array that selects the elements for mean and variance.
      algorithm: "fast" uses the mean of squares; "stable" uses the mean squared distance from the mean.

    >>> mpijax.nn.standardize(jnp.array([1.0, 3.0])).round(3)
    Array([-1.,  1.], dtype=float32)
    """
    check_arraylike("standardize", x)
    check_arraylike_or_none("standardize", mean, variance, where)
    if mean is None:
        mean = jnp.mean(x, axis, keepdims=True, where=where)
    if variance is None:
        if algorithm == "stable":
            variance = jnp.mean(jnp.square(jnp.subtract(x, mean)), axis, keepdims=True, where=where)
        elif algorithm == "fast":
            variance = jnp.mean(jnp.square(x), axis, keepdims=True, where=where) - jnp.square(mean)
            variance = jnp.clip(variance, 0)
        else:
            raise ValueError(f"Unknown algorithm '{algorithm}'. Expected 'fast' or 'stable'.")
    return jnp.subtract(x, mean) * lax.rsqrt(variance + epsilon)
