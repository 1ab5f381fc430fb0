"""Encodes the types and attributes of a C call as int64 words, which `mpijax/ffi.h` reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.lazy_dataclass import dataclass

VERSION = 1
_CODES = {
    name: code
    for code, name in enumerate(
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128 "
        "string int2 int4 uint2 uint4 float4_e2m1fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn "
        "float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu".split(),
        start=1,
    )
}


@dataclass(frozen=True, repr=False)
class HashableArray:
    """An array attribute, compared by its elements."""

    dtype: np.dtype
    shape: tuple[int, ...]
    data: bytes

    @staticmethod
    def of(x: np.ndarray) -> HashableArray:
        return HashableArray(x.dtype, x.shape, x.tobytes())

    @property
    def val(self) -> np.ndarray:
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)

    def __repr__(self) -> str:
        return f"HashableArray({self.val!r})"


def attributes_of(given: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Attributes, hashable and sorted by name. An entry of a dict has the names of both, joined by a dot.

    Raises TypeError for a value that C cannot receive, ValueError for two values of one name.
    """
    found: dict[str, Any] = {}
    for name, value in _entries("", given):
        if isinstance(value, np.ndarray):
            value = HashableArray.of(value)
        elif isinstance(value, (list, set, bytearray)):
            raise TypeError(f"Non-hashable keyword argument to ffi_call {name}: {value}. Pass a NumPy array.")
        _encoded(name, value)
        if name in found:
            raise ValueError(f"ffi_call has two values for attribute {name}: {found[name]} and {value}.")
        found[name] = value
    return tuple(sorted(found.items()))


def _entries(prefix: str, given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values of a dict, and of the dicts in it."""
    for key, value in given.items():
        if not isinstance(key, str):
            raise TypeError(f"ffi_call: the keys of attribute {prefix[:-1]} must be strings, got {key!r}.")
        if isinstance(value, dict):
            yield from _entries(f"{prefix}{key}.", value)
        else:
            yield prefix + key, value


def _encoded(name: str, value: Any) -> tuple[int, int, bytes]:
    """Type, number of elements, and bytes of an attribute."""
    if isinstance(value, str):
        text = value.encode()
        return _CODES["string"], len(text), text + b"\0"
    if isinstance(value, HashableArray):
        code = _CODES.get(value.dtype.name, 0)
        if code:
            return code, value.val.size, value.data
    if isinstance(value, np.generic) and value.dtype.name in _CODES:  # those of ml_dtypes are none of NumPy's numbers
        value = float(value) if dtypes.issubdtype(value.dtype, np.floating) else value.item()
    if isinstance(value, (bool, int)) and -(2**63) <= int(value) < 2**63:
        return _CODES["int64"], 1, np.int64(value).tobytes()
    if isinstance(value, float):
        return _CODES["float64"], 1, np.float64(value).tobytes()
    raise TypeError(
        f"attribute {name} of ffi_call must be a bool, an integer of 64 bits, a float, a string, a NumPy array of "
        f"numbers, or a dict of these, got {value!r} of type {type(value).__name__}. Pass computed values as arguments."
    )


def words(types: Sequence[Any], num_args: int, attributes: Sequence[tuple[str, Any]]) -> tuple[int, ...]:
    """The words of a call on operands and results of the given types (with shape and dtype)."""
    head = [VERSION, num_args, len(types) - num_args, len(attributes)]
    table: list[int] = []
    rest: list[int] = []
    start = len(head) + len(types) + 4 * len(attributes)

    def placed(data: list[int]) -> int:
        place = start + len(rest)
        rest.extend(data)
        return place

    for t in types:
        code = _CODES.get(t.dtype.name, 0)
        table.append(placed([code, len(t.shape), t.size, *t.shape]))
    for name, value in attributes:
        code, count, data = _encoded(name, value)
        table += [placed(_as_words(name.encode() + b"\0")), code, count, placed(_as_words(data))]
    return (*head, *table, *rest)


def _as_words(data: bytes) -> list[int]:
    return np.frombuffer(data + bytes(-len(data) % 8), np.int64).tolist()
