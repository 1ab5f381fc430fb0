"""Shardings that the program asks for: `with_sharding_constraint`, `reshard`, and this rank's part of an array."""

from __future__ import annotations

import math

from mpijax.compiler.sharding import explicit, partition
from mpijax.compiler.sharding.blocks import sharding_over, split_of
from mpijax.core import provided
from mpijax.core.memory_space import DEVICE, Space
from mpijax.core.sharding.shardings import SingleDeviceSharding


def laid_out(builder, eqn, v, source):
    """A value in a layout that the program asks for."""
    kind, layout = eqn.primitive.lower.kind, eqn.params[eqn.primitive.lower.param]
    if kind == "reshard":
        return explicit.resharded(builder, v, layout, eqn.params["concrete_mesh"], source)
    if kind == "constraint":
        return _constrained(builder, v, layout, source)
    if builder.meshes:
        raise NotImplementedError("pmap and arrays of one host within the body of a shard_map: call them outside of it")
    if kind == "from_local":
        whole_here = builder.whole(v, source)
        return partition.marked(builder, whole_here, layout, False, source)
    shard = partition.relaid(builder, v, layout, source)
    return partition.copied(builder, shard, source) if partition.blocks_of(builder, shard) is not None else shard


def _constrained(builder, v, layout, source):
    """A value laid out as `with_sharding_constraint` says; within bodies there is nothing to lay out."""
    if builder.meshes:
        return v
    if isinstance(layout, Space):
        layout = _in_memory(partition.layout_held(builder, v), layout.kind)
        return v if layout is None else partition.marked(builder, v, layout, False, source)
    if not hasattr(layout, "mesh"):  # one device
        return partition.marked(builder, builder.whole(v, source), layout, False, source)
    if layout.mesh is layout.mesh.abstract_mesh:
        devices = explicit.devices_known(builder, layout.mesh)
        if devices is None:
            return v
        layout = layout.update(mesh=devices)
    first = len(builder.graph.nodes)
    split = _possible(builder, v, layout)
    if layout.spec.unconstrained_dims or split != split_of(layout, len(split)):
        layout = sharding_over(layout.mesh, split)
    out = partition.relaid(builder, v, layout, source)
    made = {id(o) for node in builder.graph.nodes[first:] for o in node.outputs}
    return partition.marked(builder, out, layout, id(out) in made, source)


def devices_of(builder, layout):
    """The mesh of several processes that a constraint is over; None where that is no matter of propagation."""
    mesh = getattr(layout, "mesh", None)
    if mesh is not None and mesh is mesh.abstract_mesh:
        mesh = explicit.devices_known(builder, mesh)
    if mesh is None or not mesh.is_multi_process or mesh.is_explicit or mesh.coordinates() is None:
        return None
    return mesh


def _in_memory(held, kind: str | None):
    """A layout in another kind of memory; None where that changes nothing."""
    if kind is None or (held is None and kind == DEVICE):
        return None
    return (held or SingleDeviceSharding(provided.local_devices()[0])).with_memory_kind(kind)


def _possible(builder, v, layout) -> tuple[tuple, ...]:
    """What a constraint asks for, where it goes: free axes stay split as they are, odd ones stay whole."""
    shape, sizes = partition.global_aval(builder, v).shape, layout.mesh.shape
    have = partition.layout_held(builder, v)
    held = ((),) * len(shape) if getattr(have, "mesh", None) != layout.mesh else split_of(have, len(shape))
    free, named = layout.spec.unconstrained_dims, set(layout.spec.all_axes())
    return tuple(
        (held[d] if not named & set(held[d]) else ()) if d in free
        else axes if n % math.prod(sizes[a] for a in axes) == 0 else ()
        for d, (n, axes) in enumerate(zip(shape, split_of(layout, len(shape)), strict=True))
    )  # fmt: skip
