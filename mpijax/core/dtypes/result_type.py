"""Computes the dtype of the result of an operation on values.

`mpijax.core.dtypes.promotion` has the lattice; this module maps values to its nodes. Every eager operation promotes its
operands, so results are cached, keyed by the options in force and the operands' dtypes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.base.option import values as _options
from mpijax.core.dtypes import promotion
from mpijax.core.dtypes.canonical import (
    ALWAYS_CANONICAL,
    DTYPE_CLASSES,
    NARROWED,
    SCALAR_DTYPES,
    default_dtype,
    default_float_dtype,
    default_uint_dtype,
    dtype,
    python_scalar_dtypes,
)
from mpijax.core.dtypes.kinds import finfo, python_type

_BOOL, _I32, _F32, _F64, _C64, _C128 = map(
    np.dtype, ("bool", "int32", "float32", "float64", "complex64", "complex128")
)

# Keys hold dtypes and types only, never values: the values 1, 1.0 and True are equal.
_JOINED: dict[tuple, tuple[Any, bool]] = {}
_RESULTS: dict[tuple, tuple[Any, bool]] = {}
_CACHE_SIZE = 1 << 14

_SCALAR_PAIRS = {
    x64: {kind: (dtype, kind is not bool) for kind, dtype in dtypes.items()}
    for x64, dtypes in SCALAR_DTYPES.items()
}


def _keep(cache: dict[tuple, tuple[Any, bool]], args: tuple, dtypes: Any, result: tuple[Any, bool]) -> None:
    """Cache a result, unless it must warn again next time (64-bit dtypes while those are off)."""
    if _options.jax_enable_x64 or NARROWED.keys().isdisjoint(dtypes):
        if len(cache) >= _CACHE_SIZE:
            cache.clear()
        cache[_options.trace_key, args] = result


def promote_types(a: Any, b: Any) -> np.dtype:
    """The dtype to which operands of dtypes `a` and `b` are converted; int, float and complex are weak.

    >>> jnp.promote_types(jnp.int32, jnp.bfloat16), jnp.promote_types(jnp.int8, jnp.uint8)
    (dtype(bfloat16), dtype('int16'))
    """
    nodes = [t if type(t) is type and t in promotion.WEAK else np.dtype(t) for t in (a, b)]
    strict = _options.jax_numpy_dtype_promotion == "strict"
    return np.dtype(promotion.join(strict, _options.jax_enable_x64, *nodes))


def _pair(x: Any) -> tuple[Any, bool]:
    """(dtype, weak) of an operand."""
    kind = type(x)
    if kind in DTYPE_CLASSES:
        return ALWAYS_CANONICAL.get(x) or dtype(x), False
    if kind in python_scalar_dtypes:
        return _SCALAR_PAIRS[_options.jax_enable_x64][kind]
    if kind is type:
        return dtype(x), x in promotion.WEAK
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval.dtype, getattr(aval, "weak_type", False)
    return dtype(x), False


def _join(pairs: tuple[tuple[Any, bool], ...]) -> tuple[Any, bool]:
    strict, x64 = _options.jax_numpy_dtype_promotion == "strict", _options.jax_enable_x64
    dtypes = [of for of, _ in pairs]
    all_weak = all(weak for _, weak in pairs)
    if len(pairs) == 1 or (not all_weak and dtypes.count(dtypes[0]) == len(dtypes)):
        of, weak = dtypes[0], all_weak
    elif all_weak and not strict:
        # Joined as strong types: weak int16 arrays exist, and two of them give a weak int16.
        of, weak = dtype(promotion.join(strict, x64, *dtypes)), True
    else:
        nodes = [python_type(of) if weak and of != _BOOL else of for of, weak in pairs]
        node = promotion.join(strict, x64, *nodes)
        of, weak = dtype(node), isinstance(node, type)
    return of, weak and of != _BOOL


def join_dtypes(*pairs: tuple[Any, bool]) -> tuple[Any, bool]:
    """Like `lattice_result_type`, but on (dtype, weak_type) pairs, for callers that have avals."""
    found = _JOINED.get((_options.trace_key, pairs))
    if found is None:
        found = _join(pairs)
        _keep(_JOINED, pairs, [of for of, _ in pairs], found)
    return found


def lattice_result_type(*args: Any) -> tuple[Any, bool]:
    """(dtype, weak_type) of an operation on values, dtypes and types `args`.

    The dtype of a weak result is the joined dtype (a weak int16 stays int16); `result_type` gives the default
    dtype of its kind instead.
    """
    return join_dtypes(*[_pair(x) for x in args])


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype of an operation on values, dtypes and types `args` (None means the default float).

    Returns:
        The dtype, or (dtype, weak_type) if `return_weak_type_flag`.

    >>> mpijax.dtypes.result_type(jnp.int32, jnp.float16), mpijax.dtypes.result_type(jnp.int8, 1)
    (dtype('float16'), dtype('int8'))
    """
    if not args:
        raise ValueError("at least one array or dtype is required")
    found = None
    if type(args[0]) in DTYPE_CLASSES:
        try:
            found = _RESULTS.get((_options.trace_key, args))
        except TypeError:  # arrays are not hashable
            pass
        if found is None:
            found = _result_type(args)
            if DTYPE_CLASSES.issuperset(map(type, args)):
                _keep(_RESULTS, args, args, found)
    else:
        found = _result_type(args)
    return found if return_weak_type_flag else found[0]


def _result_type(args: tuple) -> tuple[Any, bool]:
    found = join_dtypes(*[_pair(default_float_dtype() if x is None else x) for x in args])
    return (_default_of_kind(found[0]), True) if found[1] else found


def _default_of_kind(of: np.dtype) -> np.dtype:
    if of in promotion.UNSIGNED:
        return default_uint_dtype()
    kind = python_type(of)
    assert kind is not None, of  # only numbers are weak
    return default_dtype(kind)


def safe_to_cast(source: Any, target: Any) -> bool:
    """Whether promotion would turn `source` (a value or dtype) into the dtype of `target`."""
    source_dtype, target_dtype = dtype(source), dtype(target)
    return source_dtype == target_dtype or result_type(source, target_dtype) == target_dtype


def to_numeric_dtype(dtype: Any) -> np.dtype:
    """int32 for bool, any other dtype unchanged."""
    of = np.dtype(dtype)
    return _I32 if of == _BOOL else of


def to_inexact_dtype(dtype: Any) -> np.dtype:
    """The dtype of sin(x): float32 for bool and integers (float64 for 64-bit ones), others unchanged."""
    of = np.dtype(dtype)
    if python_type(of) in (bool, int):
        return _F64 if of.itemsize == 8 else _F32
    return of


def to_floating_dtype(dtype: Any) -> np.dtype:
    """The dtype of abs(sin(x)): like `to_inexact_dtype`, but the real dtype for a complex one."""
    return finfo(to_inexact_dtype(dtype)).dtype


def to_complex_dtype(dtype: Any) -> np.dtype:
    """The dtype of fft(x): complex128 for 64-bit types (and complex128), else complex64."""
    return _C128 if to_inexact_dtype(dtype) in (_F64, _C128) else _C64
