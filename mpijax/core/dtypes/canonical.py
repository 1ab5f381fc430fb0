"""Computes the dtype of a value, name or type: 64-bit becomes 32-bit unless ``jax_enable_x64`` is on."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.base.option import values as _options
from mpijax.core.base.warn import warn_user
from mpijax.core.dtypes.extended import ExtendedDType, extended
from mpijax.core.dtypes.kinds import issubdtype, python_type, valid_dtypes

_BOOL, _I32, _I64, _U32, _U64, _F32, _F64, _C64, _C128 = map(
    np.dtype, ("bool", "int32", "int64", "uint32", "uint64", "float32", "float64", "complex64", "complex128")
)
NARROWED = {_I64: _I32, _U64: _U32, _F64: _F32, _C128: _C64}

# The dtype of each Python scalar type while 64-bit types are on, and by the value of ``jax_enable_x64``.
python_scalar_dtypes: dict[type, np.dtype] = {bool: _BOOL, int: _I64, float: _F64, complex: _C128}
SCALAR_DTYPES = {
    True: python_scalar_dtypes,
    False: {kind: NARROWED.get(of, of) for kind, of in python_scalar_dtypes.items()},
}

# For hot paths. DTYPE_CLASSES tests whether an object may be a valid dtype (`isinstance` on numpy.dtype takes three
# times as long). ALWAYS_CANONICAL has the dtypes that are canonical under all options.
DTYPE_CLASSES = frozenset(map(type, valid_dtypes))
ALWAYS_CANONICAL = {dtype: dtype for dtype in valid_dtypes if dtype not in NARROWED}


def default_int_dtype() -> np.dtype:
    """int32, or int64 while ``jax_enable_x64`` is on."""
    return _I64 if _options.jax_enable_x64 else _I32


def default_uint_dtype() -> np.dtype:
    """uint32, or uint64 while ``jax_enable_x64`` is on."""
    return _U64 if _options.jax_enable_x64 else _U32


def default_float_dtype() -> np.dtype:
    """float32, or float64 while ``jax_enable_x64`` is on."""
    return _F64 if _options.jax_enable_x64 else _F32


def default_complex_dtype() -> np.dtype:
    """complex64, or complex128 while ``jax_enable_x64`` is on."""
    return _C128 if _options.jax_enable_x64 else _C64


def default_dtype(kind: type) -> np.dtype:
    """The dtype of Python scalars of the type `kind` (bool, int, float, complex)."""
    return SCALAR_DTYPES[_options.jax_enable_x64][kind]


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """The dtype of an array that is created with `dtype`.

    Never warns. Dtypes from user code go through `check_user_dtype_supported`, which warns.

    >>> mpijax.dtypes.canonicalize_dtype("float64")
    dtype('float32')
    """
    found = ALWAYS_CANONICAL.get(dtype)
    if found is not None:
        return found
    if not isinstance(dtype, np.dtype):
        if issubdtype(dtype, extended):
            if allow_extended_dtype:
                return dtype
            raise ValueError(
                f"canonicalize_dtype called on extended dtype {dtype} with allow_extended_dtype=False"
            )
        try:
            dtype = np.dtype(dtype)
        except TypeError as e:
            raise TypeError(f"dtype {dtype!r} not understood") from e
    return dtype if _options.jax_enable_x64 else NARROWED.get(dtype, dtype)


def granted_dtype(dtype: Any) -> Any:
    """The dtype that a user's `dtype` gives: canonical unless ``jax_explicit_x64_dtypes`` allows 64-bit types."""
    if _options.jax_explicit_x64_dtypes == "allow":
        return dtype
    return canonicalize_dtype(dtype, allow_extended_dtype=True)


def _canonicalize_requested(dtype: np.dtype, fun_name: str) -> np.dtype:
    """Canonicalize a dtype that the user named, as ``jax_explicit_x64_dtypes`` prescribes."""
    if dtype not in NARROWED or _options.jax_enable_x64:
        return dtype
    mode = _options.jax_explicit_x64_dtypes
    if mode == "allow":
        return dtype
    where = f" requested in {fun_name}" if fun_name else ""
    if mode == "error":
        raise ValueError(
            f"Explicitly requested dtype {dtype}{where} is not available. To enable more dtypes, set the "
            "jax_enable_x64 or jax_explicit_x64_dtypes configuration options. "
            "See https://github.com/jax-ml/jax#current-gotchas for more."
        )
    narrowed = NARROWED[dtype]
    warn_user(
        f"Explicitly requested dtype {dtype}{where} is not available, and will be truncated to dtype "
        f"{narrowed}. To enable more dtypes, set the jax_enable_x64 configuration option or the "
        "JAX_ENABLE_X64 shell environment variable. "
        "See https://github.com/jax-ml/jax#current-gotchas for more.",
    )
    return narrowed


def check_valid_dtype(dtype: Any) -> None:
    """Raise TypeError unless arrays can have that dtype."""
    if dtype not in valid_dtypes and not isinstance(dtype, ExtendedDType):
        raise TypeError(
            f"Dtype {dtype} is not a valid JAX array type. Only arrays of numeric types are supported by JAX."
        )


