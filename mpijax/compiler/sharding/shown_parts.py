"""Operations that show values while a program runs, such as prints: `partitioned` ones show each device's part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.compiler.sharding.blocks import Blocks, blocks_by
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.compiler.sharding.redistribute import recut
from mpijax.core.rules.sharding_rules import Plan
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.types import effects as fx
from mpijax.ops.indexing.slicing import slice_p


def device_mesh(shardings: Sequence[Any]) -> Any:
    """The mesh of the first sharding by which this process has several devices; None if there is none."""
    several = (x.mesh for x in shardings if isinstance(x, NamedSharding) and x.mesh.holds_several)
    return next((mesh for mesh in several if len(mesh.local_devices) > 1), None)


def add(
    p: Partitioner, eqn, plan: Plan, inputs, held: Sequence[Blocks | None], shardings: Sequence[Any], mesh: Any, source
) -> list:
    """Add the operation for each of this process's devices, in the order of the mesh."""
    parts = [recut(p, v, mesh, cuts, source) for v, cuts in zip(inputs, plan.operands, strict=True)]
    own = device_mesh(shardings)
    for device in own.local_devices if own is not None else (None,):
        shown = [_part(p, *of, device, source) for of in zip(parts, held, shardings, strict=True)]
        p.graph.node(eqn.primitive, plan.params, shown, [], source, eqn.effects)
    return []


def _part(p: Partitioner, v, blocks: Blocks | None, sharding: Any, device: Any, source):
    """What a device has of `v`, this process's part of an array; all of `v` if no sharding describes the devices."""
    if device is None or not isinstance(sharding, NamedSharding) or device not in sharding.device_set:
        return v
    shape = v.aval.shape if blocks is None else blocks.shape
    if blocks is not None and blocks != blocks_by(sharding, shape):
        return v
    process = (of.indices(n)[0] for of, n in zip(sharding.local_slices(shape), shape, strict=True))
    spans = (of.indices(n)[:2] for of, n in zip(sharding.held_indices(shape)[device], shape, strict=True))
    starts, limits = [], []
    for first, (low, high) in zip(process, spans, strict=True):
        starts.append(low - first)
        limits.append(high - first)
    sizes = tuple(high - low for low, high in zip(starts, limits, strict=True))
    if sizes == v.aval.shape:
        return v
    params = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": None}
    return p.graph.node(slice_p, params, [v], [v.aval.update(shape=sizes)], source, fx.no_effects)[0]
