"""Where results lie of which no argument says it: over the mesh of `set_mesh`, or on the default device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from mpijax.core import config
from mpijax.core.sharding.context import context_mesh
from mpijax.core.sharding.shardings import NamedSharding, SingleDeviceSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.runtime.arrays.devices import Device, devices, local_devices


def default_layout() -> Any:
    """The layout of what programs make of arguments that were put nowhere; None: on the first device."""
    return _layouts(config.trace_key())[0]


def default_place() -> Any:
    """The layout of arrays that are put nowhere, which a mesh does not change; None: on the first device."""
    return _layouts(config.trace_key())[1]


@lru_cache(maxsize=256)
def _layouts(_options: int) -> tuple[Any, Any]:
    """Both, of the options in force."""
    return over_mesh(config.placing_mesh.value) or _on_default_device(), _on_default_device()


def over_mesh(mesh: Any) -> Any:
    """Whole on each device of a mesh; None where every process has one device, and arrays carry nothing of the sort."""
    if mesh is None or not mesh.is_local:
        return None

    return NamedSharding(context_mesh() or mesh, PartitionSpec())


def _on_default_device() -> Any:
    device = config.default_device.value
    if device is None:
        return None
    here = local_devices()
    if not isinstance(device, Device):
        device = devices(device)[0]
    if device not in here[1:]:
        return None

    return SingleDeviceSharding.by_default(device)
