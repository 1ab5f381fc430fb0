"""``mpijax.sharding``: meshes and how arrays are laid out over them, by JAX's names."""

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
    "AxisType",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "set_mesh",
]
