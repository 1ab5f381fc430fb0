"""``jax.experimental.mesh_utils``: grids of devices, for `Mesh`. Ranks keep their order, because they have no torus."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax import missing as _missing
from mpijax.runtime.arrays.devices import devices as every

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """An array of devices, of shape `mesh_shape`, in the order of ranks. Neighbouring ranks are along the last axis.

    Args:
      mesh_shape: shape of the result.
      devices: default all devices, `mpijax.devices()`.
      contiguous_submeshes, allow_split_physical_axes: for other machines; they have no effect.

    Raises:
      ValueError: the size of `mesh_shape` is not the number of devices.

    >>> mpijax.experimental.mesh_utils.create_device_mesh((mpijax.device_count(), 1)).shape[1]
    1
    """
    shape = _sizes(mesh_shape)
    found = _devices(devices)
    if math.prod(shape) != len(found):
        raise ValueError(
            f"Number of devices {len(found)} must equal the product of mesh_shape {shape}. Start the program on "
            f"{math.prod(shape)} ranks, or pass that many devices."
        )
    return _array(found).reshape(shape)


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """One mesh from a mesh within each process and a mesh of processes; its shape is `mesh_shape * dcn_mesh_shape`.

    Without `process_is_granule`, devices of equal `slice_index` (a TPU slice) take the place of those of a process.

    Raises:
      ValueError: the shapes do not match the number of processes and of devices in each; or `process_is_granule=False`,
        and the devices have no `slice_index`.

    >>> inside, across = (mpijax.local_device_count(),), (mpijax.process_count(),)
    >>> mpijax.experimental.mesh_utils.create_hybrid_device_mesh(inside, across, process_is_granule=True).size > 0
    True
    """
    found = _devices(devices)
    granule = "process_index" if process_is_granule else "slice_index"
    if not hasattr(found[0], granule):
        raise ValueError(
            f"Device {found[0]} does not have attribute slice_index, which only TPUs have. Use "
            "process_is_granule=True: then the outer mesh consists of processes."
        )
    granules: dict[int, list[Any]] = {}
    for device in found:
        granules.setdefault(getattr(device, granule), []).append(device)
    order = sorted(granules) if should_sort_granules_by_key else list(granules)
    inner, outer = _sizes(mesh_shape), _sizes(dcn_mesh_shape)
    if math.prod(outer) != len(order):
        raise ValueError(
            f"Number of {'processes' if process_is_granule else 'slices'} {len(order)} must equal the product of "
            f"dcn_mesh_shape {outer}."
        )
    if len(inner) != len(outer):
        raise ValueError(f"mesh_shape {inner} and dcn_mesh_shape {outer} must have the same number of axes.")
    blocks = np.stack([create_device_mesh(inner, granules[g]) for g in order]).reshape(*outer, *inner)
    ndim = len(inner)
    mixed = blocks.transpose([axis for k in range(ndim) for axis in (k, k + ndim)])
    return mixed.reshape([a * b for a, b in zip(outer, inner)])


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(shape)
    if not all(isinstance(n, (int, np.integer)) for n in sizes):
        raise ValueError(f"`mesh_shape` passed to `create_device_mesh` should be a sequence of ints. Got {shape}")
    return tuple(int(n) for n in sizes)


def _devices(devices: Sequence[Any] | None) -> list[Any]:
    if devices is not None:
        return list(devices)

    return every()


def _array(devices: list[Any]) -> np.ndarray:
    out = np.empty(len(devices), dtype=object)
    out[:] = devices
    return out


def __getattr__(name: str):
    raise _missing.error(__name__, name)