def check_user_dtype_supported(dtype: Any, fun_name: str | None = None) -> Any:
    """The dtype to use for a ``dtype=`` argument.

    Python scalar types give the default of their kind; 64-bit types warn and become 32-bit unless allowed.

    Args:
        fun_name: public function the argument was given to, for messages.

    Raises:
        TypeError: arrays cannot have that dtype.
        ValueError: `dtype` is None or an array.
    """
    if type(dtype) in DTYPE_CLASSES and dtype in valid_dtypes:
        return _canonicalize_requested(dtype, fun_name or "")
    if dtype is None:
        raise ValueError("dtype must be specified.")
    if isinstance(dtype, ExtendedDType):
        return dtype
    if isinstance(dtype, type):
        if dtype in python_scalar_dtypes:
            return default_dtype(dtype)
    elif isinstance(dtype, np.ndarray) or hasattr(dtype, "aval"):
        raise ValueError(
            "Passing an array as a dtype argument is no longer supported; "
            "instead of dtype=arr use dtype=arr.dtype."
        )
    asked = np.dtype(dtype)
    if asked not in valid_dtypes:
        where = f" in {fun_name}" if fun_name else ""
        raise TypeError(f"JAX only supports number, bool, and string dtypes, got dtype {dtype}{where}")
    return _canonicalize_requested(asked, fun_name or "")


def jax_dtype(obj: Any, *, align: bool = False, copy: bool = False) -> Any:
    """Like `numpy.dtype`, but None and float give the default float, int the default int, and so on."""
    if obj is None:
        return default_float_dtype()
    if isinstance(obj, ExtendedDType):
        return obj
    if isinstance(obj, type) and obj in python_scalar_dtypes:
        return default_dtype(obj)
    return np.dtype(obj, align=align, copy=copy)


def is_python_scalar(x: Any) -> bool:
    """Whether the type of x is exactly bool, int, float or complex; False for NumPy scalars."""
    return type(x) in python_scalar_dtypes


def is_weak(x: Any) -> bool:
    """Whether x is weakly typed: Python numbers, and arrays computed from Python numbers only."""
    kind = type(x)
    if kind in python_scalar_dtypes:
        return kind is not bool
    return getattr(getattr(x, "aval", None), "weak_type", False)


def dtype(x: Any) -> Any:
    """The canonical dtype of a value, type, name or dtype object.

    Arrays and traced values (objects with an ``aval``) keep their dtype.

    Raises:
        TypeError: arrays cannot hold x.
        ValueError: x is None.
    """
    kind = type(x)
    if kind in DTYPE_CLASSES:
        return ALWAYS_CANONICAL.get(x) or _named(np.dtype(x), x)
    if kind in python_scalar_dtypes:
        return default_dtype(kind)
    if isinstance(x, type):
        if x in python_scalar_dtypes:
            return default_dtype(x)
        if issubclass(x, np.generic):
            return _canonicalize_requested(np.dtype(x), "dtype")
    else:
        aval = getattr(x, "aval", None)
        if aval is not None:
            return aval.dtype
        if isinstance(x, ExtendedDType):
            return x
        if isinstance(x, (np.dtype, str)):
            return _named(np.dtype(x), x)
        if x is None:
            raise ValueError(f"Invalid argument to dtype: {x}.")
    found = getattr(x, "dtype", None)
    if isinstance(found, ExtendedDType):
        return found
    if not isinstance(found, np.dtype):
        try:
            found = np.result_type(x)
        except TypeError as e:
            raise TypeError(f"Cannot determine dtype of {x}") from e
    _check_holds(found, x)
    return found if _options.jax_enable_x64 else NARROWED.get(found, found)


def as_named(x: Any) -> Any:
    """The dtype of a type, name or dtype object; 64-bit dtypes stay even while ``jax_enable_x64`` is off.

    Raises TypeError if arrays cannot hold it.
    """
    if isinstance(x, ExtendedDType):
        return x
    found = np.dtype(x)
    _check_holds(found, x)
    return found


def _named(found: np.dtype, x: Any) -> np.dtype:
    _check_holds(found, x)
    return _canonicalize_requested(found, "dtype")


def _check_holds(found: np.dtype, x: Any) -> None:
    if found not in valid_dtypes:
        raise TypeError(
            f"Value '{x}' with dtype {found} is not a valid JAX array type. "
            "Only arrays of numeric types are supported by JAX."
        )


def scalar_dtype(x: Any, value: Any = None) -> np.dtype:
    """The dtype of a Python scalar, or of a Python scalar type; `value` is then checked against it.

    Raises:
        OverflowError: an int that the default integer type cannot hold.
    """
    kind, value = (x, value) if isinstance(x, type) else (type(x), x)
    of = default_dtype(kind)
    if kind is int and value is not None:
        bound = 1 << (of.itemsize * 8 - 1)
        if not -bound <= value < bound:
            raise OverflowError(f"Python int {value} too large to convert to {of}")
    return of


def scalar_type_of(x: Any) -> type:
    """The Python scalar type (bool, int, float, complex) of the elements of a value or dtype.

    >>> mpijax.dtypes.scalar_type_of(jnp.zeros(3, "bfloat16"))
    <class 'float'>
    """
    kind = python_type(dtype(x))
    if kind is None:
        raise TypeError(f"Invalid scalar value {x}")
    return kind


def coerce_to_array(x: Any, dtype: Any = None) -> np.ndarray:
    """Like `numpy.asarray`, but Python scalars get the default dtype of their kind."""
    if dtype is None and type(x) in python_scalar_dtypes:
        dtype = scalar_dtype(x)
    return np.asarray(x, dtype)
