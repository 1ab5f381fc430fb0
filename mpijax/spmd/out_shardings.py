"""`out_sharding`: the sharding that a caller requests for one result."""

from __future__ import annotations

from typing import Any

from mpijax.core.sharding.context import get_abstract_mesh, mesh_types, of_sharding
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing.requested import fitted, named_sharding, over_devices
from mpijax.core.types.typeof import typeof
from mpijax.spmd.axis_modes import auto_axes
from mpijax.spmd.reshard import with_sharding


def under_auto_axes(fun: Any, args: tuple, kwargs: dict, sharding: NamedSharding, given: Any) -> Any:
    """The result of a function in a sharding over Explicit axes, which are Auto inside the function.

    given: the caller's sharding, whose mesh may have devices.
    """
    asked = given if isinstance(given, NamedSharding) else sharding
    return auto_axes(fun, axes=sharding.mesh.abstract_mesh.explicit_axes, out_sharding=asked)(*args, **kwargs)


def _says_something(out_sharding: Any) -> bool:
    is_spec = isinstance(out_sharding, PartitionSpec)
    return out_sharding is not None and not (is_spec and get_abstract_mesh().empty and not out_sharding.all_axes())


def with_out_sharding(x: Any, out_sharding: Any, name: str) -> Any:
    """The result `x` of the function `name` in a sharding, or in a PartitionSpec over the mesh in context.

    Raises RuntimeError for a PartitionSpec without a mesh in context, ValueError for a sharding that does not fit.
    """
    if not _says_something(out_sharding):
        return x
    sharding = named_sharding(over_devices(out_sharding, name), "out_sharding", name)
    if sharding is None:
        return x
    aval = typeof(x)
    sharding = fitted(sharding, aval, f"The result of {name}")
    if aval.split is not None and aval.split == of_sharding(sharding.update(mesh=mesh_types(sharding.mesh)), aval.ndim):
        return x
    return with_sharding(x, sharding)
