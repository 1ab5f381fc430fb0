"""Dtypes: the element types of arrays, their kinds and names, and which dtype a value or an operation has.

JAX's rules, which differ from NumPy's in three ways: 64-bit types become 32-bit unless ``jax_enable_x64`` is on,
Python scalars are weakly typed and adapt to the arrays beside them, and promotion follows the lattice of
`mpijax.core.promotion`. Besides NumPy's there are the types of ml_dtypes (bfloat16, 8-bit floats, 4-bit integers, ...)
and extended dtypes (PRNG keys), see `mpijax.core.extended`.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import ml_dtypes
import numpy as np

from mpijax.core import promotion
from mpijax.core.extended import ExtendedDType, PRNGKeyDtype, extended, prng_key
from mpijax.core.option import values as _options
from mpijax.core.promotion import TypePromotionError

__all__ = ["ExtendedDType", "PRNGKeyDtype", "TypePromotionError", "extended", "prng_key"]

bfloat16 = ml_dtypes.bfloat16
float8_e3m4 = ml_dtypes.float8_e3m4
float8_e4m3 = ml_dtypes.float8_e4m3
float8_e4m3b11fnuz = ml_dtypes.float8_e4m3b11fnuz
float8_e4m3fn = ml_dtypes.float8_e4m3fn
float8_e4m3fnuz = ml_dtypes.float8_e4m3fnuz
float8_e5m2 = ml_dtypes.float8_e5m2
float8_e5m2fnuz = ml_dtypes.float8_e5m2fnuz
float8_e8m0fnu = ml_dtypes.float8_e8m0fnu
float6_e2m3fn = ml_dtypes.float6_e2m3fn
float6_e3m2fn = ml_dtypes.float6_e3m2fn
float4_e2m1fn = ml_dtypes.float4_e2m1fn
int2, int4, uint2, uint4 = ml_dtypes.int2, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.uint4

# The tangent of values that have none (integers, bool): an element takes no memory.
float0 = np.dtype([("float0", np.void, 0)])

finfo = ml_dtypes.finfo
iinfo = ml_dtypes.iinfo
can_cast = np.can_cast

_BOOL, _I32, _I64, _U32, _U64, _F32, _F64, _C64, _C128 = map(
    np.dtype, ("bool", "int32", "int64", "uint32", "uint64", "float32", "float64", "complex64", "complex128")
)
_NARROWED = {_I64: _I32, _U64: _U32, _F64: _F32, _C128: _C64}

# The dtype of each Python scalar type while 64-bit types are on.
python_scalar_dtypes: dict[type, np.dtype] = {bool: _BOOL, int: _I64, float: _F64, complex: _C128}

# Everything an array can be made of.
valid_dtypes = frozenset([float0, *promotion.STRONG])


# -- kinds ------------------------------------------------------------------------------------------------------------


def _custom_parents() -> dict[type, frozenset[type]]:
    """ml_dtypes' scalar types derive from np.generic directly: the kinds that each belongs to."""
    parents = {}
    for dtypes, kinds in (
        (promotion.CUSTOM_FLOAT, (np.floating, np.inexact)),
        (promotion.NARROW_SIGNED, (np.signedinteger, np.integer)),
        (promotion.NARROW_UNSIGNED, (np.unsignedinteger, np.integer)),
    ):
        for dtype in dtypes:
            parents[dtype.type] = frozenset([dtype.type, *kinds, np.number, np.generic])
    return parents


_PARENTS = _custom_parents()


def _scalar_class(x: Any) -> type:
    if isinstance(x, type) and issubclass(x, np.generic):
        return x
    return x.type if isinstance(x, ExtendedDType) else np.dtype(x).type


@functools.lru_cache(4096)
def _issubdtype(a: Any, b: Any) -> bool:
    if isinstance(b, ExtendedDType):
        return a == b
    a, b = _scalar_class(a), _scalar_class(b)
    return b in _PARENTS[a] if a in _PARENTS else issubclass(a, b)


def issubdtype(a: Any, b: Any) -> bool:
    """Whether dtype `a` is `b` or of the kind `b`: `numpy.issubdtype` that knows the types of ml_dtypes and `extended`.

    Args:
        a: a dtype, scalar type, name, or None (float64, as in NumPy).
        b: the same, or an abstract scalar type such as `numpy.floating`, `prng_key`.
    """
    try:
        return _issubdtype(a, b)
    except TypeError:
        # Unhashable objects that have a dtype; what is no dtype at all raises here.
        return _issubdtype(
            a if isinstance(a, (type, ExtendedDType)) else np.dtype(a),
            b if isinstance(b, (type, ExtendedDType)) else np.dtype(b),
        )


