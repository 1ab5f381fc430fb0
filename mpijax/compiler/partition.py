"""Programs over several ranks in the graph: shards of arguments, communication within shard_map bodies.

Every rank builds its own graph. A global array is either whole on every rank or split, one shard a rank; a
whole array is cut for free (a slice is only an index map), a split one is gathered where an operation
outside of a body needs all of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpijax.core import effects as fx
from mpijax.core.lowering import Elementwise, Structural
from mpijax.core.primitive import Primitive, Unsupported, registry

rank_index_p = Primitive(
    "rank_index",
    type_rule=Unsupported("made by the compiler"),
    reference=lambda *, position: np.int32(position),
    lower=Structural("rank_index"),
    jvp=Unsupported("made by the compiler"),
    transpose=Unsupported("made by the compiler"),
    batch=Unsupported("made by the compiler"),
    register=False,
)


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


def communicate(builder, primitive, params, inputs, avals, source, effects):
    """A communication, with the mesh it runs on; over axes of size 1 it is no communication at all."""
    kind = primitive.lower.kind
    if "comm" in params:
        return builder._node(primitive, params, inputs, avals, source, effects)
    names = params.get("axes", params.get("axis_name"))
    names = tuple(names) if isinstance(names, (tuple, list)) else (names,)
    if all(isinstance(n, int) for n in names):
        return _reduced(builder, kind, names, inputs, avals, source)
    mesh = next((m for m in reversed(builder.meshes) if all(n in m.axis_names for n in names)), None)
    if mesh is None:
        raise NameError(
            f"Found an unbound axis name: {names}. {primitive.name} at {source} runs outside of the shard_map or vmap "
            f"that "
            "names the axis."
        )
    if kind == "axis_index":
        at = dict(zip(mesh.axis_names, mesh.coordinates() or (0,) * len(mesh.axis_names), strict=True))
        return builder._node(rank_index_p, {"position": at[names[0]]}, [], avals, source, fx.no_effects)
    size = math.prod(mesh.shape[n] for n in names)
    full = {**params, "mesh": mesh, "names": names}
    if kind.startswith("allreduce"):
        return inputs if size == 1 else builder._node(primitive, full, inputs, avals, source, effects)
    if kind == "permute":
        if size == 1 and params["perm"]:
            return inputs
        return builder._node(primitive, full, inputs, avals, source, effects)
    return [_all_gather(builder, primitive, full, inputs[0], avals[0], size, source, effects)]


def _reduced(builder, kind, axes, inputs, avals, source):
    """A collective over the axes of a batch is a reduction."""
    name = {"allreduce_sum": "reduce_sum", "allreduce_max": "reduce_max", "allreduce_min": "reduce_min"}[kind]
    params = {"axes": tuple(axes), "out_sharding": None}
    return builder._node(registry[name], params, inputs, avals, source, fx.no_effects)


def _all_gather(builder, primitive, params, v, aval, size, source, effects):
    """Gathered along a new first axis, as MPI does it, which then is moved where it belongs."""
    dim, tiled = params["all_gather_dimension"], params["tiled"]
    stacked = v.aval.update(shape=(size, *v.aval.shape))
    if size == 1:
        [out] = _reshaped(builder, v, stacked, source)
    else:
        [out] = builder._node(primitive, params, [v], [stacked], source, effects)
    if dim:
        order = (*range(1, dim + 1), 0, *range(dim + 1, len(stacked.shape)))
        moved = stacked.update(shape=tuple(stacked.shape[i] for i in order))
        [out] = builder._node(registry["transpose"], {"permutation": order}, [out], [moved], source, fx.no_effects)
    if tiled:
        [out] = _reshaped(builder, out, aval, source)
    return out


def _reshaped(builder, v, aval, source):
    params = {"new_sizes": aval.shape, "dimensions": None, "sharding": None}
    return builder._node(registry["reshape"], params, [v], [aval], source, fx.no_effects)
