"""Quantiles, percentiles and medians, with and without NaN, with weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.tracing.out_sharding import takes_out_sharding
from mpijax.numpy.util import (
    _where,
    canonical_axes,
    canonical_axis,
    convert,
    ensure_arraylike,
    is_complex,
    promote_dtypes_inexact,
    scalar_like,
)
from mpijax.transforms.jit import jit

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")
_Axis = int | tuple[int, ...] | None


@jit(static_argnames=("axis", "overwrite_input", "keepdims", "method"))
def quantile(
    a: Any,
    q: Any,
    axis: _Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Any:
    """The quantiles `q` of the elements along axes: a fraction `q` of the elements is smaller. NaN if an element is
    NaN.

    Args:
      a: array of real numbers.
      q: a fraction in [0, 1], or an array of fractions with one axis.
      axis: axis or axes; default all.
      method: the value of a position between two elements: "linear" interpolation, the "lower", "higher" or "nearest"
        element, or the "midpoint" of both. "inverted_cdf" takes the element at which the running sum of weights reaches
        the fraction.
      keepdims: keep the reduced axes with size 1.
      weights: for "inverted_cdf", with the shape of `a`, or its sizes along `axis`.

    Returns:
      Array with the shape of `q`, then the remaining axes of `a`.

    Raises:
      ValueError: `a` is complex. TypeError or IndexError: `a` has no elements, as in JAX.

    >>> x = jnp.array([0.0, 10.0, 20.0])
    >>> jnp.quantile(x, 0.9), jnp.quantile(x, 0.9, method="lower")
    (Array(18., dtype=float32), Array(10., dtype=float32))
    """
    a, q, weights = _arguments("quantile", a, q, out, overwrite_input, weights)
    return _quantile(a, q, axis, method, keepdims, False, weights)


@jit(static_argnames=("axis", "overwrite_input", "keepdims", "method"))
def nanquantile(
    a: Any,
    q: Any,
    axis: _Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Any:
    """As `quantile`, for the elements that are not NaN. NaN if all elements are NaN.

    >>> jnp.nanquantile(jnp.array([1.0, jnp.nan, 3.0]), 0.25)
    Array(1.5, dtype=float32)
    """
    a, q, weights = _arguments("nanquantile", a, q, out, overwrite_input, weights)
    return _quantile(a, q, axis, method, keepdims, True, weights)


@jit(static_argnames=("axis", "overwrite_input", "keepdims", "method", "out_sharding"))
@takes_out_sharding
def percentile(
    a: Any,
    q: Any,
    axis: _Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
    out_sharding: Any = None,
) -> Any:
    """As `quantile`, with `q` in percent.

    >>> jnp.percentile(jnp.array([0.0, 10.0, 20.0]), jnp.array([5, 50]))
    Array([ 1., 10.], dtype=float32)
    """
    a, q, weights = _percent("percentile", a, q, weights)
    return quantile(a, q, axis, out, overwrite_input, method, keepdims, weights=weights)


@jit(static_argnames=("axis", "overwrite_input", "keepdims", "method"))
def nanpercentile(
    a: Any,
    q: Any,
    axis: _Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Any:
    """As `nanquantile`, with `q` in percent.

    >>> jnp.nanpercentile(jnp.array([1.0, jnp.nan, 3.0]), 50)
    Array(2., dtype=float32)
    """
    a, q, weights = _percent("nanpercentile", a, q, weights)
    return nanquantile(a, q, axis, out, overwrite_input, method, keepdims, weights=weights)


@jit(static_argnames=("axis", "overwrite_input", "keepdims"))
def median(
    a: Any, axis: _Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Any:
    """The median of the elements along axes: the middle element, or the mean of the middle two.

    Arguments and result are those of `quantile`.

    >>> jnp.median(jnp.array([[1, 9, 5], [4, 2, 8]]), axis=1)
    Array([5., 4.], dtype=float32)
    """
    a = ensure_arraylike("median", a)
    return quantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)


@jit(static_argnames=("axis", "overwrite_input", "keepdims"))
def nanmedian(
    a: Any, axis: _Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Any:
    """The median of the elements that are not NaN.

    Arguments and result are those of `quantile`.

    >>> jnp.nanmedian(jnp.array([1.0, jnp.nan, 5.0, 7.0]))
    Array(5., dtype=float32)
    """
    a = ensure_arraylike("nanmedian", a)
    return nanquantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)


def _arguments(name: str, a: Any, q: Any, out: Any, overwrite_input: bool, weights: Any) -> tuple[Any, Any, Any]:
    a, q = ensure_arraylike(name, a, q)
    if weights is not None:
        weights = ensure_arraylike(name, weights)
    if overwrite_input or out is not None:
        raise ValueError(f"jax.numpy.{name} does not support overwrite_input=True or out != None")
    return a, q, weights


def _percent(name: str, a: Any, q: Any, weights: Any) -> tuple[Any, Any, Any]:
    a, q, weights = _arguments(name, a, q, None, False, weights)
    (q,) = promote_dtypes_inexact(q)
    return a, q / 100, weights


class _Samples(NamedTuple):
    """The elements to take together along a last axis, and the shape of the result with the reduced axes."""

    a: Any
    weights: Any
    kept_shape: tuple[int, ...]


def _check_weights(a: Any, axis: _Axis, method: str, weights: Any) -> tuple[Any, Any]:
    """The elements and their weights, of one dtype and shape."""
    if is_complex(weights.dtype):
        raise ValueError("Weights cannot be complex types.")
    if method != "inverted_cdf":
        raise NotImplementedError(
            f"{method} doesn't support weights. Only method 'inverted_cdf' supports weights."
        )
    a, weights = promote_dtypes_inexact(a, weights)
    if weights.shape == a.shape:
        return a, weights
    if axis is None:
        raise ValueError("Weights shape must match 'a' shape when axis is None.")
    axes = canonical_axes(axis, a.ndim)
    sizes = tuple(a.shape[i] for i in axes)
    if weights.shape != sizes:
        raise ValueError(f"Weights shape {weights.shape} must match reduction axes {sizes}")
    return a, lax.broadcast_in_dim(weights, a.shape, axes)


def _in_lines(a: Any, axis: _Axis, weights: Any) -> _Samples:
    if axis is None:
        axes: Sequence[int] = range(a.ndim)
    elif isinstance(axis, tuple):
        axes = tuple(canonical_axis(i, a.ndim) for i in axis)
        if len(set(axes)) != len(axes):
            raise ValueError("repeated axis")
    else:
        axes = (canonical_axis(axis, a.ndim),)
    rest = [i for i in range(a.ndim) if i not in axes]
    order = (*rest, *(i for i in range(a.ndim) if i in axes))
    shape = (*(a.shape[i] for i in rest), math.prod(a.shape[i] for i in axes))
    kept_shape = tuple(1 if i in axes else d for i, d in enumerate(a.shape))

    def lined_up(x):
        return x if x is None else lax.reshape(lax.transpose(x, order), shape)

    return _Samples(lined_up(a), lined_up(weights), kept_shape)


def _quantile(a, q, axis, method, keepdims, skip_nan, weights):
    if method not in _METHODS:
        raise ValueError("method can only be 'linear', 'lower', 'higher', 'midpoint', 'nearest' or 'inverted_cdf'")
    if weights is None:
        (a,) = promote_dtypes_inexact(a)
    else:
        a, weights = _check_weights(a, axis, method, weights)
    if is_complex(a.dtype):
        raise ValueError("quantile does not support complex input, as the operation is poorly defined.")
    if q.ndim > 1:
        raise ValueError(f"q must be have rank <= 1, got shape {q.shape}")
    given = a.shape
    a, weights, kept_shape = _in_lines(a, axis, weights)
    if a.shape[-1] == 0:
        error = IndexError if skip_nan and a.ndim == 1 else TypeError  # JAX's, which come of its indices
        raise error(f"The quantile or median of no elements is undefined: got an array of shape {given}, axis={axis}.")
    is_nan = lax.ne(a, a)
    # All kinds of NaN are equal and come after the numbers. A line with a NaN is all NaN unless NaN is ignored.
    a = _where(is_nan if skip_nan else is_nan.any(-1, keepdims=True), np.nan, a)
    if weights is None:
        a = lax.sort(a, dimension=a.ndim - 1)
    else:
        a, weights = lax.sort_key_val(a, weights, dimension=a.ndim - 1)
    shares = lax.reshape(q, (1,) * (a.ndim - 1) + (q.size,))
    if skip_nan:
        counts = lax.bitwise_not(is_nan).sum(axis=-1, keepdims=True, dtype=q.dtype)
    else:
        counts = lax.full((1,) * a.ndim, a.shape[-1], q.dtype)
    if method == "inverted_cdf":
        result = _inverted_cdf(a, shares, counts, weights, skip_nan)
    else:
        result = _between(a, shares, counts, method)
    shape = kept_shape if keepdims else a.shape[:-1]
    # [*rest, shares] -> [*shares, *rest]
    result = jnp.moveaxis(result, -1, 0).reshape((*q.shape, *shape))
    return convert(result, a.dtype)


def _at(a: Any, positions: Any) -> Any:
    """Elements [..., k] of sorted lines at positions [..., k]."""
    positions = lax.convert_element_type(positions, int)
    return jnp.take_along_axis(a, jnp.broadcast_to(positions, (*a.shape[:-1], positions.shape[-1])), -1)


def _between(a: Any, shares: Any, counts: Any, method: str) -> Any:
    """Values [..., k] of sorted lines at shares [..., k] of the way from the first of `counts` elements to the last."""
    one, zero = scalar_like(counts, 1), scalar_like(counts, 0)
    last = lax.sub(counts, one)
    way = shares * last
    below, above = lax.floor(way), lax.ceil(way)
    above_weight = lax.sub(way, below)
    below_weight = lax.sub(one, above_weight)
    low, high = (_at(a, jnp.maximum(zero, jnp.minimum(x, last))) for x in (below, above))
    if method == "linear":
        return low.astype(way.dtype) * below_weight + high.astype(way.dtype) * above_weight
    if method == "lower":
        return low
    if method == "higher":
        return high
    if method == "nearest":
        return _where(lax.le(above_weight, scalar_like(above_weight, 0.5)), low, high)
    return lax.mul(lax.add(low, high), scalar_like(low, 0.5))


def _inverted_cdf(a: Any, shares: Any, counts: Any, weights: Any, skip_nan: bool) -> Any:
    """The first elements [..., k] of sorted lines at which the running sum of weights reaches shares [..., k]."""
    if weights is None:
        weights = lax.full_like(a, 1.0)
    is_nan = lax.ne(a, a)
    bad = lax.bitwise_or(lax.lt(weights, scalar_like(weights, 0)), lax.ne(weights, weights))
    running = jnp.cumsum(_where(lax.bitwise_or(bad, is_nan), scalar_like(weights, 0), weights), axis=-1)
    target = shares * running[..., -1:]
    less = running[..., None, :] < target[..., :, None]
    positions = less.sum(-1, dtype=dtypes.default_int_dtype())
    last = lax.convert_element_type(counts - 1, positions.dtype)
    result = _at(a, jnp.maximum(0, jnp.minimum(positions, last)))
    invalid = bad.any(-1, keepdims=True) | ((counts == 0) if skip_nan else is_nan.any(-1, keepdims=True))
    return _where(invalid, np.nan, result)
