"""`sum`, `prod`, `max`, `min`, `all`, `any` along axes.

A reduction along one or all axes that needs no other dtype is one lax operation. All others call `reduce`, as a
program that is inlined.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core.base.option import values as options
from mpijax.numpy.reductions.reduce import ReductionKind, reduce, to_bool, to_numeric
from mpijax.numpy.util import ensure_arraylike, optional_axes
from mpijax.transforms.jit import jit

_SUM = ReductionKind(
    "sum", lax.reduce_sum, lax.add, 0,
    prepare=to_numeric, reduce_bool=lax.reduce_or, combine_bool=lax.bitwise_or, over_names="psum",
)  # fmt: skip
_PROD = ReductionKind(
    "prod", lax.reduce_prod, lax.mul, 1,
    prepare=to_numeric, reduce_bool=lax.reduce_and, combine_bool=lax.bitwise_and,
)  # fmt: skip
_MAX = ReductionKind("max", lax.reduce_max, lax.max, -np.inf, total=False, over_names="pmax")
_MIN = ReductionKind("min", lax.reduce_min, lax.min, np.inf, total=False, over_names="pmin")
_ALL = ReductionKind("all", lax.reduce_and, lax.bitwise_and, True, prepare=to_bool)
_ANY = ReductionKind("any", lax.reduce_or, lax.bitwise_or, False, prepare=to_bool)

_WIDE = frozenset(map(np.dtype, ("float32", "float64", "complex64", "complex128", "int64", "uint64")))
_DEFAULT_INTS = frozenset(map(np.dtype, ("int32", "uint32")))


def _summed_as_is(dtype: Any) -> bool:
    """Whether a sum needs no other dtype for intermediate values."""
    return dtype in _WIDE or (dtype in _DEFAULT_INTS and not options.jax_enable_x64)


def _plain_axes(a: Any, axis: Any) -> tuple[int, ...] | None:
    """The axes in the usual case of an array with None or an int as axis; None for all other cases."""
    aval = getattr(a, "aval", None)
    if aval is None or aval.weak_type or aval.is_ref:
        return None
    ndim = len(aval.shape)
    if axis is None:
        return tuple(range(ndim))
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    return None


def _program(kind: ReductionKind):
    """The general form of a reduction, as a program that is inlined."""

    def fun(a, **arguments):
        return reduce(kind, a, **arguments)

    fun.__name__ = f"_reduce_{kind.name}"
    return jit(fun, static_argnames=("axis", "dtype", "keepdims", "upcast", "promote_integers"), inline=True)


_sum, _prod, _max, _min, _all, _any = map(_program, (_SUM, _PROD, _MAX, _MIN, _ALL, _ANY))


def _run(program, name: str, a: Any, axis: Any, out: Any, **arguments: Any):
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{name} is not supported.")
    return program(ensure_arraylike(name, a), axis=optional_axes(axis), **arguments)


def sum(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None, promote_integers=True):
    """Sum of the elements along axes (default: all).

    Args:
      axis: an int, a tuple of ints, or None for all axes. Names of mapped axes are allowed, too.
      dtype: dtype of the sum and the result. By default, 16-bit floats are summed in float32, and integers narrower
        than the default integer type become that type unless `promote_integers` is false.
      keepdims: keep the axes with size 1.
      initial: a scalar to start from.
      where: a mask of the elements to take.

    Returns:
      A scalar, or an array without the axes.

    >>> jnp.sum(jnp.array([[1, 2], [3, 4]]), axis=0)
    Array([4, 6], dtype=int32)
    """
    if dtype is None and out is None and keepdims is False and initial is None and where is None:
        dims = _plain_axes(a, axis)
        if dims is not None and _summed_as_is(a.aval.dtype):
            return lax.reduce_sum(a, dims)
    return _run(
        _sum, "sum", a, axis, out, dtype=dtype, keepdims=keepdims, initial=initial, where=where,
        upcast=dtype is None, promote_integers=promote_integers,
    )  # fmt: skip


def prod(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None, promote_integers=True):
    """Product of the elements along axes (default: all); the arguments are those of `sum`.

    >>> jnp.prod(jnp.array([[1, 2], [3, 4]]), axis=1)
    Array([ 2, 12], dtype=int32)
    """
    return _run(
        _prod, "prod", a, axis, out, dtype=dtype, keepdims=keepdims, initial=initial, where=where,
        upcast=dtype is None, promote_integers=promote_integers,
    )  # fmt: skip


def _extremum(kind: ReductionKind, program, a, axis, out, keepdims, initial, where):
    if out is None and keepdims is False and initial is None and where is None:
        dims = _plain_axes(a, axis)
        if dims is not None and 0 not in a.aval.shape:
            return kind.reduce(a, dims)
    return _run(program, kind.name, a, axis, out, keepdims=keepdims, initial=initial, where=where)


def max(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """The largest element along axes (default: all); NaN if an element is NaN.

    Empty arrays and a `where` mask need `initial`. The other arguments are those of `sum`.

    >>> jnp.max(jnp.array([[1, 5], [3, 4]]), axis=1, keepdims=True)
    Array([[5],
           [4]], dtype=int32)
    """
    return _extremum(_MAX, _max, a, axis, out, keepdims, initial, where)


def min(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """The smallest element along axes (default: all); NaN if an element is NaN. Arguments are those of `max`.

    >>> jnp.min(jnp.array([1, 5, 3]), where=jnp.array([False, True, True]), initial=100)
    Array(3, dtype=int32)
    """
    return _extremum(_MIN, _min, a, axis, out, keepdims, initial, where)


def minmax(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """(`min`, `max`) along axes. `initial` is one value for both, or a tuple of two.

    >>> jnp.minmax(jnp.array([[1, 5], [3, 4]]), axis=1)
    (Array([1, 3], dtype=int32), Array([5, 4], dtype=int32))
    """
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.minmax is not supported.")
    low, high = initial if isinstance(initial, tuple) else (initial, initial)
    return min(a, axis, None, keepdims, low, where), max(a, axis, None, keepdims, high, where)


def amax(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """The largest element along axes; see `max`.

    >>> jnp.amax(jnp.array([[1, 5], [3, 4]]), axis=0)
    Array([3, 5], dtype=int32)
    """
    return max(a, axis=axis, out=out, keepdims=keepdims, initial=initial, where=where)


def amin(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """The smallest element along axes; see `min`.

    >>> jnp.amin(jnp.array([[1, 5], [3, 4]]), axis=0)
    Array([1, 4], dtype=int32)
    """
    return min(a, axis=axis, out=out, keepdims=keepdims, initial=initial, where=where)


def all(a, axis=None, out=None, keepdims=False, *, where=None):
    """Whether all elements along axes (default: all) are true (nonzero).

    The result is a bool scalar, or an array without the axes (size 1 with `keepdims`). It is True if there are no
    elements.

    >>> jnp.all(jnp.array([[1, 0], [2, 3]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    return _run(_all, "all", a, axis, out, keepdims=keepdims, where=where)


def any(a, axis=None, out=None, keepdims=False, *, where=None):
    """Whether any element along axes (default: all) is true (nonzero).

    The result is a bool scalar, or an array without the axes (size 1 with `keepdims`). It is False if there are no
    elements.

    >>> jnp.any(jnp.array([[0, 0], [0, 3]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    return _run(_any, "any", a, axis, out, keepdims=keepdims, where=where)
