"""Lists all dtypes, with their kinds and names.

These are NumPy's types, the types of ml_dtypes (bfloat16, 8-bit floats, 4-bit integers, ...) and extended dtypes (PRNG
keys). The types of ml_dtypes are outside NumPy's class hierarchy, so this module answers questions such as "is it an
integer?".
"""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from mpijax.core.dtypes import promotion
from mpijax.core.dtypes.extended import ExtendedDType

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

# The tangent dtype of values without tangents (integers, bool). An element takes no memory.
float0 = np.dtype([("float0", np.void, 0)])

finfo = ml_dtypes.finfo
iinfo = ml_dtypes.iinfo

# Every dtype that an array can have.
valid_dtypes = frozenset([float0, *promotion.STRONG])


def _custom_parents() -> dict[type, frozenset[type]]:
    """The kinds of each scalar type of ml_dtypes. These types derive from np.generic directly."""
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
    """Whether dtype `a` is `b` or of kind `b`. Like `numpy.issubdtype`, but knows ml_dtypes and `extended`.

    Args:
        a: a dtype, scalar type, name, or None (float64, as in NumPy).
        b: the same, or an abstract scalar type such as `numpy.floating`, `prng_key`.

    >>> mpijax.dtypes.issubdtype(jnp.bfloat16, np.floating)
    True
    """
    try:
        return _issubdtype(a, b)
    except TypeError:
        # Unhashable objects that have a dtype. Objects that are not dtypes raise here.
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
    """Whether a dtype has a kind of the array API standard.

    Args:
        kind: "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating",
            "numeric", a dtype (for equality), or a tuple of these (for any).

    >>> jnp.isdtype(jnp.bfloat16, "real floating"), jnp.isdtype(jnp.int8, ("bool", "unsigned integer"))
    (True, False)
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
                    f"Unrecognized kind={entry!r} expected one of {list(_KINDS)}, "
                    "or a compatible input for jnp.dtype()"
                ) from None
            raise TypeError(f"Expected kind to be a dtype, string, or tuple; got kind={entry!r}") from e
    return np.dtype(dtype) in wanted


_PYTHON_TYPES: dict[np.dtype | ExtendedDType, type] = {
    **dict.fromkeys(promotion.BOOL, bool),
    **dict.fromkeys(promotion.SIGNED + promotion.UNSIGNED, int),
    **dict.fromkeys(promotion.FLOAT, float),
    **dict.fromkeys(promotion.COMPLEX, complex),
}


def python_type(dtype: np.dtype | ExtendedDType) -> type | None:
    """bool, int, float or complex for a dtype object; None for one that is not a number (float0, keys)."""
    return _PYTHON_TYPES.get(dtype)


def supports_inf(dtype: Any) -> bool:
    """Whether the dtype has an infinity."""
    return issubdtype(dtype, np.inexact) and bool(np.isinf(np.asarray(np.inf, dtype)))


def out_of_bounds(dtype: Any) -> Any:
    """The value of a read outside an array: NaN, the extreme integer that marks an invalid read, or True.

    >>> mpijax.core.dtypes.out_of_bounds(np.dtype("int8"))
    -128
    """
    if issubdtype(dtype, np.inexact):
        return np.nan
    if issubdtype(dtype, np.signedinteger):
        return iinfo(dtype).min
    if issubdtype(dtype, np.unsignedinteger):
        return iinfo(dtype).max
    return out_of_bounds(dtype.physical_dtype) if isinstance(dtype, ExtendedDType) else True


def itemsize_bits(dtype: Any) -> int:
    """Bits of one element: 4 for int4, 8 for bool.

    >>> mpijax.dtypes.itemsize_bits("int4")
    4
    """
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
