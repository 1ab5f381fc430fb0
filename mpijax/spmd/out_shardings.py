"""`out_sharding`: the layout that a caller requests for one result."""

from __future__ import annotations

from typing import Any

from mpijax.core.sharding.context import context_mesh, get_abstract_mesh, of_sharding
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.types.typeof import typeof
from mpijax.spmd.axis_modes import auto_axes
from mpijax.spmd.constraints import check_explicit, check_memory, fitted, mesh_types, named_sharding, over_devices
from mpijax.spmd.reshard import lay_out


def explicit_layout(out_sharding: Any, name: str) -> NamedSharding | None:
    """A requested layout, if it is over a mesh with Explicit axes, in the form of a primitive's parameter.

    Raises ValueError for a PartitionSpec without a mesh in context, for a layout over another mesh than that, that
    names axes of other types, or that has a kind of memory and no devices; TypeError for anything but a layout.
    """
    if out_sharding is None:
        return None
    context = get_abstract_mesh()
    if isinstance(out_sharding, PartitionSpec):
        if context.empty:
            raise ValueError(
                "Using PartitionSpec when you are not under a mesh context is not allowed. Please pass a NamedSharding "
                f"instance or enter into a mesh context via `jax.set_mesh`. Got {out_sharding}"
            )
        layout = NamedSharding(context, out_sharding)
    elif isinstance(out_sharding, NamedSharding):
        layout = out_sharding
    else:
        raise TypeError(
            f"`out_sharding` argument of {name} only supports instances of `NamedSharding` or `PartitionSpec`. Got "
            f"{out_sharding} of type: {type(out_sharding)}"
        )
    if layout.mesh.empty:
        return None
    check_memory(layout)
    mesh = layout.mesh.abstract_mesh
    if not (context.empty or context == mesh or (context.are_all_axes_auto and mesh.are_all_axes_auto)):
        raise ValueError(f"Context mesh {context} should match the mesh of sharding {mesh} passed to {name}.")
    check_explicit(layout, mesh, name)
    return NamedSharding(mesh, layout.spec) if mesh.is_explicit else None


def over_context_mesh(layout: Any) -> bool:
    """Whether a layout, or a PartitionSpec, is over the mesh in context and that mesh has Explicit axes."""
    mesh, types = context_mesh(), get_abstract_mesh()
    return mesh is not None and types.is_explicit and getattr(layout, "mesh", mesh) in (mesh, types)


def laid_out_inside(fun: Any, args: tuple, kwargs: dict, layout: NamedSharding, given: Any) -> Any:
    """The result of a function in a layout over Explicit axes, which are Auto inside the function.

    given: the caller's layout, whose mesh may have devices.
    """
    asked = given if isinstance(given, NamedSharding) else layout
    return auto_axes(fun, axes=layout.mesh.abstract_mesh.explicit_axes, out_sharding=asked)(*args, **kwargs)


def _says_something(out_sharding: Any) -> bool:
    is_spec = isinstance(out_sharding, PartitionSpec)
    return out_sharding is not None and not (is_spec and get_abstract_mesh().empty and not out_sharding.all_axes())


def lay_result_out(x: Any, out_sharding: Any, name: str) -> Any:
    """The result `x` of the function `name` in a layout: a sharding, or a PartitionSpec over the mesh in context.

    Raises RuntimeError for a PartitionSpec without a mesh in context, ValueError for a layout that does not fit.
    """
    if not _says_something(out_sharding):
        return x
    layout = named_sharding(over_devices(out_sharding, name), "out_sharding", name)
    if layout is None:
        return x
    aval = typeof(x)
    layout = fitted(layout, aval, f"The result of {name}")
    if aval.split is not None and aval.split == of_sharding(layout.update(mesh=mesh_types(layout.mesh)), aval.ndim):
        return x
    return lay_out(x, layout)