_KINDS: dict[str, frozenset[np.dtype]] = {
    "bool": frozenset(promotion.BOOL),
    "signed integer": frozenset(promotion.SIGNED),
    "unsigned integer": frozenset(promotion.UNSIGNED),
    "integral": frozenset(promotion.SIGNED + promotion.UNSIGNED),
    "real floating": frozenset(promotion.FLOAT),
    "complex floating": frozenset(promotion.COMPLEX),
    "numeric": frozenset(promotion.SIGNED + promotion.UNSIGNED + promotion.FLOAT + promotion.COMPLEX),
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind of the array API standard.

    Args:
        kind: "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric",
            a dtype (for equality), or a tuple of these (for any).
    """
    wanted: set[np.dtype] = set()
    for entry in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(entry, str) and entry in _KINDS:
            wanted |= _KINDS[entry]
            continue
        try:
            wanted.add(np.dtype(entry))
        except TypeError as e:
            if isinstance(entry, str):
                raise ValueError(
                    f"Unrecognized kind={entry!r} expected one of {list(_KINDS)}, or a compatible input for jnp.dtype()"
                ) from None
            raise TypeError(f"Expected kind to be a dtype, string, or tuple; got kind={entry!r}") from e
    return np.dtype(dtype) in wanted


def scalar_type_of(x: Any) -> type:
    """The Python scalar type (bool, int, float, complex) of the elements of a value or dtype."""
    of = python_type(dtype(x))
    if of is None:
        raise TypeError(f"Invalid scalar value {x}")
    return of


_PYTHON_TYPES: dict[np.dtype, type] = {
    **dict.fromkeys(promotion.BOOL, bool),
    **dict.fromkeys(promotion.SIGNED + promotion.UNSIGNED, int),
    **dict.fromkeys(promotion.FLOAT, float),
    **dict.fromkeys(promotion.COMPLEX, complex),
}


def python_type(dtype: np.dtype | ExtendedDType) -> type | None:
    """bool, int, float or complex for a dtype object; None for one that is no number (float0, keys)."""
    return _PYTHON_TYPES.get(dtype)


def supports_inf(dtype: Any) -> bool:
    """Whether the dtype has an infinity."""
    return issubdtype(dtype, np.inexact) and bool(np.isinf(np.asarray(np.inf, dtype)))


def itemsize_bits(dtype: Any) -> int:
    """Bits of one element: 4 for int4; 8 for bool, which takes a byte."""
    if dtype is None:
        raise ValueError("dtype cannot be None.")
    if issubdtype(dtype, np.bool_):
        return 8
    if issubdtype(dtype, np.integer):
        return iinfo(dtype).bits
    if issubdtype(dtype, np.complexfloating):
        return 2 * finfo(dtype).bits
    if issubdtype(dtype, np.floating):
        return finfo(dtype).bits
    raise ValueError(f"unexpected input: dtype={dtype}")


@functools.cache
def short_name(dtype: np.dtype | ExtendedDType) -> str:
    """The name in printed programs: f32, bf16, i32, u8, c64, bool, f8_e4m3fn, float0, key<fry>."""
    if isinstance(dtype, ExtendedDType):
        return dtype.name
    if dtype == float0:
        return "float0"
    name = dtype.name
    for long, short in (("uint", "u"), ("int", "i"), ("float", "f"), ("complex", "c")):
        name = name.replace(long, short)
    return name


# -- 64-bit types -----------------------------------------------------------------------------------------------------


def default_int_dtype() -> np.dtype:
    """int32, or int64 while ``jax_enable_x64`` is on; so for the three below."""
    return _I64 if _options.jax_enable_x64 else _I32


def default_uint_dtype() -> np.dtype:
    return _U64 if _options.jax_enable_x64 else _U32


def default_float_dtype() -> np.dtype:
    return _F64 if _options.jax_enable_x64 else _F32


def default_complex_dtype() -> np.dtype:
    return _C128 if _options.jax_enable_x64 else _C64


_DEFAULTS = {
    bool: lambda: _BOOL,
    int: default_int_dtype,
    float: default_float_dtype,
    complex: default_complex_dtype,
}


def _as_dtype(x: Any) -> np.dtype:
    try:
        return np.dtype(x)
    except TypeError as e:
        raise TypeError(f"dtype {x!r} not understood") from e


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """The dtype that arrays asked for `dtype` have: 64-bit becomes 32-bit unless ``jax_enable_x64`` is on.

    Silent; what a user wrote goes through `check_user_dtype_supported`, which warns.
    """
    if not isinstance(dtype, np.dtype):
        if issubdtype(dtype, extended):
            if allow_extended_dtype:
                return dtype
            raise ValueError(f"canonicalize_dtype called on extended dtype {dtype} with allow_extended_dtype=False")
        dtype = _as_dtype(dtype)
    return dtype if _options.jax_enable_x64 else _NARROWED.get(dtype, dtype)


def _canonicalize_requested(dtype: np.dtype, fun_name: str) -> np.dtype:
    """Canonicalise a dtype that was asked for by name, as ``jax_explicit_x64_dtypes`` says."""
    if dtype not in _NARROWED or _options.jax_enable_x64:
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
    narrowed = _NARROWED[dtype]
    warnings.warn(
        f"Explicitly requested dtype {dtype}{where} is not available, and will be truncated to dtype {narrowed}. To "
        "enable more dtypes, set the jax_enable_x64 configuration option or the JAX_ENABLE_X64 shell environment "
        "variable. See https://github.com/jax-ml/jax#current-gotchas for more.",
        stacklevel=4,
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
    """
    if isinstance(dtype, np.dtype) and dtype in valid_dtypes:
        return _canonicalize_requested(dtype, fun_name or "")
    if dtype is None:
        raise ValueError("dtype must be specified.")
    if isinstance(dtype, np.ndarray) or hasattr(dtype, "aval"):
        raise ValueError(
            "Passing an array as a dtype argument is no longer supported; instead of dtype=arr use dtype=arr.dtype."
        )
    if isinstance(dtype, ExtendedDType):
        return dtype
    if isinstance(dtype, type) and dtype in _DEFAULTS:
        return _DEFAULTS[dtype]()
    asked = np.dtype(dtype)
    if asked not in valid_dtypes:
        where = f" in {fun_name}" if fun_name else ""
        raise TypeError(f"JAX only supports number and bool dtypes, got dtype {dtype}{where}")
    return _canonicalize_requested(asked, fun_name or "")


def jax_dtype(obj: Any, *, align: bool = False, copy: bool = False) -> Any:
    """`numpy.dtype` with the defaults of arrays: float is float32, None is float32 (or 64-bit, see jax_enable_x64)."""
    if obj is None:
        return default_float_dtype()
    if isinstance(obj, ExtendedDType):
        return obj
    if isinstance(obj, type) and obj in _DEFAULTS:
        return _DEFAULTS[obj]()
    return np.dtype(obj, align=align, copy=copy)


# -- the dtype of values ----------------------------------------------------------------------------------------------


def is_python_scalar(x: Any) -> bool:
    """Whether x is exactly a bool, int, float or complex; NumPy's scalars are not."""
    return type(x) in python_scalar_dtypes


def is_weak(x: Any) -> bool:
    """Whether x adapts to the dtype of what it is combined with: Python numbers, and arrays made of them only."""
    if type(x) in promotion.WEAK:
        return True
    aval = getattr(x, "aval", None)
    return aval is not None and getattr(aval, "weak_type", False)


def dtype(x: Any) -> Any:
    """The dtype of a value, or the dtype that a type, name or dtype object stands for, with 64-bit types canonical.

    Arrays and traced values (what has an ``aval``) keep the dtype they have.

    Raises:
        TypeError: arrays cannot hold x.
        ValueError: x is None.
    """
    kind = type(x)
    if kind in python_scalar_dtypes:
        return _DEFAULTS[kind]()
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval.dtype
    if isinstance(x, np.dtype):
        return _checked(x, x) if x in _NARROWED or x not in valid_dtypes else x
    if isinstance(x, ExtendedDType):
        return x
    if x is None:
        raise ValueError(f"Invalid argument to dtype: {x}.")
    if isinstance(x, type):
        if x in _DEFAULTS:
            return _DEFAULTS[x]()
        if issubclass(x, np.generic):
            return _canonicalize_requested(np.dtype(x), "dtype")
    elif isinstance(x, str):
        return _checked(np.dtype(x), x)
    found = getattr(x, "dtype", None)
    if isinstance(found, ExtendedDType):
        return found
    if not isinstance(found, np.dtype):
        try:
            found = np.result_type(x)
        except TypeError as e:
            raise TypeError(f"Cannot determine dtype of {x}") from e
    _check_of_value(found, x)
    return found if _options.jax_enable_x64 else _NARROWED.get(found, found)


def _checked(found: np.dtype, x: Any) -> np.dtype:
    _check_of_value(found, x)
    return _canonicalize_requested(found, "dtype")


def _check_of_value(found: np.dtype, x: Any) -> None:
    if found not in valid_dtypes:
        raise TypeError(
            f"Value '{x}' with dtype {found} is not a valid JAX array type. "
            "Only arrays of numeric types are supported by JAX."
        )


def scalar_dtype(x: Any, value: Any = None) -> np.dtype:
    """The dtype of a Python scalar, or of a Python scalar type (then `value` may be one to check).

    Raises:
        OverflowError: an int that the default integer type cannot hold.
    """
    kind, value = (x, value) if isinstance(x, type) else (type(x), x)
    of = _DEFAULTS[kind]()
    if kind is int and value is not None:
        bits = of.itemsize * 8 - 1
        if not -(1 << bits) <= value < 1 << bits:
            raise OverflowError(f"Python int {value} too large to convert to {of}")
    return of


def coerce_to_array(x: Any, dtype: Any = None) -> np.ndarray:
    """`numpy.asarray`, where Python scalars get the default dtype of their kind."""
    if dtype is None and type(x) in python_scalar_dtypes:
        dtype = scalar_dtype(x)
    return np.asarray(x, dtype)


# -- promotion --------------------------------------------------------------------------------------------------------


def promote_types(a: Any, b: Any) -> np.dtype:
    """The dtype that operands of the dtypes `a` and `b` are brought to; int, float, complex are weak, as in JAX."""
    return np.dtype(
        promotion.join(
            _options.jax_numpy_dtype_promotion == "strict",
            _options.jax_enable_x64,
            *(t if any(t is weak for weak in promotion.WEAK) else np.dtype(t) for t in (a, b)),
        )
    )


@functools.lru_cache(16384)
def _join_pairs(strict: bool, x64: bool, *pairs: tuple[Any, bool]) -> tuple[Any, bool]:
    """(dtype, weak) of each operand -> (promotion node, weak) of the result."""
    found = [dtype for dtype, _ in pairs]
    all_weak = all(weak for _, weak in pairs)
    if len(pairs) == 1 or (not all_weak and found.count(found[0]) == len(found)):
        return found[0], all_weak
    if all_weak and not strict:
        # Joined as if strong: two weak int16 (an int16 array is weak after lax ops on Python scalars) stay int16.
        return promotion.join(strict, x64, *found), True
    nodes = [(python_type(dtype) if weak and dtype != _BOOL else dtype) for dtype, weak in pairs]
    node = promotion.join(strict, x64, *nodes)
    return node, isinstance(node, type)


def _pair(x: Any) -> tuple[Any, bool]:
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval.dtype, aval.weak_type if hasattr(aval, "weak_type") else False
    return dtype(x), type(x) in promotion.WEAK or any(x is weak for weak in promotion.WEAK)


def lattice_result_type(*args: Any) -> tuple[Any, bool]:
    """(dtype, weak_type) of an operation on values, dtypes and types `args`.

    The dtype of a weak result is the joined one (a weak int16 stays int16); `result_type` gives its default instead.
    """
    return join_dtypes(*map(_pair, args))


def join_dtypes(*pairs: tuple[Any, bool]) -> tuple[Any, bool]:
    """As `lattice_result_type`, on (dtype, weak_type) pairs: for callers that hold avals."""
    node, weak = _join_pairs(_options.jax_numpy_dtype_promotion == "strict", _options.jax_enable_x64, *pairs)
    if len(pairs) > 1 and (node in _NARROWED or isinstance(node, type)):
        node = dtype(node)
    return node, weak and node != _BOOL


# Results for dtype objects (never values, whose equality says nothing of their type).
_KNOWN: dict[tuple, np.dtype] = {}


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype of an operation on values, dtypes and types `args` (None stands for the default float).

    Returns:
        The dtype, or (dtype, weak_type) if `return_weak_type_flag`.
    """
    if not args:
        raise ValueError("at least one array or dtype is required")
    of, weak = lattice_result_type(*[default_float_dtype() if arg is None else arg for arg in args])
    if weak:
        of = _DEFAULTS[python_type(of)]()
    return (of, weak) if return_weak_type_flag else of


def safe_to_cast(source: Any, target: Any) -> bool:
    """Whether promotion would turn `source` (a value or dtype) into the dtype of `target`."""
    source_dtype, target_dtype = dtype(source), dtype(target)
    return source_dtype == target_dtype or result_type(source, target_dtype) == target_dtype


def to_numeric_dtype(dtype: Any) -> np.dtype:
    """int32 for bool, any other dtype unchanged."""
    of = np.dtype(dtype)
    return _I32 if of == _BOOL else of


def to_inexact_dtype(dtype: Any) -> np.dtype:
    """The dtype of sin(x): float32 for bool and integers (float64 for 64-bit ones), any other unchanged."""
    of = np.dtype(dtype)
    if python_type(of) in (bool, int):
        return _F64 if of.itemsize == 8 else _F32
    return of


def to_floating_dtype(dtype: Any) -> np.dtype:
    """The dtype of abs(sin(x)): as `to_inexact_dtype`, and the real dtype of a complex one."""
    return finfo(to_inexact_dtype(dtype)).dtype


def to_complex_dtype(dtype: Any) -> np.dtype:
    """The dtype of fft(x): complex128 for 64-bit types (and complex128), else complex64."""
    return _C128 if to_inexact_dtype(dtype) in (_F64, _C128) else _C64
