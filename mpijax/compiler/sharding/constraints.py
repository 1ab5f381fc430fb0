"""Applies shardings that the program requests: `with_sharding_constraint`, `reshard`, and host-local arrays."""

from __future__ import annotations

import math

from mpijax.compiler.sharding import explicit
from mpijax.compiler.sharding.blocks import sharding_over, split_of
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.compiler.sharding.redistribute import gathered, redistributed
from mpijax.core.base import provided
from mpijax.core.sharding.memory_space import DEVICE, Space
from mpijax.core.sharding.shardings import SingleDeviceSharding


def with_requested_sharding(p: Partitioner, eqn, v, source) -> list:
    """A value in the layout that the program requests; no result if the program only inspects the layout."""
    kind, layout = eqn.primitive.lower.kind, eqn.params[eqn.primitive.lower.param]
    if hasattr(layout, "mesh") and layout.mesh.stands_in:
        layout = layout.update(mesh=p.on_devices_of_values(layout.mesh))
    if kind == "inspect":
        p.known.inspected.append((layout, p.sharding_in_use(v)))
        return []
    return [_laid_out(p, eqn, v, kind, layout, source)]


def show(p: Partitioner, other) -> None:
    """Call the functions that inspect shardings. other: the layout of values without one."""
    for callback, layout in p.known.inspected:
        callback(layout or other or SingleDeviceSharding(provided.local_devices()[0]))


def _laid_out(p: Partitioner, eqn, v, kind: str, layout, source):
    if kind == "reshard":
        return explicit.resharded(p, v, layout, eqn.params["concrete_mesh"], source)
    if kind == "move":
        p.go_over(layout)
    if kind in ("constraint", "move"):
        return _constrained(p, v, layout, source)
    if p.in_body:
        raise NotImplementedError(
            "The body of a shard_map cannot use pmap or host-local arrays. Use them outside of the shard_map."
        )
    if kind == "from_local":
        whole_here = gathered(p, v, source)
        return p.marked(whole_here, layout, False, source)
    shard, here = redistributed(p, v, layout, source), SingleDeviceSharding.by_default(provided.local_devices()[0])
    if layout.mesh.holds_several:
        here = layout.update(mesh=layout.mesh.local_mesh)
    return p.marked(p.copied(shard, source) if p.blocks_of(shard) is not None else shard, here, False, source)


def _constrained(p: Partitioner, v, layout, source):
    """A value with the layout of `with_sharding_constraint`; unchanged inside `shard_map` bodies."""
    if p.in_body:
        return v
    if isinstance(layout, Space):
        layout = _in_memory(p.sharding_held(v), layout.kind)
        return v if layout is None else p.marked(v, layout, False, source)
    if not hasattr(layout, "mesh"):  # one device
        p.are_over(layout, lambda: "sharding_constraint inside jit")
        return p.marked(gathered(p, v, source), layout, False, source)
    if layout.mesh is layout.mesh.abstract_mesh:
        devices = explicit.devices_known(p, layout.mesh)
        if devices is None:
            return v
        layout = layout.update(mesh=devices)
    p.are_over(layout, lambda: "sharding_constraint inside jit")
    first = len(p.nodes)
    split = _possible(p, v, layout)
    if layout.spec.unconstrained_dims or split != split_of(layout, len(split)):
        layout = sharding_over(layout.mesh, split)
    out = redistributed(p, v, layout, source)
    made = p.made_since(first)
    return p.marked(out, layout, out in made, source)


def devices_of(p: Partitioner, layout):
    """The multi-process mesh of a constraint; None if the constraint is not propagated backwards."""
    mesh = getattr(layout, "mesh", None)
    if mesh is not None and mesh is mesh.abstract_mesh:
        mesh = explicit.devices_known(p, mesh)
    if mesh is None or not mesh.is_multi_process or mesh.is_explicit:
        return None
    return mesh


def _in_memory(held, kind: str | None):
    """A layout in another kind of memory; None if it is there already."""
    if kind is None or (held is None and kind == DEVICE):
        return None
    return (held or SingleDeviceSharding(provided.local_devices()[0])).with_memory_kind(kind)


def _possible(p: Partitioner, v, layout) -> tuple[tuple, ...]:
    """The mesh axes a constraint splits over: unconstrained axes keep their split, indivisible axes stay whole."""
    shape, sizes = p.global_aval(v).shape, layout.mesh.shape
    have = p.sharding_held(v)
    held = ((),) * len(shape) if getattr(have, "mesh", None) != layout.mesh else split_of(have, len(shape))
    free, named = layout.spec.unconstrained_dims, set(layout.spec.all_axes())
    return tuple(
        (held[d] if not named & set(held[d]) else ()) if d in free
        else axes if n % math.prod(sizes[a] for a in axes) == 0 else ()
        for d, (n, axes) in enumerate(zip(shape, split_of(layout, len(shape)), strict=True))
    )  # fmt: skip
