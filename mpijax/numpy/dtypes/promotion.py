"""Promotion of operands to one dtype and one number of axes.

The eager path of `x + y` calls `promote_pair`. The usual cases (arrays of one type, an array and a Python number)
return after a few attribute reads; all others take the general path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base.option import values as options
from mpijax.core.base.warn import warn_user
from mpijax.numpy.arguments import (
    FLOAT0,
    as_array,
    check_arraylike,
    check_no_float0s,
    check_no_mixed_keys,
    unwrap,
)
from mpijax.numpy.dtypes.casts import convert, shape_of

_BOOL = np.dtype(bool)


def _promote_to(args: Sequence[Any], raised: Callable[[Any], Any]) -> list[Any]:
    dtype, weak_type = dtypes.lattice_result_type(*args)
    dtype = raised(dtype)
    converted = [convert(x, dtype, weak_type) for x in args]
    # NumPy arrays and Python numbers are promoted as in NumPy.
    return converted if len(args) > 1 else list(map(as_array, converted))


def promote_dtypes(*args: Any) -> list[Any]:
    """All arguments in their promoted dtype."""
    if len(args) < 2:
        return list(map(as_array, args))
    dtype, weak_type = dtypes.lattice_result_type(*args)
    return [convert(x, dtype, weak_type) for x in args]


def promote_dtypes_inexact(*args: Any) -> list[Any]:
    """As `promote_dtypes`; bool and integers also become floats."""
    return _promote_to(args, dtypes.to_inexact_dtype)


def promote_dtypes_numeric(*args: Any) -> list[Any]:
    """As `promote_dtypes`; bool also becomes int32."""
    return _promote_to(args, dtypes.to_numeric_dtype)


def promote_dtypes_complex(*args: Any) -> list[Any]:
    """As `promote_dtypes`; the result is always complex."""
    return _promote_to(args, dtypes.to_complex_dtype)


def promote_shapes(fun_name: str, *args: Any) -> list[Any]:
    """Give arrays with fewer axes leading axes of size 1. lax accepts scalars with arrays, so they do not change."""
    shapes = [shape_of(x) for x in args]
    ranks = {len(shape) for shape in shapes if shape}
    if len(ranks) < 2:
        return list(args)
    if options.jax_numpy_rank_promotion != "allow":
        _complain_of_rank_promotion(fun_name, shapes)
    rank = len(lax.broadcast_shapes(*shapes))
    return [lax.broadcast_to_rank(x, rank) for x in args]


def _complain_of_rank_promotion(fun_name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    given = " ".join(map(str, shapes))
    page = "For more information, see https://docs.jax.dev/en/latest/rank_promotion_warning.html."
    if options.jax_numpy_rank_promotion == "raise":
        raise ValueError(
            f"Operands could not be broadcast together for {fun_name} on shapes {given} and with the config "
            f"option jax_numpy_rank_promotion='raise'. {page}"
        )
    warn_user(
        f"Following NumPy automatic rank promotion for {fun_name} on shapes {given}. Set the "
        f"jax_numpy_rank_promotion config option to 'allow' to disable this warning. {page}",
    )


def _promote(fun_name: str, args: Sequence[Any], promotion: Callable[..., list[Any]]) -> list[Any]:
    check_arraylike(fun_name, *args)
    args = [unwrap(x) for x in args]
    check_no_float0s(fun_name, *args)
    check_no_mixed_keys(fun_name, *args)
    return promote_shapes(fun_name, *map(_staged_if_python, promotion(*args)))


def _staged_if_python(x: Any) -> Any:
    """Python scalars (weakly typed operands) as Arrays, so that all operands have a dtype and a shape."""
    return lax.stage(x) if type(x) in dtypes.python_scalar_dtypes else x


# With an array whose kind is at least as wide, a Python number takes the dtype of the array.
_KIND_ORDER: dict[type | None, int] = {bool: 0, int: 1, float: 2, complex: 3}
_SCALAR_TYPES: dict[tuple[Any, type], type] = {
    (dtype, kind): dtype.type
    for dtype in dtypes.valid_dtypes
    for kind in (int, float, complex)
    if _KIND_ORDER.get(dtypes.python_type(dtype), -1) >= _KIND_ORDER[kind]
}
_INT_LIMIT = 1 << 31


def promote_args(fun_name: str, *args: Any) -> list[Any]:
    """The operands of a function in their common dtype and with the same number of axes. Raises TypeError for a value
    that is not an array."""
    return _promote(fun_name, args, promote_dtypes)


def _ranks_agree(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return len(a) == len(b) or not a or not b


def promote_pair(fun_name: str, x: Any, y: Any) -> Any:
    """`promote_args` for two operands, fast in the usual cases."""
    a = getattr(x, "aval", None)
    if a is None:
        return _promote(fun_name, (x, y), promote_dtypes)
    kind = type(y)
    try:
        if kind is float or kind is int:
            scalar = _SCALAR_TYPES.get((a.dtype, kind))
            narrowed = a.dtype in dtypes.NARROWED and not options.jax_enable_x64
            fits = kind is float or -_INT_LIMIT <= y < _INT_LIMIT
            if scalar is not None and not (a.weak_type or narrowed or a.is_ref) and fits:
                return x, scalar(y)
        else:
            b = getattr(y, "aval", None)
            if b is not None and (
                a is b or (a.dtype is b.dtype and a.weak_type is b.weak_type and _ranks_agree(a.shape, b.shape))
            ):
                if a.dtype is not FLOAT0 and not (a.weak_type and a.dtype == _BOOL or a.is_ref or b.is_ref):
                    return x, y
    except (AttributeError, OverflowError):  # a value of a type of a library, which may stand for an array
        pass
    return _promote(fun_name, (x, y), promote_dtypes)


def promote_args_inexact(fun_name: str, *args: Any) -> list[Any]:
    """As `promote_args`; bool and integers also become floats."""
    return _promote(fun_name, args, promote_dtypes_inexact)


def promote_args_numeric(fun_name: str, *args: Any) -> list[Any]:
    """As `promote_args`; bool also becomes int32."""
    return _promote(fun_name, args, promote_dtypes_numeric)


def promote_args_complex(fun_name: str, *args: Any) -> list[Any]:
    """As `promote_args`; the result is always complex."""
    return _promote(fun_name, args, promote_dtypes_complex)
