"""Programs over several ranks in the graph: shards of arguments, communication within shard_map bodies.

Every rank builds its own graph. A global array is either whole on every rank or split, one shard a rank; a
whole array is cut for free (a slice is only an index map), a split one is gathered where an operation
outside of a body needs all of it.
"""

from __future__ import annotations

import math
from typing import Any

from mpijax.compiler.messages import communicate
from mpijax.core import effects as fx
from mpijax.core.lowering import Elementwise
from mpijax.core.primitive import registry


def run_shards(builder, closed, params: dict[str, Any], inputs, source):
    """The body of a `shard_map` on this rank's shards."""
    from mpijax.spmd.mesh import NamedSharding

    mesh = params["mesh"]
    if mesh.is_multi_process and mesh.coordinates() is None:
        raise ValueError(
            f"this rank's device is not part of the mesh {mesh} that shard_map runs on; every rank that runs the "
            f"program "
            "must have a device in the mesh"
        )
    local = []
    for v, spec in zip(inputs, params["in_specs"], strict=True):
        wanted = NamedSharding(mesh, spec)
        have = builder.shards.get(id(v)) if not builder.meshes else None
        if have == wanted:
            local.append(v)
            continue
        whole = gathered(builder, v, have, source) if have is not None else v
        local.append(_cut(builder, whole, wanted, source))
    builder.meshes.append(mesh)
    first, seen = len(builder.graph.nodes), builder.seen
    builder.seen = {}
    try:
        outs = builder.inline(closed, local, source)
    finally:
        builder.meshes.pop()
        builder.seen = seen
    made = {id(v) for node in builder.graph.nodes[first:] for v in node.outputs}
    results = []
    for v, spec in zip(outs, params["out_specs"], strict=True):
        layout = NamedSharding(mesh, spec)
        layout = None if layout.is_fully_replicated else layout
        if layout is not None and builder.meshes:
            raise NotImplementedError(
                "a shard_map inside another must return replicated results: use one shard_map over both axes"
            )
        known = None if builder.meshes else builder.shards.get(id(v))
        # A value of the outside, which the body only handed on, stays there what it is.
        if known != layout and (known is not None or id(v) not in made):
            v = _copied(builder, v, source)
        if layout is not None:
            builder.shards[id(v)] = layout
        results.append(v)
    return results


def _copied(builder, v, source):
    """A value of its own, for a layout of its own."""
    [out] = builder._node(registry["copy"], {}, [v], [v.aval], source, fx.no_effects)
    return out


def _cut(builder, v, layout, source):
    """This rank's part of an array that is whole here."""
    if layout.is_fully_replicated or v.scalar is not None:
        return v
    slices = [slice(*s.indices(n)) for s, n in zip(layout.local_slices(v.aval.shape), v.aval.shape, strict=True)]
    params = {
        "start_indices": tuple(s.start for s in slices),
        "limit_indices": tuple(s.stop for s in slices),
        "strides": None,
    }
    aval = v.aval.update(shape=layout.shard_shape(v.aval.shape))
    [out] = builder._node(registry["slice"], params, [v], [aval], source, fx.no_effects)
    return out


def gathered(builder, v, layout, source):
    """The whole of an array of which every rank has a shard. Communicates one allgather per split axis."""
    builder.meshes.append(layout.mesh)
    try:
        for dim in range(len(layout.spec)):
            axes = layout.spec.axes_of(dim)
            size = math.prod(layout.mesh.shape[a] for a in axes)
            if size == 1:
                continue
            shape = list(v.aval.shape)
            shape[dim] *= size
            params = {
                "all_gather_dimension": dim, "axis_name": axes, "axis_index_groups": None, "axis_size": size,
                "tiled": True,
            }  # fmt: skip
            primitive = registry["all_gather"]
            aval = v.aval.update(shape=tuple(shape))
            [v] = communicate(builder, primitive, params, [v], [aval], source, primitive.effects(params))
    finally:
        builder.meshes.pop()
    return v


def aligned(builder, eqn, inputs, avals, source):
    """Operands of an operation outside of shard_map bodies, some of them shards.

    Returns operands, result types and layout: element by element on shards of one layout, else on gathered operands.
    """
    layouts = [builder.shards.get(id(v)) for v in inputs]
    present = [x for x in layouts if x is not None]
    if not present:
        return inputs, avals, None
    same = all(x == present[0] for x in present)
    pointwise = isinstance(eqn.primitive.lower, Elementwise) and all(
        x is not None or v.aval.shape == () for v, x in zip(inputs, layouts, strict=True)
    )
    full_shape = all(a.shape == avals[0].shape for a in avals)
    if same and pointwise and full_shape and len({v.aval.shape for v in inputs if v.aval.shape != ()}) == 1:
        local = [a.update(shape=present[0].shard_shape(a.shape)) for a in avals]
        if all(v.aval.shape in ((), local[0].shape) for v in inputs):
            return inputs, local, present[0]
    whole = [
        v if layout is None else gathered(builder, v, layout, source) for v, layout in zip(inputs, layouts, strict=True)
    ]
    return whole, avals, None
