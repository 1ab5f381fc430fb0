"""Conversion of dtypes, and constants with the dtype of an operand."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base.warn import warn_user
from mpijax.core.shapes.dimensions import DimExpr
from mpijax.core.types.avals import ShapedArray, from_host, number_of
from mpijax.core.types.typeof import typeof


def dtype_of(x: Any) -> Any:
    """The dtype of an array or scalar."""
    aval = getattr(x, "aval", None)
    return dtypes.dtype(x) if aval is None else aval.dtype


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of an array or scalar."""
    aval = getattr(x, "aval", None)
    return np.shape(x) if aval is None else aval.shape


def convert(x: Any, dtype: Any, weak_type: bool = False, warn: bool = True) -> Any:
    """`x` with a dtype and weak type; `x` itself if it has them. Scalars stay scalars, and become literals.

    Complex numbers lose their imaginary part, with a warning if `warn`.
    """
    aval = getattr(x, "aval", None)
    if aval is None:
        if not isinstance(x, np.ndarray) or x.ndim == 0:
            return _convert_scalar(x, dtype, weak_type)
        canonical = dtypes.canonicalize_dtype(x.dtype)
        if x.dtype == dtype != canonical:
            return from_host(x, ShapedArray(x.shape, dtype, weak_type))
        x = np.asarray(x, canonical)
        if x.dtype == dtype and not weak_type:
            return x
    elif aval.dtype == dtype and aval.weak_type == weak_type:
        return x
    if isinstance(dtype, dtypes.ExtendedDType) or isinstance(dtype_of(x), dtypes.ExtendedDType):
        return lax.convert_element_type(x, dtype)
    if isinstance(x, DimExpr):
        x = x.__jax_array__()
    if warn and x.dtype.kind == "c" and dtype.kind != "c":
        _warn_of_lost_imaginary_part()
    return lax.convert_element_type_p.bind(x, new_dtype=dtype, weak_type=weak_type, sharding=None)


def _warn_of_lost_imaginary_part() -> None:
    warn_user(
        "Casting complex values to real discards the imaginary part",
        np.exceptions.ComplexWarning,
    )


def _convert_scalar(x: Any, dtype: Any, weak_type: bool) -> Any:
    if isinstance(x, int):
        typeof(x)  # raises OverflowError for a number that the default int cannot hold
    value = np.asarray(x)
    if value.dtype.kind == "c" and dtype.kind != "c":
        _warn_of_lost_imaginary_part()
        value = value.real
    with np.errstate(all="ignore"):
        value = value.astype(dtype)
    if not weak_type:
        return number_of(value, dtype)
    of = dtypes.python_type(dtype)
    if of is not None and dtypes.dtype(of) == dtype:
        # A number that already has the type is not rounded here, but at its use.
        return x if type(x) is of else of(value)
    return lax.convert_element_type_p.bind(value[()], new_dtype=dtype, weak_type=True, sharding=None)


def scalar_like(x: Any, value: Any) -> Any:
    """A constant with the dtype of x, for an operation with x. It is weakly typed only if x is a weakly typed
    scalar."""
    aval = getattr(x, "aval", None)
    if aval is None:
        dtype = dtypes.dtype(x)
        weak_scalar = type(x) in dtypes.python_scalar_dtypes
    else:
        dtype = aval.dtype
        weak_scalar = aval.weak_type and not aval.shape
    if isinstance(value, DimExpr):
        return convert(value, dtype, weak_scalar)
    if weak_scalar:
        number = dtypes.python_type(dtype)
        if number is not None and dtypes.dtype(number) == dtype:
            return number(value)
    return number_of(value, dtype)


def strong_like(x: Any, value: Any) -> Any:
    """A constant with the dtype of x that is not weakly typed."""
    return constant(value, dtype_of(x))


def constant(value: Any, dtype: Any) -> Any:
    """A number, or a symbolic size, with a dtype."""
    return convert(value, dtype) if isinstance(value, DimExpr) else number_of(value, dtype)


def zero_like(x: Any) -> Any:
    """0 with the dtype of x."""
    return scalar_like(x, 0)


def number_beside(x: Any, value: Any) -> Any:
    """A Python number as an operand for an operation with x: it has x's dtype and weak type."""
    return convert(value, x.dtype, typeof(x).weak_type)


def requested_dtype(dtype: Any, fun_name: str) -> Any:
    """A ``dtype=`` argument, canonical; None stays None."""
    return None if dtype is None else dtypes.check_user_dtype_supported(dtype, fun_name)


def is_float(dtype: Any) -> bool:
    return dtypes.issubdtype(dtype, np.floating)


def is_complex(dtype: Any) -> bool:
    return dtypes.issubdtype(dtype, np.complexfloating)


def is_integer(dtype: Any) -> bool:
    return dtypes.issubdtype(dtype, np.integer)


def is_inexact(dtype: Any) -> bool:
    return dtypes.issubdtype(dtype, np.inexact)
