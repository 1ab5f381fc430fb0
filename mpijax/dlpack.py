"""Arrays of other libraries without copying, by the DLPack protocol."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.types.array_api import Array
from mpijax.core.types.avals import ShapedArray
from mpijax.runtime.arrays.array import from_numpy

__all__ = ["from_dlpack", "is_supported_dtype"]

_CPU = 1


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Array:
    """An array that shares its memory with an array of another library (NumPy, PyTorch, CuPy's host arrays
    ...).

    Memory that is not C-contiguous, or not aligned for its dtype, is copied, and without jax_enable_x64 64-bit numbers
    become 32-bit ones; with `copy=False` that raises.
    Nobody may write into shared memory as long as the result is in use.

    Raises:
      TypeError: for an object without the protocol, or in the memory of another device.
      ValueError: for a copy that `copy=False` forbids.

    >>> mpijax.dlpack.from_dlpack(np.arange(3.0, dtype="float32"))
    Array([0., 1., 2.], dtype=float32)
    """
    if not hasattr(external_array, "__dlpack__") or not hasattr(external_array, "__dlpack_device__"):
        raise TypeError("The array passed to from_dlpack must have __dlpack__ and __dlpack_device__ methods.")
    kind, _ = external_array.__dlpack_device__()
    if kind != _CPU:
        raise TypeError(
            f"Array passed to from_dlpack is on unsupported device type (DLDeviceType: {int(kind)}). mpijax computes "
            "in host memory: copy the array there first."
        )
    view = np.from_dlpack(external_array)
    usable = view.flags.c_contiguous and view.flags.aligned
    if copy is False and not usable:
        raise ValueError(
            f"from_dlpack with copy=False: the array of shape {view.shape} and strides {view.strides} is not "
            "C-contiguous"
        )
    dtype = dtypes.canonicalize_dtype(view.dtype)
    if copy is False and dtype != view.dtype:
        raise ValueError(
            f"from_dlpack with copy=False: without jax_enable_x64, {view.dtype} becomes {dtype}, which needs a copy"
        )
    own = bool(copy) or not usable or dtype != view.dtype
    return from_numpy(view.astype(dtype, copy=False), ShapedArray(view.shape, dtype), own)


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of the dtype can be exchanged: bool, integers, float16 to float64, complex.

    >>> mpijax.dlpack.is_supported_dtype(jnp.float32)
    True
    """
    dtype = np.dtype(dtype)
    return dtype.kind in "biufc" and dtype.type.__module__ == "numpy"
