"""Running sums and products along an axis."""

from __future__ import annotations

from functools import partial

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base.errors import ShardingTypeError
from mpijax.core.types.typeof import typeof
from mpijax.numpy.reductions.reduce import promoted_integer
from mpijax.numpy.util import _where, canonical_axis, convert, ensure_arraylike, requested_dtype, scalar_like
from mpijax.transforms.jit import jit

_BOOL = np.dtype(bool)


def _operation(name: str):
    found = getattr(lax, name, None)
    if found is None:
        raise NotImplementedError(f"jnp.{name} needs lax.{name}, which mpijax does not have yet.")
    return found


def _cumulate(name, operation, a, axis, dtype, out, *, replace_nan=None, promote_integers=False):
    a = ensure_arraylike(name, a)
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{name} is not supported")
    if axis is None:
        aval = typeof(a)
        if aval.said_sharding is not None:
            raise ShardingTypeError(
                f"The input should be fully replicated when axis is not specified to {name}. Got input type={aval}. "
                "Pass an axis, or replicate the input with jax.sharding.reshard."
            )
        a = lax.reshape(a, (a.size,))
    axis = canonical_axis(0 if axis is None else axis, a.ndim)
    if replace_nan is not None:
        a = _where(lax.ne(a, a), scalar_like(a, replace_nan), a)
    if dtype is None:
        result_dtype = promoted_integer(a.dtype) if promote_integers or a.dtype == _BOOL else a.dtype
        working = result_dtype
    elif np.dtype(dtype) == _BOOL:
        result_dtype, working = _BOOL, dtypes.default_int_dtype()
        if a.dtype != _BOOL:
            a = lax.ne(a, scalar_like(a, 0))
    else:
        result_dtype = working = dtypes.check_user_dtype_supported(dtype, name)
    return convert(_operation(operation)(convert(a, working), axis), result_dtype)


def _public(name: str, operation: str, summary: str, result: str, replace_nan: int | None = None):
    """The function `name`; its docstring shows the `result` of it on 2, 3, 5, with NaN for 3 if that is replaced."""
    given = "[2, 3, 5]" if replace_nan is None else "[2, jnp.nan, 5]"

    def fun(a, axis=None, dtype=None, out=None):
        return _cumulate(name, operation, a, axis, dtype, out, replace_nan=replace_nan)

    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = f"""{summary} along an axis, or of all elements in row-major order if `axis` is None.

    The result has the shape of `a`, or one axis, and the dtype of `a` unless given; bools are counted as integers.

    >>> jnp.{name}(jnp.array({given}))
    Array({result})
    """
    return jit(fun, static_argnames=("axis", "dtype"))


cumsum = _public("cumsum", "cumsum", "Running sums", "[ 2,  5, 10], dtype=int32")
cumprod = _public("cumprod", "cumprod", "Running products", "[ 2,  6, 30], dtype=int32")
nancumsum = _public("nancumsum", "cumsum", "Running sums that skip NaN", "[2., 2., 7.], dtype=float32", 0)
nancumprod = _public("nancumprod", "cumprod", "Running products that skip NaN", "[ 2.,  2., 10.], dtype=float32", 1)


@jit(static_argnames=("axis", "dtype"))
def _cumsum_with_promotion(a, axis=None, dtype=None, out=None):
    return _cumulate("_cumsum_with_promotion", "cumsum", a, axis, dtype, out, promote_integers=True)


def _array_api(name: str, run, first: int, x, axis, dtype, include_initial):
    x = ensure_arraylike(name, x)
    if x.ndim == 0:
        noun = "sum" if first == 0 else "product"
        raise ValueError(
            f"The input must be non-scalar to take a cumulative {noun}, however a scalar value or scalar "
            "array was given."
        )
    if axis is None:
        if x.ndim > 1:
            raise ValueError(
                f"The input array has rank {x.ndim}, however axis was not set to an explicit value. The axis "
                "argument is only optional for one-dimensional arrays."
            )
        axis = 0
    axis = canonical_axis(axis, x.ndim)
    out = run(x, axis=axis, dtype=requested_dtype(dtype, name))
    if not include_initial:
        return out
    shape = [*x.shape[:axis], 1, *x.shape[axis + 1 :]]
    return lax.concatenate([lax.full(shape, first, dtype=out.dtype), out], dimension=axis)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """Running sums along an axis.

    Args:
      x: array. If it has more than one axis, `axis` is required.
      include_initial: put a 0 in front of the sums; the axis is longer by 1.

    >>> jnp.cumulative_sum(jnp.array([2, 3, 4]), include_initial=True)
    Array([0, 2, 5, 9], dtype=int32)
    """
    return _array_api("cumulative_sum", _cumsum_with_promotion, 0, x, axis, dtype, include_initial)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """Running products along an axis.

    Args:
      x: array. If it has more than one axis, `axis` is required.
      include_initial: put a 1 in front of the products; the axis is longer by 1.

    >>> jnp.cumulative_prod(jnp.array([2, 3, 4]), include_initial=True)
    Array([ 1,  2,  6, 24], dtype=int32)
    """
    run = partial(_cumulate, "cumulative_prod", "cumprod", out=None)
    return _array_api("cumulative_prod", run, 1, x, axis, dtype, include_initial)
