"""Mean, variance and related statistics, with and without NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.reductions import standard as reductions
from mpijax.numpy.reductions.reduce import check_where, identity_in, reduction_axes, upcast_half
from mpijax.numpy.ufuncs.arithmetic import divide, multiply, subtract
from mpijax.numpy.ufuncs.logic import greater
from mpijax.numpy.util import (
    _where,
    broadcast_to,
    canonical_axes,
    constant,
    convert,
    ensure_arraylike,
    is_complex,
    is_inexact,
    optional_axes,
    promote_dtypes_inexact,
    requested_dtype,
    scalar_like,
)
from mpijax.transforms.jit import jit


def _no_out(name: str, out: Any) -> None:
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{name} is not supported.")


def _size_along(a: Any, axis: Any) -> int:
    """Number of elements that a reduction along `axis` combines."""
    reduction_axes(a.ndim, axis)
    if axis is None:
        return a.size
    size = 1
    for dim in axis if isinstance(axis, (tuple, list)) else (axis,):
        size *= lax.axis_size(dim) if isinstance(dim, str) else a.shape[dim]
    return size


def _count(a: Any, axis: Any, keepdims: bool, where: Any, dtype: Any):
    """Number of elements along `axis` that the mask selects."""
    if where is None:
        return constant(_size_along(a, axis), dtype)
    return reductions.sum(broadcast_to(where, a.shape), axis, dtype=dtype, keepdims=keepdims)


def mean(a, axis=None, dtype=None, out=None, keepdims=False, *, where=None):
    """Mean of the elements along axes (default: all).

    16-bit floats are summed in float32, and integers become floats. The arguments are those of `sum`.

    >>> jnp.mean(jnp.array([[1, 2], [3, 6]]), axis=1)
    Array([1.5, 4.5], dtype=float32)
    """
    _no_out("mean", out)
    a = ensure_arraylike("mean", a)
    return _mean(a, optional_axes(axis), dtype, keepdims, upcast=dtype is None, where=where)


@jit(static_argnames=("axis", "dtype", "keepdims", "upcast"), inline=True)
def _mean(a, axis, dtype, keepdims, *, upcast, where):
    where = check_where("mean", where)
    if dtype is None:
        dtype = dtypes.to_inexact_dtype(a.dtype)
    else:
        dtype = dtypes.check_user_dtype_supported(dtype, "mean")
    working = upcast_half(dtype) if upcast and is_inexact(dtype) else dtype
    count = _count(a, axis, keepdims, where, working)
    total = reductions.sum(a, axis, dtype=working, keepdims=keepdims, where=where)
    return convert(lax.div(total, count), dtype)


def average(a, axis=None, weights=None, returned=False, keepdims=False):
    """Weighted mean along axes.

    Args:
      weights: with the shape of `a`, or its sizes along `axis`; all 1 by default.
      returned: whether to return (average, sum of weights).

    Raises:
      ValueError: the weights match neither the shape nor the axis.

    >>> jnp.average(jnp.array([1.0, 2.0, 6.0]), weights=jnp.array([2, 1, 1]))
    Array(2.5, dtype=float32)
    """
    return _average(a, optional_axes(axis), weights, returned, keepdims)


@jit(static_argnames=("axis", "returned", "keepdims"), inline=True)
def _average(a, axis, weights, returned, keepdims):
    if weights is None:
        (a,) = promote_dtypes_inexact(ensure_arraylike("average", a))
        result = mean(a, axis=axis, keepdims=keepdims)
        total = lax.full((), _size_along(a, axis), dtype=result.dtype)
    else:
        a, weights = promote_dtypes_inexact(*ensure_arraylike("average", a, weights))
        if a.shape != weights.shape:
            weights = _spread_weights(a, axis, weights)
        total = reductions.sum(weights, axis=axis, keepdims=keepdims)
        result = divide(reductions.sum(multiply(a, weights), axis=axis, keepdims=keepdims), total)
    if not returned:
        return result
    return result, broadcast_to(total, result.shape)


def _spread_weights(a, axis, weights):
    """Weights along some axes, broadcast to the axes of `a`."""
    if axis is None:
        raise ValueError("Axis must be specified when shapes of a and weights differ.")
    axes = canonical_axes(axis, a.ndim)
    if weights.shape != tuple(a.shape[i] for i in axes):
        raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
    shape = tuple(n if i in axes else 1 for i, n in enumerate(a.shape))
    return lax.reshape(weights, shape, dimensions=tuple(np.argsort(axes)))


def _correction(ddof: Any, correction: Any) -> Any:
    if correction is None:
        return ddof
    if not isinstance(ddof, int) or ddof != 0:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    return correction


def _variance_dtypes(given: Any, requested: Any) -> tuple[Any, Any]:
    """(dtype of the computation, dtype of the result) for the variance of an array of dtype `given`."""
    if requested is not None:
        if is_complex(given) and not is_complex(requested):
            raise ValueError(
                "jax.numpy.var does not yet support real dtype parameters when computing the variance of "
                "an array of complex values. The semantics of numpy.var seem unclear in this case."
            )
        working = result = requested
    elif not is_inexact(given):
        working = result = dtypes.to_inexact_dtype(given)
    else:
        working, result = given, dtypes.to_floating_dtype(given)
    return upcast_half(working), np.dtype(result)


def var(
    a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None, mean=None, correction=None
):  # fmt: skip
    """Variance of the elements along axes (default: all).

    Args:
      ddof, correction: the sum of squares is divided by the number of elements minus this.
      mean: the mean along the axes, if you know it, with these axes of size 1.
      axis, dtype, keepdims, where: see `sum`.

    Returns:
      The variance; NaN if the divisor is not positive. For complex numbers, the mean of abs(x - mean)**2.

    >>> jnp.var(jnp.array([[1.0, 3.0], [2.0, 8.0]]), axis=1)
    Array([1., 9.], dtype=float32)
    """
    correction = _correction(ddof, correction)
    _no_out("var", out)
    a = ensure_arraylike("var", a)
    return _var(
        a, axis=optional_axes(axis), dtype=dtype, correction=correction, keepdims=keepdims, where=where,
        a_mean=mean,
    )  # fmt: skip


@jit(static_argnames=("axis", "dtype", "keepdims"))
def _var(a, *, axis=None, dtype=None, correction=0, keepdims=False, where=None, a_mean=None):
    where = check_where("var", where)
    working, dtype = _variance_dtypes(a.dtype, requested_dtype(dtype, "var"))
    a = convert(a, working)
    if a_mean is None:
        a_mean = mean(a, axis, dtype=working, keepdims=True, where=where)
    else:
        a_mean = convert(ensure_arraylike("var", a_mean), working)
    squares = _squared_distance(a, a_mean)
    count = lax.sub(_count(a, axis, keepdims, where, squares.dtype), convert(correction, squares.dtype))
    total = reductions.sum(squares, axis, dtype=squares.dtype, keepdims=keepdims, where=where)
    result = convert(lax.div(total, count), dtype)
    return _where(greater(count, 0), result, np.nan)


def _squared_distance(a, center):
    return _squared(lax.sub(a, center))


def _squared(x):
    return lax.real(lax.mul(x, lax.conj(x))) if is_complex(x.dtype) else lax.square(x)


def std(
    a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None, mean=None, correction=None
):  # fmt: skip
    """Standard deviation along axes: the square root of `var`, with the same arguments.

    >>> jnp.std(jnp.array([[1.0, 5.0], [2.0, 8.0]]), axis=1)
    Array([2., 3.], dtype=float32)
    """
    correction = _correction(ddof, correction)
    _no_out("std", out)
    a = ensure_arraylike("std", a)
    return _std(
        a,
        axis=optional_axes(axis),
        dtype=dtype,
        correction=correction,
        keepdims=keepdims,
        where=where,
        mean=mean,
    )


@jit(static_argnames=("axis", "dtype", "keepdims"))
def _std(a, *, axis=None, dtype=None, correction=0, keepdims=False, where=None, mean=None):
    where = check_where("std", where)
    dtype = requested_dtype(dtype, "std")
    if dtype is not None and not is_inexact(dtype):
        raise ValueError(f"dtype argument to jnp.std must be inexact; got {dtype}")
    return lax.sqrt(
        var(a, axis=axis, dtype=dtype, correction=correction, keepdims=keepdims, where=where, mean=mean)
    )


def ptp(a, axis=None, out=None, keepdims=False):
    """The difference of the largest and the smallest element along axes (default: all).

    Raises:
      ValueError: there are no elements.

    >>> jnp.ptp(jnp.array([[1, 9], [4, 6]]), axis=1)
    Array([8, 2], dtype=int32)
    """
    _no_out("ptp", out)
    return _ptp(ensure_arraylike("ptp", a), optional_axes(axis), None, keepdims)


@jit(static_argnames=("axis", "keepdims"))
def _ptp(a, axis=None, out=None, keepdims=False):
    return lax.sub(
        reductions.max(a, axis=axis, keepdims=keepdims), reductions.min(a, axis=axis, keepdims=keepdims)
    )


@jit(static_argnames=("axis", "keepdims"))
def count_nonzero(a, axis=None, keepdims=False):
    """Number of elements along axes (default: all) that differ from 0.

    Returns:
      int32 (int64 with jax_enable_x64): a scalar, or an array without the axes.

    >>> jnp.count_nonzero(jnp.array([[0, 7], [5, 5]]), axis=0)
    Array([1, 2], dtype=int32)
    """
    a = ensure_arraylike("count_nonzero", a)
    nonzero = lax.ne(a, scalar_like(a, 0))
    return reductions.sum(nonzero, axis=axis, dtype=dtypes.default_int_dtype(), keepdims=keepdims)


# -- skipping NaN --------------------------------------------------------------------------------------------


def _is_nan(x):
    return lax.ne(x, x)


def _skipping_nan(name, reduction, identity, nan_if_all_nan, a, axis, keepdims, where, **arguments):
    """A reduction in which NaN counts as the identity."""
    a = ensure_arraylike(name, a)
    where = check_where(name, where)
    if not is_inexact(a.dtype):
        return reduction(a, axis=axis, keepdims=keepdims, where=where, **arguments)
    filled = _where(_is_nan(a), identity_in(a.dtype, identity), a)
    out = reduction(filled, axis=axis, keepdims=keepdims, where=where, **arguments)
    if not nan_if_all_nan:
        return out
    return _where(reductions.all(_is_nan(a), axis=axis, keepdims=keepdims), scalar_like(a, np.nan), out)


@jit(static_argnames=("axis", "keepdims"))
def nanmin(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """The smallest element along axes, ignoring NaN; NaN if all elements are NaN.

    The arguments are those of `max`.

    >>> jnp.nanmin(jnp.array([[1.0, jnp.nan], [3.0, 2.0]]), axis=0)
    Array([1., 2.], dtype=float32)
    """
    return _skipping_nan(
        "nanmin", reductions.min, np.inf, initial is None, a, axis, keepdims, where, out=out, initial=initial
    )


@jit(static_argnames=("axis", "keepdims"))
def nanmax(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """The largest element along axes, ignoring NaN; NaN if all elements are NaN.

    The arguments are those of `max`.

    >>> jnp.nanmax(jnp.array([[1.0, jnp.nan], [3.0, 2.0]]), axis=0)
    Array([3., 2.], dtype=float32)
    """
    return _skipping_nan(
        "nanmax", reductions.max, -np.inf, initial is None, a, axis, keepdims, where, out=out, initial=initial
    )


@jit(static_argnames=("axis", "dtype", "keepdims"))
def nansum(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None):
    """Sum of the elements along axes, ignoring NaN.

    The sum is 0 if all elements are NaN. The arguments are those of `sum`.

    >>> jnp.nansum(jnp.array([[1.0, jnp.nan], [3.0, 2.0]]), axis=0)
    Array([4., 2.], dtype=float32)
    """
    dtype = requested_dtype(dtype, "nansum")
    return _skipping_nan(
        "nansum", reductions.sum, 0, False, a, axis, keepdims, where, dtype=dtype, out=out, initial=initial
    )


@jit(static_argnames=("axis", "dtype", "keepdims"))
def nanprod(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None):
    """Product of the elements along axes, ignoring NaN.

    The product is 1 if all elements are NaN. The arguments are those of `sum`.

    >>> jnp.nanprod(jnp.array([2.0, jnp.nan, 4.0]))
    Array(8., dtype=float32)
    """
    dtype = requested_dtype(dtype, "nanprod")
    return _skipping_nan(
        "nanprod", reductions.prod, 1, False, a, axis, keepdims, where, dtype=dtype, out=out, initial=initial
    )


@jit(static_argnames=("axis", "dtype", "keepdims"))
def nanmean(a, axis=None, dtype=None, out=None, keepdims=False, where=None):
    """Mean of the elements along axes, ignoring NaN.

    The mean is NaN if all elements are NaN. The arguments are those of `mean`.

    >>> jnp.nanmean(jnp.array([1.0, jnp.nan, 4.0]))
    Array(2.5, dtype=float32)
    """
    a = ensure_arraylike("nanmean", a)
    where = check_where("nanmean", where)
    _no_out("nanmean", out)
    if not is_inexact(a.dtype):
        return mean(a, axis, dtype, out, keepdims, where=where)
    dtype = a.dtype if dtype is None else dtypes.check_user_dtype_supported(dtype, "mean")
    count = reductions.sum(
        lax.bitwise_not(_is_nan(a)), axis=axis, dtype=dtype, keepdims=keepdims, where=where
    )
    return lax.div(nansum(a, axis, dtype=dtype, keepdims=keepdims, where=where), count)


@jit(static_argnames=("axis", "dtype", "keepdims"))
def nanvar(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, where=None, mean=None):
    """Variance of the elements along axes, ignoring NaN. The arguments are those of `var`.

    >>> jnp.nanvar(jnp.array([1.0, jnp.nan, 5.0]), ddof=1)
    Array(8., dtype=float32)
    """
    a = ensure_arraylike("nanvar", a)
    where = check_where("nanvar", where)
    _no_out("nanvar", out)
    working, dtype = _variance_dtypes(a.dtype, requested_dtype(dtype, "nanvar"))
    a = convert(a, working)
    if mean is None:
        mean = nanmean(a, axis, dtype=working, keepdims=True, where=where)
    else:
        mean = convert(ensure_arraylike("nanvar", mean), working)
    squares = _squared(_where(_is_nan(a), 0, lax.sub(a, mean)))
    present = lax.bitwise_not(_is_nan(a))
    count = subtract(reductions.sum(present, axis=axis, keepdims=keepdims, where=where), ddof)
    none_left = lax.le(count, scalar_like(count, 0))
    total = reductions.sum(squares, axis, keepdims=keepdims, where=where)
    total = _where(none_left, np.nan, total)
    divisor = _where(none_left, 1, count)
    return convert(lax.div(total, convert(divisor, total.dtype)), dtype)


@jit(static_argnames=("axis", "dtype", "keepdims"))
def nanstd(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, where=None, mean=None):
    """Standard deviation along axes, ignoring NaN: the square root of `nanvar`.

    >>> jnp.nanstd(jnp.array([1.0, jnp.nan, 5.0]))
    Array(2., dtype=float32)
    """
    a = ensure_arraylike("nanstd", a)
    where = check_where("nanstd", where)
    dtype = requested_dtype(dtype, "nanstd")
    _no_out("nanstd", out)
    return lax.sqrt(nanvar(a, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims, where=where, mean=mean))
