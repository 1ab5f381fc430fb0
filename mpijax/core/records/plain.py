"""Converts values to plain data and back: JSON, with a tag where JSON would lose the type.

    3, "x", True, None, 2.5          themselves
    (1, 2)                           ["t", 1, 2]
    numpy.dtype("float32")           ["d", "float32"]
    Ref(buffer=3, offset=8)          ["r", class number, 3, 8]

Records are dataclasses, named tuples and enums of mpijax, and mpijax classes that define their own data (`_plain_`,
`_from_plain_`). Reading creates values and runs nothing else: no class outside mpijax, no function. The data may come
from anybody: malformed data raises an Exception before it takes much memory.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import provided
from mpijax.core.shapes.dimensions import DimExpr
from mpijax.core.types.array_api import is_whole
from mpijax.core.types.avals import ShapedArray

_SCALARS = frozenset((int, bool, str, type(None)))
_PACKAGE = "mpijax."
# Limits of a type: NumPy's limit on axes, and a size in bytes that no machine has but that fits 64-bit numbers.
_LARGEST_RANK, _LARGEST_SIZE = 64, 1 << 48
_TYPES = {t.__name__: t for t in (bool, int, float, complex)}


class NotSerializable(NotImplementedError):
    """A value that is not data: a function, a handle, an object of a class outside mpijax."""


def refuse(x: Any, where: str) -> NoReturn:
    """Raise NotSerializable for x, with a workaround."""
    kind = f"{type(x).__module__}.{type(x).__qualname__}"
    if callable(x) and not isinstance(x, type):
        raise NotSerializable(
            f"{where} holds the Python function {getattr(x, '__qualname__', x)!r}, which cannot be serialised: only "
            "data is written, never code. Call the function outside of the exported program, or replace the "
            "callback by operations of mpijax.numpy and mpijax.lax."
        )
    raise NotSerializable(
        f"{where} holds {x!r} of type {kind}, which cannot be serialised. Numbers, strings, dtypes, tuples, arrays and "
        "mpijax's own records can be; pass anything else as an argument of the exported program."
    )


class Writer:
    """Converts values to plain data. Types, sources and classes go into tables; arrays into `blobs`."""

    def __init__(self) -> None:
        self.avals: dict[ShapedArray, int] = {}
        self.records: dict[type, int] = {}
        self.blobs: list[bytes] = []
        self.where = "the program"

    def value(self, x: Any) -> Any:
        """x as plain data. Raises NotSerializable."""
        kind = type(x)
        if kind in _SCALARS:
            return x
        write = _WRITERS.get(kind)
        if write is not None:
            return write(self, x)
        return self.other(x, kind)

    def values(self, xs) -> list[Any]:
        scalars = _SCALARS
        return [x if type(x) in scalars else self.value(x) for x in xs]

    def other(self, x: Any, kind: type) -> Any:
        """A value whose class is not in the table of writers."""
        if isinstance(x, np.dtype):
            return ["d", _dtype_name(x)]
        if isinstance(x, np.generic):
            return ["n", _dtype_name(x.dtype), x.tobytes().hex()]
        if isinstance(x, type):
            return self._type(x)
        if kind.__module__.startswith(_PACKAGE):
            if hasattr(x, "_plain_"):
                return ["r", self._record(kind), *self.values(x._plain_())]
            if isinstance(x, enum.Enum):
                return ["r", self._record(kind), x.name]
            if isinstance(x, tuple) and hasattr(kind, "_fields"):
                return ["r", self._record(kind), *self.values(x)]
            if dataclasses.is_dataclass(kind):
                return ["r", self._record(kind), *self.values([getattr(x, name) for name in _fields(kind)])]
        if hasattr(x, "aval") and hasattr(x, "_physical"):
            return self.array(x)
        refuse(x, self.where)

    def _type(self, x: type) -> Any:
        if x in _TYPES.values():
            return ["y", x.__name__]
        if issubclass(x, np.generic):
            return ["y", np.dtype(x).name]
        refuse(x, self.where)

    def aval(self, a: ShapedArray) -> int:
        """The number of a type in the table."""
        return self.avals.setdefault(a, len(self.avals))

    def _record(self, kind: type) -> int:
        return self.records.setdefault(kind, len(self.records))

    def array(self, x: Any) -> Any:
        """An array, as a reference to its bytes."""
        if not is_whole(x):
            raise NotSerializable(
                f"{self.where} contains a constant array of type {x.aval.str_short(True)} that is sharded over ranks. "
                "Pass it as an argument of the exported program."
            )
        data = np.ascontiguousarray(x if isinstance(x, np.ndarray) else x._physical)
        aval = None if isinstance(x, np.ndarray) else self.aval(x.aval)
        self.blobs.append(data.tobytes())
        return ["a", aval, self.value(data.dtype), list(np.shape(x)) if aval is None else list(data.shape)]

    def tables(self) -> dict[str, Any]:
        """The tables that the numbers refer to. Call it last."""
        avals = []
        for a in self.avals:
            extra = [a.weak_type, self.values(sorted(a.vma, key=str))] if a.weak_type or a.vma or a.split else []
            extra += [self.value(a.split)] if a.split else []
            avals.append([self.value(a.dtype), self.values(a.shape), *extra])
        names = [f"{k.__module__}:{k.__qualname__}" for k in self.records]
        return {"types": avals, "records": names}


def _fields(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind))


_WRITERS: dict[type, Callable[[Writer, Any], Any]] = {
    float: lambda w, x: x,
    tuple: lambda w, x: ["t", *w.values(x)],
    list: lambda w, x: ["l", *w.values(x)],
    dict: lambda w, x: ["m", *[item for pair in x.items() for item in w.values(pair)]],
    frozenset: lambda w, x: ["f", *w.values(sorted(x, key=str))],
    complex: lambda w, x: ["c", x.real, x.imag],
    bytes: lambda w, x: ["b", x.hex()],
    slice: lambda w, x: ["s", *w.values((x.start, x.stop, x.step))],
    range: lambda w, x: ["g", x.start, x.stop, x.step],
    type(Ellipsis): lambda w, x: ["e"],
    ShapedArray: lambda w, x: ["v", w.aval(x)],
    np.ndarray: lambda w, x: w.array(x),
}


def register_writer(kind: type, write: Callable[[Writer, Any], Any]) -> None:
    """Register the writer for another class."""
    _WRITERS[kind] = write


class Reader:
    """Converts plain data to values.

    packages: packages that may define the classes of records.
    """

    packages: tuple[str, ...] = (_PACKAGE,)

    def __init__(self, tables: dict[str, Any], blobs: list[memoryview]):
        self.blobs = iter(blobs)
        self.records = [_resolve(name, self.packages) for name in tables["records"]]
        self.avals = [self._aval(*a) for a in tables["types"]]

    def _aval(self, dtype, shape, weak=False, vma=(), split=None) -> ShapedArray:
        of, dims = self.value(dtype), tuple(map(self.value, shape))
        _check_type(of, dims)
        return ShapedArray(dims, of, weak, frozenset(map(self.value, vma)), self.value(split))

    def value(self, x: Any) -> Any:
        return _READERS[x[0]](self, x) if type(x) is list else x

    def values(self, xs) -> list[Any]:
        return [_READERS[x[0]](self, x) if type(x) is list else x for x in xs]

    def record(self, x: list) -> Any:
        make = self.records[x[1]]
        return make(*[_READERS[v[0]](self, v) if type(v) is list else v for v in x[2:]])

    def array(self, x: list) -> Any:
        _, aval, dtype, shape = x
        data = np.frombuffer(next(self.blobs), self.value(dtype)).reshape(shape)
        if data.dtype == np.bool_ and data.view(np.uint8).max(initial=0) > 1:
            raise ValueError("an array of bools has bytes other than 0 and 1")
        return data.copy() if aval is None else provided.from_numpy(data, self.avals[aval], True)


def _check_type(dtype: Any, shape: tuple[Any, ...]) -> None:
    """Raise ValueError for a type that arrays cannot have."""
    if not isinstance(dtype, (np.dtype, dtypes.ExtendedDType)):
        raise ValueError(f"{dtype!r} is not a dtype")
    sizes = [d for d in shape if not isinstance(d, DimExpr)]
    if any(type(d) is not int or d < 0 for d in sizes):
        raise ValueError(f"{shape} is not a shape: each size must be an int of at least 0")
    if len(shape) > _LARGEST_RANK or math.prod(max(d, 1) for d in sizes) * dtype.itemsize > _LARGEST_SIZE:
        raise ValueError(f"an array of shape {shape} is too large, or has more than {_LARGEST_RANK} axes")


def _dtype_name(dtype: np.dtype) -> str:
    return "float0" if dtype == dtypes.float0 else dtype.name


_DTYPES = {_dtype_name(d): d for d in dtypes.valid_dtypes}


def _dtype(name: str) -> Any:
    return _DTYPES[name]


def _scalar(name: str, data: bytes) -> Any:
    return np.frombuffer(data, _dtype(name))[0] if data else np.zeros((), _dtype(name))[()]


_READERS: dict[str, Callable[[Reader, list], Any]] = {
    "t": lambda r, x: tuple(r.values(x[1:])),
    "l": lambda r, x: r.values(x[1:]),
    "m": lambda r, x: dict(zip(r.values(x[1::2]), r.values(x[2::2]), strict=True)),
    "f": lambda r, x: frozenset(r.values(x[1:])),
    "c": lambda r, x: complex(x[1], x[2]),
    "b": lambda r, x: bytes.fromhex(x[1]),
    "s": lambda r, x: slice(*r.values(x[1:])),
    "g": lambda r, x: range(x[1], x[2], x[3]),
    "e": lambda r, x: Ellipsis,
    "v": lambda r, x: r.avals[x[1]],
    "a": Reader.array,
    "d": lambda r, x: _dtype(x[1]),
    "n": lambda r, x: _scalar(x[1], bytes.fromhex(x[2])),
    "y": lambda r, x: _TYPES.get(x[1]) or _dtype(x[1]).type,
    "r": Reader.record,
}


def register_reader(tag: str, read: Callable[[Reader, list], Any]) -> None:
    """Register the reader for another tag."""
    _READERS[tag] = read


def _resolve(name: str, packages: tuple[str, ...]) -> Callable:
    """The constructor of the record class with this name, which must be in one of the packages."""
    module, _, qualname = name.partition(":")
    if not f"{module}.".startswith(packages) or "." in qualname:
        raise ValueError(f"{name!r} is not a record of mpijax")
    found = getattr(importlib.import_module(module), qualname, None)
    if not isinstance(found, type) or found.__module__ != module:
        raise ValueError(f"{name!r} is not a record of this version of mpijax")
    if hasattr(found, "_from_plain_"):
        return found._from_plain_
    if issubclass(found, enum.Enum):
        return found.__members__.__getitem__  # not the class's own: words of a StrEnum can be indexed, too
    if dataclasses.is_dataclass(found) or (issubclass(found, tuple) and hasattr(found, "_fields")):
        return found
    raise ValueError(f"{name!r} is not a record of mpijax")
