"""Decides the sharding of results that no argument determines: the mesh of `set_mesh`, or the default device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from mpijax.core.base import config
from mpijax.core.sharding.context import context_mesh
from mpijax.core.sharding.shardings import NamedSharding, SingleDeviceSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.runtime.arrays.devices import Device, devices, local_devices


def default_sharding() -> Any:
    """The sharding of results whose arguments are all uncommitted; None: on the first device."""
    return _shardings(config.trace_key())[0]


def default_place() -> Any:
    """The sharding of new uncommitted arrays, which a mesh does not affect; None: on the first device."""
    return _shardings(config.trace_key())[1]


@lru_cache(maxsize=256)
def _shardings(_options: int) -> tuple[Any, Any]:
    """Default sharding and default place under the current options."""
    return over_mesh(config.placing_mesh.value) or _on_default_device(), _on_default_device()


def over_mesh(mesh: Any) -> Any:
    """Replicated over the devices of a mesh; None if every process has one device, where arrays have no sharding."""
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
