"""Inspection of the namespace for the Python Array API standard: dtypes, devices, capabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes as _dtypes
from mpijax.core.base.option import values as options
from mpijax.runtime.arrays import devices

__array_api_version__ = "2024.12"

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_UNIONS = {
    "integral": ("signed integer", "unsigned integer"),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}
_X64 = frozenset(("int64", "uint64", "float64", "complex128"))


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """The dtypes, devices and capabilities of this namespace, as the Array API standard requires."""
    return ArrayNamespaceInfo()


class ArrayNamespaceInfo:
    """Dtypes, devices and capabilities of the namespace. 64-bit dtypes are listed while jax_enable_x64 is set."""

    def capabilities(self) -> dict[str, Any]:
        """Whether shapes may depend on data (under `jit` they may not), and the largest number of axes."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> None:
        """None, which stands for the default device."""
        return

    def devices(self) -> list[Any]:
        """All devices, and None for the default one."""
        return [None, *devices.devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """The dtypes of arrays made from Python numbers, and of indices."""
        real, integer = _dtypes.default_float_dtype(), _dtypes.default_int_dtype()
        return {
            "real floating": real,
            "complex floating": _dtypes.to_complex_dtype(real),
            "integral": integer,
            "indexing": integer,
        }

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype]:
        """The dtypes of some kinds, by name. Kinds are those of `isdtype`; default all.

        Raises:
          KeyError: an unknown kind.
        """
        kinds = ("bool", "numeric") if kind is None else (kind,) if isinstance(kind, str) else kind
        names = [name for k in kinds for part in _UNIONS.get(k, (k,)) for name in _KINDS[part]]
        return {name: np.dtype(name) for name in names if name not in _X64 or options.jax_enable_x64}
