"""``mpijax.sharding``: meshes and how arrays are laid out over them, by JAX's names."""

from mpijax.spmd.abstract_mesh import AbstractMesh, get_abstract_mesh
from mpijax.spmd.constraints import reshard
from mpijax.spmd.mesh import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
    set_mesh,
)

__all__ = [
    "AbstractMesh",
    "AxisType",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "get_abstract_mesh",
    "reshard",
    "set_mesh",
]
