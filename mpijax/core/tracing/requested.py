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
    given: Any, what: str, name: str, of: Any = None, needs_devices: bool = True
) -> NamedSharding | None:
    """The NamedSharding for what users give: a sharding, a PartitionSpec over the mesh in context, or None.

    An `AbstractMesh`, as in `typeof(x).sharding`, has no devices. The mesh in context replaces it, or else the mesh of
    the array `of`. The devices of a traced value are known only when the program is compiled: if `needs_devices` is
    false, the mesh may stay abstract.

    Raises RuntimeError for a PartitionSpec without a mesh in context, ValueError for an AbstractMesh whose axes differ
    from those meshes, TypeError for anything else.
    """
    sharding = given.sharding if isinstance(given, Format) else given
    if isinstance(sharding, NamedSharding):
        if sharding.mesh.empty:
            raise ValueError(
                f"One of {what} leaf specifications got an empty NamedSharding: {sharding} which is not allowed."
            )
        return sharding if isinstance(sharding.mesh, Mesh) else _over_mesh_of(sharding, what, name, of, needs_devices)
    if sharding is None:
        return sharding
    if isinstance(sharding, PartitionSpec):
        mesh = context_mesh() or get_abstract_mesh()
        if mesh.empty:
            raise RuntimeError(
                f"{name} requires a non-empty mesh in context if you are passing `PartitionSpec`s to {what}. You can "
                "define a context mesh via `jax.set_mesh(mesh)`. Alternatively, provide `Sharding`s to "
                f"{what} and then the mesh context manager is not required."
            )
        return NamedSharding(mesh, sharding)
    if isinstance(sharding, Sharding):
        return None  # one device, so no axis is split
    raise TypeError(
        f"{what} leaf specifications are expected to be PartitionSpec instances or None, but got {sharding} of type "
        f"{type(sharding).__name__}"
    )


def _over_mesh_of(sharding: NamedSharding, what: str, name: str, of: Any, needs_devices: bool) -> NamedSharding:
    known = context_mesh()
    if known is not None and known.shape_tuple == sharding.mesh.shape_tuple:
        return NamedSharding(known, sharding.spec)
    if not needs_devices:
        return sharding
    if of is None:
        raise ValueError(
            f"{name}: {what} got {sharding}. Its mesh has no devices, and the context mesh ({known}) does not have its "
            "axes. Enter `jax.set_mesh(mesh)`, or use a sharding over a Mesh."
        )
    if isinstance(of, Tracer):
        return sharding
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
    if held.mesh.shape_tuple != sharding.mesh.shape_tuple:
        raise ValueError(
            f"{name}: Mesh shape of the input {held.mesh.shape_tuple} does not match the mesh shape of the target "
            f"sharding {sharding.mesh.shape_tuple} {of_shape}"
        )
    return NamedSharding(held.mesh, sharding.spec)


def over_devices(out_sharding: Any, name: str) -> Any:
    """`out_sharding`, with the mesh in context instead of an `AbstractMesh` (which array types have); None without such
    a mesh, on one device. Raises ValueError for an AbstractMesh with a kind of memory."""
    if not isinstance(out_sharding, NamedSharding) or isinstance(out_sharding.mesh, Mesh):
        return out_sharding
    check_memory(out_sharding)
    alone = out_sharding.mesh.empty or context_mesh() is None
    return None if alone else named_sharding(out_sharding, "out_sharding", name)


def check_memory(sharding: NamedSharding) -> None:
    """Raise ValueError for a sharding with a kind of memory and no devices."""
    if sharding.memory_kind is not None and not isinstance(sharding.mesh, Mesh):
        raise ValueError(
            "sharding with memory_kind is not allowed. Please use `jax.device_put` to transfer to different memory "
            f"spaces. Got sharding={sharding}"
        )


def sharding_of(given: Any, name: str) -> Any:
    """The sharding for a sharding, a device or a PartitionSpec."""
    if isinstance(given, PartitionSpec):
        return named_sharding(given, "shardings", name)
    return given if isinstance(given, Sharding) else SingleDeviceSharding(given)


def check_explicit(sharding: NamedSharding, mesh: Any, name: str) -> None:
    """Raise ValueError for a sharding that names axes that are not Explicit, which types do not contain."""
    for a in (*sharding.spec.all_axes(), *sharding.spec.unreduced, *sharding.spec.reduced):
        if a not in mesh.explicit_axes:
            kind = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))[a]
            raise ValueError(
                f"PartitionSpec passed to {name} cannot contain axis names that are of type Auto or Manual. Got "
                f"PartitionSpec: {sharding.spec} with axis name: {a} of type: AxisType.{kind.name}. Use "
                "with_sharding_constraint for those."
            )


def check_not_mapped(sharding: NamedSharding, name: str) -> None:
    """Raise ValueError for a sharding over an axis that the enclosing `shard_map` maps: no shard is split over it."""
    manual = NO_AXES if state.body is None else state.body[1]
    mapped = [a for a in sharding.spec.all_axes() if a in manual]
    if mapped:
        raise ValueError(
            f"{name}: {sharding.spec} contains a manual axes {mapped} of mesh {sharding.mesh}. The enclosing shard_map "
            "maps over them. Its body can only shard values over the other axes of the mesh."
        )


def fitted(sharding: NamedSharding, aval, what: str) -> NamedSharding:
    """A requested sharding, without entries of None for more axes than the array has. Raises ValueError if it does not
    fit."""
    spec = sharding.spec
    if len(spec) > aval.ndim and not any(spec[aval.ndim :]):
        sharding = sharding.update(spec=spec.update(partitions=tuple(spec)[: aval.ndim]))
    check_fits(sharding, aval, what)
    return sharding


def check_fits(sharding: NamedSharding, aval, what: str, strict: bool = True) -> None:
    """Raise ValueError for an array with fewer axes than the spec, or (strict) one that it does not divide evenly."""
    if len(sharding.spec) > aval.ndim:
        raise ValueError(
            f"{what} is incompatible with its sharding annotation {sharding}: Sharding {sharding} is only valid for "
            f"values of rank at least {len(sharding.spec)}, but was applied to a value of rank {aval.ndim}."
        )
    if not strict:
        return
    for dim, size in enumerate(aval.shape):
        parts = math.prod(sharding.mesh.shape[a] for a in sharding.spec.axes_of(dim))
        if size % parts:
            raise ValueError(
                f"{what}: Sharding {sharding} implies that array axis {dim} is partitioned {parts} times, but the "
                f"dimension size is {size} (full shape: {aval.shape}), and parts should evenly divide the shape. Pad "
                "the array, or do not shard that axis: use None in the PartitionSpec."
            )
