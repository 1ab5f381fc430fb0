"""``mpijax.sharding``: meshes and how arrays are sharded over them, by JAX's names."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as _np

from mpijax import missing as _missing
from mpijax.core.base import config as _config
from mpijax.core.sharding.abstract_mesh import AbstractDevice, AbstractMesh, AxisType
from mpijax.core.sharding.context import get_abstract_mesh, use_abstract_mesh
from mpijax.core.sharding.mesh import Mesh, set_mesh
from mpijax.core.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding
from mpijax.core.sharding.spec import PartitionSpec, UnreducedKind
from mpijax.core.types.avals import ManualAxisType
from mpijax.spmd.axis_modes import auto_axes, explicit_axes
from mpijax.spmd.reshard import reshard

__all__ = [
    "AbstractDevice",
    "AbstractMesh",
    "AxisType",
    "ManualAxisType",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "UnreducedKind",
    "auto_axes",
    "explicit_axes",
    "get_abstract_mesh",
    "get_mesh",
    "make_single_device_sharding",
    "reshard",
    "set_mesh",
    "use_abstract_mesh",
]


def get_mesh() -> Mesh:
    """The mesh of `set_mesh`; one without axes if there is none.

    >>> with mpijax.set_mesh(mpijax.make_mesh((1,), ("x",))):
    ...     mpijax.sharding.get_mesh().shape["x"]
    1
    """
    mesh = _config.current_mesh.value
    return Mesh(_np.empty((), object), ()) if mesh is None else mesh


def make_single_device_sharding(device: Any, *, memory_kind: str | None = None) -> SingleDeviceSharding:
    """The sharding of an array that lies on one device.

    >>> mpijax.sharding.make_single_device_sharding(mpijax.local_devices()[0]).shard_shape((4, 2))
    (4, 2)
    """
    return SingleDeviceSharding(device)


def __getattr__(name: str) -> NoReturn:
    raise _missing.error(__name__, name)
