"""The stored form of a leaf: array elements in Zarr; types, and Python's own values, in the metadata."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpijax._ext.array import ArrayBase
from mpijax.checkpointing.errors import CheckpointError
from mpijax.core import dtypes
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.dtypes.extended import PRNGKeyDtype

# Zarr's own types; others are stored as unsigned integers of the same size.
NATIVE = frozenset(
    """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128""".split()
)
_NAMES = {d.name: d for d in dtypes.valid_dtypes if d != dtypes.float0}
_KINDS = ("jax", "numpy")


@dataclass(frozen=True)
class ArrayLeaf:
    """An array. shape, dtype: as the program sees them; for PRNG keys, dtype is the generator's name.

    kind: "jax" or "numpy". words: the shape of one PRNG key in words. array: its name in the group.
    """

    array: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    weak: bool = False
    words: tuple[int, ...] | None = None

    @property
    def stored_shape(self) -> tuple[int, ...]:
        return self.shape + (self.words or ())

    @property
    def stored_dtype(self) -> np.dtype:
        return np.dtype(np.uint32) if self.words is not None else stored_dtype(_NAMES[self.dtype])

    @property
    def numpy_dtype(self) -> np.dtype:
        """The NumPy dtype of the elements in memory."""
        return np.dtype(np.uint32) if self.words is not None else _NAMES[self.dtype]

    @property
    def nbytes(self) -> int:
        return math.prod(self.stored_shape) * self.stored_dtype.itemsize

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        out: dict[str, Any] = {"array": self.array, "kind": self.kind, "shape": [*self.shape], "dtype": self.dtype}
        if self.weak:
            out["weak"] = True
        if self.words is not None:
            out["words"] = [*self.words]
        return out


def stored_dtype(dtype: np.dtype) -> np.dtype:
    """The Zarr type for a NumPy type: its own, or an unsigned integer of the same size."""
    return dtype if dtype.name in NATIVE else np.dtype(f"uint{8 * dtype.itemsize}")


def describe_array(x: Any, name: str, where: str) -> ArrayLeaf:
    """The entry of an mpijax or NumPy array. TypeError for unsupported element types."""
    kind = "jax" if isinstance(x, ArrayBase) else "numpy"
    dtype, weak = x.dtype, bool(getattr(x, "weak_type", False))
    shape = tuple(x.shape)
    if isinstance(dtype, PRNGKeyDtype):
        return ArrayLeaf(name, kind, shape, dtype.impl.name, words=dtype.physical_shape)
    if not isinstance(dtype, np.dtype) or dtype.name not in _NAMES:
        raise TypeError(f"a checkpoint cannot hold {where}, an array of {dtype}")
    return ArrayLeaf(name, kind, shape, dtype.name, weak)


def describe_value(x: Any, where: str) -> dict[str, Any]:
    """A Python scalar or string as JSON; infinities and NaN as strings. TypeError for other objects."""
    kind = type(x)
    if kind in (bool, int, str):
        return {kind.__name__: x}
    if kind is float:
        return {"float": x if math.isfinite(x) else repr(x)}
    if kind is complex:
        return {"complex": [part if math.isfinite(part) else repr(part) for part in (x.real, x.imag)]}
    raise TypeError(
        f"A checkpoint can hold arrays, Python scalars, str and None, but {where} is a "
        f"{kind.__module__}.{kind.__qualname__}. Leave it out of the tree, or register its class as a pytree node."
    )


def parse(entry: Any) -> ArrayLeaf | dict[str, Any]:
    """An entry of the metadata, checked. CheckpointError for anything `plain` and `describe_value` do not write."""
    if isinstance(entry, dict) and "array" in entry:
        leaf = _parse_array(entry)
        if leaf is not None:
            return leaf
    elif isinstance(entry, dict) and len(entry) == 1:
        [(kind, value)] = entry.items()
        ok = {
            "bool": isinstance(value, bool), "int": isinstance(value, int), "str": isinstance(value, str),
            "float": _is_float(value),
            "complex": isinstance(value, list) and len(value) == 2 and all(map(_is_float, value)),
        }  # fmt: skip
        if ok.get(kind):
            return entry
    raise CheckpointError(f"the metadata contains an invalid leaf: {str(entry)[:200]}")


def value_of(entry: dict[str, Any]) -> Any:
    """The Python value of an entry."""
    [(kind, value)] = entry.items()
    if kind == "complex":
        return complex(*map(float, value))
    return float(value) if kind == "float" else value


def _is_float(x: Any) -> bool:
    return x in ("nan", "inf", "-inf") if isinstance(x, str) else isinstance(x, (int, float))


def _sizes(x: Any) -> tuple[int, ...] | None:
    """Sizes of axes; None for anything but a list of sizes."""
    fits = isinstance(x, list) and len(x) <= 64 and all(type(n) is int and 0 <= n < 1 << 48 for n in x)
    return tuple(x) if fits else None


def _parse_array(entry: dict[str, Any]) -> ArrayLeaf | None:
    shape, words = _sizes(entry.get("shape")), entry.get("words")
    kind, dtype, weak = entry.get("kind"), entry.get("dtype"), entry.get("weak", False)
    name = entry["array"]
    if words is not None:
        words = _sizes(words)
        if words is None or math.prod(words) > 64 or not isinstance(dtype, str):
            return None
    elif not (isinstance(dtype, str) and dtype in _NAMES):
        return None
    if shape is None or kind not in _KINDS or not isinstance(weak, bool) or not isinstance(name, str):
        return None
    return ArrayLeaf(name, kind, shape, dtype, weak, words)
