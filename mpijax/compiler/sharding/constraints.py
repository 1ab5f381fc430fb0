"""Applies shardings that the program requests: `with_sharding_constraint`, `reshard`, and host-local arrays."""

from __future__ import annotations

import math

from mpijax.compiler.sharding import explicit
from mpijax.compiler.sharding.blocks import sharding_over, split_of
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.compiler.sharding.redistribute import gathered, moved_to, redistributed
from mpijax.core.base import provided
from mpijax.core.rules.lowering import ReshardKind
from mpijax.core.sharding.memory_space import DEVICE, Space
from mpijax.core.sharding.shardings import SingleDeviceSharding


def with_requested_sharding(p: Partitioner, eqn, v, source) -> list:
    """A value in the sharding that the program requests; no result if the program only inspects the sharding."""
    kind, sharding = eqn.primitive.lower.kind, eqn.params[eqn.primitive.lower.param]
    if hasattr(sharding, "mesh") and sharding.mesh.stands_in:
        sharding = sharding.update(mesh=p.on_devices_of_values(sharding.mesh))
    if kind is ReshardKind.INSPECT:
        p.known.inspected.append((sharding, p.sharding_in_use(v)))
        return []
    return [_with_sharding(p, eqn, v, kind, sharding, source)]


def show(p: Partitioner, other) -> None:
    """Call the functions that inspect shardings. other: the sharding of values without one."""
    for callback, sharding in p.known.inspected:
        callback(sharding or other or SingleDeviceSharding(provided.local_devices()[0]))


def _with_sharding(p: Partitioner, eqn, v, kind: ReshardKind, sharding, source):
    if kind is ReshardKind.RESHARD:
        return explicit.resharded(p, v, sharding, eqn.params["concrete_mesh"], source)
    if kind is ReshardKind.MOVE:
        p.go_over(sharding)
    if kind in (ReshardKind.CONSTRAINT, ReshardKind.MOVE):
        return _constrained(p, v, sharding, source)
    if p.in_body:
        raise NotImplementedError(
            "The body of a shard_map cannot use pmap or host-local arrays. Use them outside of the shard_map."
        )
    if kind is ReshardKind.FROM_LOCAL:
        whole_here = gathered(p, v, source)
        return p.marked(whole_here, sharding, False, source)
    shard, here = redistributed(p, v, sharding, source), SingleDeviceSharding.by_default(provided.local_devices()[0])
    if sharding.mesh.holds_several:
        here = sharding.update(mesh=sharding.mesh.local_mesh)
    return p.marked(p.copied(shard, source) if p.blocks_of(shard) is not None else shard, here, False, source)


def _constrained(p: Partitioner, v, sharding, source):
    """A value with the sharding of `with_sharding_constraint`; unchanged inside `shard_map` bodies."""
    if p.in_body:
        return v
    if isinstance(sharding, Space):
        sharding = _in_memory(p.sharding_held(v), sharding.kind)
        return v if sharding is None else p.marked(v, sharding, False, source)
    if not hasattr(sharding, "mesh"):  # one device
        p.are_over(sharding, lambda: "sharding_constraint inside jit")
        return p.marked(gathered(p, v, source), sharding, False, source)
    if sharding.mesh is sharding.mesh.abstract_mesh:
        devices = explicit.devices_known(p, sharding.mesh)
        if devices is None:
            return v
        sharding = sharding.update(mesh=devices)
    p.are_over(sharding, lambda: "sharding_constraint inside jit")
    split = _possible(p, v, sharding)
    if sharding.spec.unconstrained_dims or split != split_of(sharding, len(split)):
        sharding = sharding_over(sharding.mesh, split)
    return moved_to(p, v, sharding, source)


def devices_of(p: Partitioner, sharding):
    """The multi-process mesh of a constraint; None if the constraint is not propagated backwards."""
    mesh = getattr(sharding, "mesh", None)
    if mesh is not None and mesh is mesh.abstract_mesh:
        mesh = explicit.devices_known(p, mesh)
    if mesh is None or not mesh.is_multi_process or mesh.is_explicit:
        return None
    return mesh


def _in_memory(held, kind: str | None):
    """A sharding in another kind of memory; None if it is there already."""
    if kind is None or (held is None and kind == DEVICE):
        return None
    return (held or SingleDeviceSharding(provided.local_devices()[0])).with_memory_kind(kind)


def _possible(p: Partitioner, v, sharding) -> tuple[tuple, ...]:
    """The mesh axes a constraint splits over: unconstrained axes keep their split, indivisible axes stay whole."""
    shape, sizes = p.global_aval(v).shape, sharding.mesh.shape
    have = p.sharding_held(v)
    held = ((),) * len(shape) if getattr(have, "mesh", None) != sharding.mesh else split_of(have, len(shape))
    free, named = sharding.spec.unconstrained_dims, set(sharding.spec.all_axes())
    return tuple(
        (held[d] if not named & set(held[d]) else ()) if d in free
        else axes if n % math.prod(sizes[a] for a in axes) == 0 else ()
        for d, (n, axes) in enumerate(zip(shape, split_of(sharding, len(shape)), strict=True))
    )  # fmt: skip
