"""Enforces shardings in types: a value whose type is split over Explicit mesh axes is sharded that way.

Over Auto axes of the same mesh, the sharding rules of primitives decide.
"""

from __future__ import annotations

from typing import Any

from mpijax.compiler.sharding.blocks import sharding_over
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.compiler.sharding.redistribute import moved_to
from mpijax.core.rules.lowering import Partitioned, Reshard
from mpijax.core.sharding.context import of_sharding
from mpijax.core.sharding.mesh import current_mesh, make_mesh
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.sharding.split import Split


def as_typed(p: Partitioner, eqn, outs: list, first: int, source) -> list:
    """The results of an equation in the shardings of their types.

    first: the number of nodes before the equation was added.
    """
    types = [v.aval.split for v in eqn.outvars]
    said = next((s for s in (*types, *(v.aval.split for v in eqn.invars)) if s is not None), None)
    if said is None or isinstance(eqn.primitive.lower, Reshard):
        return outs
    devices = _devices(p, said.mesh)
    made = p.made_since(first)
    # The out_specs of a body already set the sharding of results, except over mesh axes that it does not map.
    body = isinstance(eqn.primitive.lower, Partitioned)
    return [
        out if body and _lies_so(p, out, split)
        else _moved(p, out, devices, said.mesh, () if split is None else split.axes, out in made, source)
        for out, split in zip(outs, types, strict=True)
    ]  # fmt: skip


def _lies_so(p: Partitioner, v, split: Split | None) -> bool:
    """Whether a value is sharded as its type requires."""
    held = p.sharding_held(v)
    found = of_sharding(held, v.aval.ndim)
    return split is None or (found is not None and found.axes == split.axes)


def resharded(p: Partitioner, v, sharding, devices: Any, source):
    """A value resharded over Explicit axes to `sharding`; over Auto axes unchanged unless the sharding names them."""
    if p.in_body or p.outer is not None:
        return v
    devices = devices or _devices(p, sharding.mesh)
    return _moved(p, v, devices, sharding.mesh, sharding.spec.split(v.aval.ndim), False, source)


def _devices(p: Partitioner, mesh) -> Any:
    """The concrete mesh for abstract `mesh`: that of values in the program, of the context, or of the first devices."""

    found = devices_known(p, mesh) or make_mesh(mesh.axis_sizes, mesh.axis_names, mesh.axis_types)
    p.known.devices[mesh] = found
    return found


def devices_known(p: Partitioner, mesh) -> Any:
    """The concrete mesh for abstract `mesh`, if values in the program or the context have it; else None."""

    known = (getattr(x, "mesh", None) for x in p.known.shardings.values())
    meshes = (m for m in (*known, current_mesh()) if m is not None)
    same = (m for m in meshes if m.shape_tuple == mesh.shape_tuple)
    return p.known.devices.get(mesh) or next(same, None)


def _moved(p: Partitioner, v, devices, mesh, axes, new: bool, source):
    """A value whose array axes are split over `axes`; over Auto axes of the mesh the split is unchanged."""

    if v.scalar is not None:
        return v
    ndim = v.aval.ndim
    held = p.sharding_held(v)
    if held is None and not mesh.is_explicit and not new:
        return v
    p.go_over(sharding_over(devices, ()))
    p.are_over(sharding_over(devices, ()), lambda: "reshard inside jit")
    free = set(mesh.auto_axes) - {a for names in axes for a in names}
    over = held.spec if held is not None and getattr(held, "mesh", None) == devices else PartitionSpec()
    kept = [tuple(a for a in over.axes_of(d) if a in free) for d in range(ndim)]
    whole = axes or ((),) * ndim
    sharding = sharding_over(devices, tuple((*n, *k) for n, k in zip(whole, kept, strict=True)))
    if held == sharding:
        return v
    if new and held is not None and (
        (held.keeps_whole and sharding.keeps_whole) or held.is_equivalent_to(sharding, ndim)
    ):
        p.known.shardings[v] = sharding
        return v
    return moved_to(p, v, sharding, source, new)
