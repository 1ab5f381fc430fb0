"""Reductions of an array along axes: the common code of sum, product, extrema, all and any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.util import (
    _where,
    canonical_axis,
    convert,
    ensure_arraylike,
    is_complex,
    is_float,
    is_inexact,
    static,
)

_BOOL, _F32 = np.dtype(bool), np.dtype(np.float32)
_HALF = (np.dtype(np.float16), np.dtype(dtypes.bfloat16))


class ReductionKind(NamedTuple):
    """One kind of reduction: its lax operations for an array and for a pair, and its identity."""

    name: str
    reduce: Callable[[Any, tuple[int, ...]], Any]
    combine: Callable[[Any, Any], Any]
    identity: Any
    # Whether an empty array has a result.
    total: bool = True
    prepare: Callable[[Any], Any] | None = None
    reduce_bool: Callable[[Any, tuple[int, ...]], Any] | None = None
    combine_bool: Callable[[Any, Any], Any] | None = None
    # Over named axes of vmap or shard_map.
    over_names: str | None = None


def upcast_half(dtype: Any) -> Any:
    """float32 for 16-bit floats, which are too imprecise for sums."""
    return _F32 if dtype in _HALF else np.dtype(dtype)


def promoted_integer(dtype: Any) -> Any:
    """The dtype of the sum of integers or bools: at least as wide as the default integer."""
    if dtype == _BOOL:
        return dtypes.default_int_dtype()
    for kind, default in (
        (np.unsignedinteger, dtypes.default_uint_dtype()),
        (np.signedinteger, dtypes.default_int_dtype()),
    ):
        if dtypes.issubdtype(dtype, kind):
            return default if dtypes.iinfo(dtype).bits < dtypes.iinfo(default).bits else dtype
    return dtype


def check_where(name: str, where: Any) -> Any:
    """The mask of a reduction: None or an array of bool."""
    if where is None:
        return None
    where = ensure_arraylike(name, where)
    if where.dtype != _BOOL:
        raise ValueError(
            f"jnp.{name}: where must be None or a boolean array; got where.dtype={where.dtype!r}."
        )
    return where


def reduction_axes(ndim: int, axis: Any) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """The axes to reduce, counted from the front: (positional axes, all axes, with the named ones)."""
    if axis is None:
        return tuple(range(ndim)), tuple(range(ndim))
    if not isinstance(axis, (np.ndarray, tuple, list)):
        axis = (axis,)
    dims = tuple(a if isinstance(a, str) else canonical_axis(a, ndim) for a in axis)
    if len(dims) != len(set(dims)):
        raise ValueError(f"duplicate value in 'axis': {axis}")
    return tuple(d for d in dims if isinstance(d, int)), dims


def _end_of_range(info: Any, infinity: float) -> Any:
    return info.min if infinity < 0 else info.max


def identity_in(dtype: Any, value: Any) -> Any:
    """The identity of a reduction in a dtype. If the dtype has no infinities, the ends of its range replace them."""
    if dtype == _BOOL:
        return np.bool_(value > 0)
    if np.isinf(value):
        if is_float(dtype) and not dtypes.supports_inf(dtype):
            value = _end_of_range(dtypes.finfo(dtype), value)
        elif dtypes.issubdtype(dtype, np.integer):
            value = _end_of_range(dtypes.iinfo(dtype), value)
    return np.asarray(value).astype(dtype)[()]


def reduce(
    kind: ReductionKind,
    a: Any,
    *,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    upcast: bool = False,
    promote_integers: bool = False,
):
    """Reduce `a` along `axis`.

    Args:
      dtype: dtype of the reduction and of the result.
      keepdims: keep the reduced axes with size 1.
      initial: a scalar to start from; required with `where` if the reduction has no identity.
      where: a mask of the elements to take.
      upcast: whether 16-bit floats are reduced in float32.
      promote_integers: whether narrow integers are reduced in the default integer type.
    """
    name = kind.name
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{name} is not supported.")
    a = ensure_arraylike(name, a)
    where = check_where(name, where)
    axis = static(axis, f"axis argument to jnp.{name}().")
    if initial is None and not kind.total and where is not None:
        raise ValueError(
            f"reduction operation {name} does not have an identity, so to use a where mask one has to "
            "specify 'initial'"
        )
    if kind.prepare is not None:
        a = kind.prepare(a)
    positions, dims = reduction_axes(a.ndim, axis)
    if initial is None and not kind.total and any(a.shape[d] < 1 for d in positions):
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
    if dtype is not None:
        result_dtype = dtypes.check_user_dtype_supported(dtype, name)
    else:
        result_dtype = promoted_integer(a.dtype) if promote_integers else a.dtype
    working = upcast_half(result_dtype) if upcast and is_inexact(result_dtype) else result_dtype
    a = convert(a, working)
    is_bool = working == _BOOL
    if where is not None:
        a = _where(where, a, identity_in(a.dtype, kind.identity))
    if len(positions) != len(dims):
        result = _over_names(kind, a, dims)
    else:
        result = ((is_bool and kind.reduce_bool) or kind.reduce)(a, dims)
    if initial is not None:
        first = convert(initial, a.dtype)
        if np.shape(first) != ():
            raise ValueError(f"initial value must be a scalar. Got array of shape {np.shape(first)}")
        result = ((is_bool and kind.combine_bool) or kind.combine)(first, result)
    if keepdims:
        result = lax.expand_dims(result, positions)
    return convert(result, result_dtype)


def _over_names(kind: ReductionKind, a: Any, dims: tuple[Any, ...]):
    if kind.over_names is None:
        raise NotImplementedError(f"Named reductions not implemented for jnp.{kind.name}()")
    return getattr(lax, kind.over_names)(a, dims)


def to_numeric(x: Any) -> Any:
    """bool as int32, keeping weak types."""
    return convert(x, dtypes.to_numeric_dtype(x.dtype), x.aval.weak_type and x.dtype != _BOOL)


def to_bool(x: Any) -> Any:
    """Whether elements differ from 0. (JAX looks at the real part only of complex numbers; NumPy does not.)"""
    return lax.ne(x, lax.full_like(x, 0, shape=())) if is_complex(x.dtype) else convert(x, _BOOL)


def _require_integer(x: Any) -> Any:
    if not dtypes.isdtype(x.dtype, ("bool", "integral")):
        raise ValueError(f"integer argument required; got dtype={x.dtype}")
    return x
