"""`out_sharding`: the layout that a caller asks for of one result."""

from __future__ import annotations

from typing import Any

from mpijax.core.trace import typeof
from mpijax.spmd.abstract_mesh import context_mesh
from mpijax.spmd.constraints import check_fits, lay_out, named_sharding
from mpijax.spmd.mesh import Mesh, NamedSharding, PartitionSpec


def lay_result_out(x: Any, out_sharding: Any, name: str) -> Any:
    """The result `x` of the function `name` in a layout: a sharding, or a PartitionSpec over the mesh in context.

    Raises RuntimeError for a PartitionSpec without a mesh in context, ValueError for a layout that does not fit.
    """
    if isinstance(out_sharding, PartitionSpec) and not out_sharding.all_axes() and context_mesh() is None:
        return x
    layout = named_sharding(over_devices(out_sharding, name), "out_sharding", name)
    if layout is None:
        return x
    aval = typeof(x)
    check_fits(layout, aval, f"The result of {name}")
    return lay_out(x, layout.update(spec=layout.spec.padded(aval.ndim)) if layout.mesh.is_explicit else layout)


def over_devices(out_sharding: Any, name: str) -> Any:
    """`out_sharding`, over the mesh in context where it is over an `AbstractMesh`, such as the type of an array says;
    None without such a mesh: on one device."""
    if not isinstance(out_sharding, NamedSharding) or isinstance(out_sharding.mesh, Mesh):
        return out_sharding
    alone = out_sharding.mesh.empty or context_mesh() is None
    return None if alone else named_sharding(out_sharding, "out_sharding", name)
