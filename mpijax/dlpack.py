"""Arrays of other libraries without copying, by the DLPack protocol."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax._ext import dlpack
from mpijax.core import dtypes
from mpijax.core.sharding.shardings import Sharding
from mpijax.core.tracing.out_sharding import put
from mpijax.core.types.array_api import Array
from mpijax.core.types.avals import ShapedArray
from mpijax.runtime.arrays.array import from_numpy
from mpijax.runtime.arrays.devices import local_devices

__all__ = ["from_dlpack", "is_supported_dtype"]

_CPU = 1


class _Exporter:
    """Another library's array for `np.from_dlpack`: as unsigned integers if NumPy has no DLPack code for its dtype,
    which `dtype` then holds."""

    def __init__(self, array: Any):
        self._array = array
        self.dtype: np.dtype | None = None

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._array.__dlpack__(**options)
        self.dtype = dlpack.as_integers(capsule)
        return capsule


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Array:
    """An array that shares its memory with an array of another library (NumPy, PyTorch, CuPy's host arrays
    ...).

    Memory that is not C-contiguous, or not aligned for its dtype, is copied, and without jax_enable_x64 64-bit numbers
    become 32-bit ones; with `copy=False` that raises.
    Nobody may write into shared memory as long as the result is in use.

    Args:
      external_array: an array with `__dlpack__` and `__dlpack_device__`, of NumPy's dtypes, bfloat16 or an 8-bit
        floating-point format.
      device: the device of the result, or a sharding of one device. None leaves the result uncommitted.
      copy: True copies the memory; False raises an error if the memory cannot be shared.

    Raises:
      TypeError: for an object without the protocol, or in the memory of another device.
      ValueError: for a copy that `copy=False` forbids, or a sharding over several devices.

    >>> mpijax.dlpack.from_dlpack(np.arange(3.0, dtype="float32"))
    Array([0., 1., 2.], dtype=float32)
    """
    if isinstance(device, Sharding):
        if len(device.device_set) > 1:
            raise ValueError(
                "from_dlpack can only unpack a dlpack tensor onto a singular device, but a Sharding with "
                f"{len(device.device_set)} devices was provided."
            )
        (device,) = device.device_set
    if not hasattr(external_array, "__dlpack__") or not hasattr(external_array, "__dlpack_device__"):
        raise TypeError("The array passed to from_dlpack must have __dlpack__ and __dlpack_device__ methods.")
    kind, _ = external_array.__dlpack_device__()
    if kind != _CPU:
        raise TypeError(
            f"Array passed to from_dlpack is on unsupported device type (DLDeviceType: {int(kind)}). mpijax computes "
            "in host memory: copy the array there first."
        )
    source = local_devices()[0]
    if copy is False and device not in (None, source):
        raise ValueError(
            f"Specified {device=} which requires a copy since the source device is {source!r}, however copy=False. Set "
            "copy=True or copy=None to perform the requested operation."
        )
    exporter = _Exporter(external_array)
    view = np.from_dlpack(exporter)
    if exporter.dtype is not None:
        view = view.view(exporter.dtype)
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
    result = from_numpy(view.astype(dtype, copy=False), ShapedArray(view.shape, dtype), own)
    return result if device is None else put(result, device)


def is_supported_dtype(dtype: Any) -> bool:
    """Whether every DLPack consumer of today knows the dtype: bool, integers, bfloat16, float16 to float64, complex.

    `from_dlpack` and `__dlpack__` exchange 8-bit floating-point formats as well.

    >>> mpijax.dlpack.is_supported_dtype(jnp.float32)
    True
    """
    if dtype is None:
        raise TypeError(f"Expected a string or dtype-like object; got {dtype=}")
    dtype = np.dtype(dtype)
    return dtype == dtypes.bfloat16 or (dtype.kind in "biufc" and dtype.type.__module__ == "numpy")
