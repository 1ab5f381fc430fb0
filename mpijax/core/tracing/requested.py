"""Checks shardings that callers request, and completes them with the mesh in context."""

from __future__ import annotations

import math
from typing import Any

from mpijax.core.base.state import state
from mpijax.core.sharding.context import context_mesh, get_abstract_mesh
from mpijax.core.sharding.format import Format
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.types.avals import NO_AXES
from mpijax.core.types.typeof import typeof


def named_sharding(
    layout: Any, what: str, name: str, of: Any = None, needs_devices: bool = True
) -> NamedSharding | None:
    """The NamedSharding for a layout given by users: a sharding, a PartitionSpec over the mesh in context, or None.

    A layout over an `AbstractMesh`, such as `typeof(x).sharding`, gets the mesh in context, or that of the array `of`.
    A traced value's devices are known only when the program is compiled, so with `needs_devices` false the layout may
    stay abstract.

    Raises RuntimeError for a PartitionSpec without a mesh in context, ValueError for an AbstractMesh whose axes differ
    from those meshes, TypeError for anything else.
    """
    if isinstance(layout, Format):
        layout = layout.sharding
    if isinstance(layout, NamedSharding):
        if layout.mesh.empty:
            raise ValueError(
                f"One of {what} leaf specifications got an empty NamedSharding: {layout} which is not allowed."
            )
        return layout if isinstance(layout.mesh, Mesh) else _over_mesh_of(layout, what, name, of, needs_devices)
    if layout is None:
        return layout
    if isinstance(layout, PartitionSpec):
        mesh = context_mesh() or get_abstract_mesh()
        if mesh.empty:
            raise RuntimeError(
                f"{name} requires a non-empty mesh in context if you are passing `PartitionSpec`s to {what}. You can "
                "define a context mesh via `jax.set_mesh(mesh)`. Alternatively, provide `Sharding`s to "
                f"{what} and then the mesh context manager is not required."
            )
        return NamedSharding(mesh, layout)
    if isinstance(layout, Sharding):
        return None  # one device, so no axis is split
    raise TypeError(
        f"{what} leaf specifications are expected to be PartitionSpec instances or None, but got {layout} of type "
        f"{type(layout).__name__}"
    )


def _over_mesh_of(layout: NamedSharding, what: str, name: str, of: Any, needs_devices: bool) -> NamedSharding:
    known = context_mesh()
    if known is not None and known.shape_tuple == layout.mesh.shape_tuple:
        return NamedSharding(known, layout.spec)
    if not needs_devices:
        return layout
    if of is None:
        raise ValueError(
            f"{name}: {what} got {layout}. Its mesh has no devices, and the context mesh ({known}) does not have its "
            "axes. Enter `jax.set_mesh(mesh)`, or use a sharding over a Mesh."
        )
    if isinstance(of, Tracer):
        return layout
    of_shape = f"for shape {typeof(of).str_short(False)}"
    held = getattr(of, "sharding", None)
    if held is None:
        raise ValueError(
            f"{name}: Target sharding contains a `jax.sharding.AbstractMesh` which requires the input passed should be "
            f"a `jax.Array`. Got {type(of)} {of_shape}"
        )
    if not isinstance(held, NamedSharding):
        raise TypeError(
            f"{name}: The sharding on the input must be a `NamedSharding` since the target sharding has an "
            f"`AbstractMesh` in it. Got sharding type {type(held)} {of_shape}"
        )
    if held.mesh.shape_tuple != layout.mesh.shape_tuple:
        raise ValueError(
            f"{name}: Mesh shape of the input {held.mesh.shape_tuple} does not match the mesh shape of the target "
            f"sharding {layout.mesh.shape_tuple} {of_shape}"
        )
    return NamedSharding(held.mesh, layout.spec)


def over_devices(out_sharding: Any, name: str) -> Any:
    """`out_sharding`, with the mesh in context instead of an `AbstractMesh` (which array types have); None without such
    a mesh, on one device. Raises ValueError for an AbstractMesh with a kind of memory."""
    if not isinstance(out_sharding, NamedSharding) or isinstance(out_sharding.mesh, Mesh):
        return out_sharding
    check_memory(out_sharding)
    alone = out_sharding.mesh.empty or context_mesh() is None
    return None if alone else named_sharding(out_sharding, "out_sharding", name)


def check_memory(layout: NamedSharding) -> None:
    """Raise ValueError for a layout with a kind of memory and no devices."""
    if layout.memory_kind is not None and not isinstance(layout.mesh, Mesh):
        raise ValueError(
            "sharding with memory_kind is not allowed. Please use `jax.device_put` to transfer to different memory "
            f"spaces. Got sharding={layout}"
        )


def sharding_of(given: Any, name: str) -> Any:
    """The sharding for a sharding, a device or a PartitionSpec."""
    if isinstance(given, PartitionSpec):
        return named_sharding(given, "shardings", name)
    return given if isinstance(given, Sharding) else SingleDeviceSharding(given)


def check_explicit(layout: NamedSharding, mesh: Any, name: str) -> None:
    """Raise ValueError for a layout that names axes that are not Explicit, which types do not contain."""
    for a in (*layout.spec.all_axes(), *layout.spec.unreduced, *layout.spec.reduced):
        if a not in mesh.explicit_axes:
            kind = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))[a]
            raise ValueError(
                f"PartitionSpec passed to {name} cannot contain axis names that are of type Auto or Manual. Got "
                f"PartitionSpec: {layout.spec} with axis name: {a} of type: AxisType.{kind.name}. Use "
                "with_sharding_constraint for those."
            )


def check_not_mapped(layout: NamedSharding, name: str) -> None:
    """Raise ValueError for a layout over an axis that the enclosing `shard_map` maps: a shard is not split over it."""
    manual = NO_AXES if state.body is None else state.body[1]
    mapped = [a for a in layout.spec.all_axes() if a in manual]
    if mapped:
        raise ValueError(
            f"{name}: {layout.spec} contains a manual axes {mapped} of mesh {layout.mesh}. The enclosing shard_map "
            "maps over them. Its body can only shard values over the other axes of the mesh."
        )


def fitted(layout: NamedSharding, aval, what: str) -> NamedSharding:
    """A requested layout, without entries of None for more axes than the array has. Raises ValueError if it does not
    fit."""
    spec = layout.spec
    if len(spec) > aval.ndim and not any(spec[aval.ndim :]):
        layout = layout.update(spec=spec.update(partitions=tuple(spec)[: aval.ndim]))
    check_fits(layout, aval, what)
    return layout


def check_fits(layout: NamedSharding, aval, what: str, strict: bool = True) -> None:
    """Raise ValueError for an array with fewer axes than the layout, or (strict) one that it does not divide evenly."""
    if len(layout.spec) > aval.ndim:
        raise ValueError(
            f"{what} is incompatible with its sharding annotation {layout}: Sharding {layout} is only valid for values "
            f"of rank at least {len(layout.spec)}, but was applied to a value of rank {aval.ndim}."
        )
    if not strict:
        return
    for dim, size in enumerate(aval.shape):
        parts = math.prod(layout.mesh.shape[a] for a in layout.spec.axes_of(dim))
        if size % parts:
            raise ValueError(
                f"{what}: Sharding {layout} implies that array axis {dim} is partitioned {parts} times, but the "
                f"dimension size is {size} (full shape: {aval.shape}), and parts should evenly divide the shape. Pad "
                "the array, or do not shard that axis: use None in the PartitionSpec."
            )
