"""Programs over several ranks in the graph: parts of arguments, communication within shard_map bodies.

Every rank builds its own graph. A whole array is either whole on every rank or cut, one block a rank, of equal size or
not; a whole array is cut for free (a slice is only an index map). Outside of bodies operations are done block by block
where their primitive has a sharding rule; an array is gathered where an operation needs all of it.

An array over several devices of this one process is whole too: its sharding is only what is said of it, and follows
through operations by the same rules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mpijax.compiler.sharding import local_shards
from mpijax.compiler.sharding.blocks import Blocks, blocks_by, place_in, sharding_over, whole_shape
from mpijax.compiler.sharding.messages import communicate_here, give_reason, reduction_p
from mpijax.compiler.sharding.redistribute import Redistribution, View, rotation
from mpijax.core import effects as fx
from mpijax.core.lowering import Structural, Writes
from mpijax.core.registry import registry
from mpijax.core.sharding.cuts import Cuts, count, even_cut, mesh_axes, uncut
from mpijax.core.sharding.rules import Operation, Plan, rule_of
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.source import UNKNOWN, sources_from
from mpijax.core.trace import named_axes, trace_to_closed_jaxpr
from mpijax.ops.collectives.one_sided import paired
from mpijax.ops.slicing import slice_p


def run_shards(builder, closed, params: dict[str, Any], inputs, source):
    """The body of a `shard_map` on this rank's shards."""
    mesh = params["mesh"]
    if fx.one_sided in closed.effects:
        with named_axes(dict(mesh.shape)):
            closed = paired(local_shards.without_varying(closed))
    if mesh.is_local:
        return _run_local_shards(builder, closed, params, inputs, source)
    if mesh.is_multi_process and mesh.coordinates() is None:
        raise ValueError(
            f"this rank's device is not part of the mesh {mesh} that shard_map runs on; every rank that runs the "
            f"program "
            "must have a device in the mesh"
        )
    layouts = [NamedSharding(mesh, spec) for spec in params["in_specs"]]
    local = [relaid(builder, v, layout, source) for v, layout in zip(inputs, layouts, strict=True)]
    first, seen = len(builder.graph.nodes), builder.seen
    builder.seen = {}
    try:
        with builder.in_body_over(mesh):
            outs = builder.inline(closed, local, source)
    finally:
        builder.seen = seen
    made = {id(v) for node in builder.graph.nodes[first:] for v in node.outputs}
    results = []
    for v, spec in zip(outs, params["out_specs"], strict=True):
        layout = NamedSharding(mesh, spec)
        if builder.meshes and not layout.is_fully_replicated:
            raise NotImplementedError(
                "a shard_map inside another must return replicated results: use one shard_map over both axes"
            )
        results.append(marked(builder, v, layout, id(v) in made, source))
    return results


def _run_local_shards(builder, closed, params: dict[str, Any], inputs, source):
    first = len(builder.graph.nodes)
    outs = local_shards.run(builder, closed, params, inputs, source)
    made = {id(v) for node in builder.graph.nodes[first:] for v in node.outputs}
    layouts = (NamedSharding(params["mesh"], spec) for spec in params["out_specs"])
    return [marked(builder, v, layout, id(v) in made, source) for v, layout in zip(outs, layouts, strict=True)]


def marked(builder, v, layout, new: bool, source):
    """A value with its layout; a copy, where the value is known by another one, or is not new, outside."""
    if builder.meshes:
        return v
    known = builder.shards.get(id(v))
    split = None if layout.keeps_whole else layout
    if (known != split and (known is not None or not new)) or builder.placed.get(id(v), layout) != layout:
        v = copied(builder, v, source)
    if split is not None:
        builder.shards[id(v)] = split
    elif v.scalar is None:
        builder.placed[id(v)] = layout
    return v


def copied(builder, v, source):
    """A value of its own, for a layout of its own."""
    [out] = builder.node(registry["copy"], {}, [v], [v.aval], source, fx.no_effects)
    return out


# ---------------------------------------------------------------- from one sharding to another


def blocks_of(builder, v) -> Blocks | None:
    """Which part of a whole array a value is; None where every rank has all of it, and in bodies of `shard_map`."""
    if builder.meshes:
        return None
    at = builder
    while at is not None:
        found = at.blocks.get(id(v))
        if found is not None:
            return found
        layout = at.shards.get(id(v))
        if layout is not None:
            found = at.blocks[id(v)] = blocks_by(layout, whole_shape(layout, v.aval.shape))
            return found
        at = at.parent
    return None


def layout_held(builder, v):
    """The sharding of a value, by the name it was given; None where nothing is said of it."""
    at = builder
    while at is not None:
        found = at.shards.get(id(v)) or at.placed.get(id(v))
        if found is not None:
            return found
        at = at.parent
    return None


def global_aval(builder, v):
    """The type of the whole array of which `v` may be a part."""
    blocks = blocks_of(builder, v)
    return v.aval if blocks is None else v.aval.update(shape=blocks.shape)


def recut(builder, v, mesh, cuts, source):
    """This rank's part of a value, cut by `cuts`, whose spans may overlap."""
    have = blocks_of(builder, v)
    _note_unequal(builder, cuts)
    if have is not None and have.mesh != mesh:
        v, have = gathered(builder, v, source), None
    if v.scalar is not None:
        return v
    if v.outside is not None and builder.leaves:  # what does not change in a loop is sent once, before it
        return builder.local(recut(builder.parent, v.outside, mesh, cuts, source))
    if have is None:
        have = Blocks(mesh, v.aval.shape, uncut(v.aval.shape))
    return Redistribution(builder, mesh, source).move(v, have, cuts)


def _note_unequal(builder, cuts: Cuts) -> None:
    builder.graph.unequal |= any(c is not None and not c.is_even for c in cuts)


def relaid(builder, v, layout, source):
    """This rank's shard of a value in another sharding."""
    shape = global_aval(builder, v).shape
    wanted = Blocks(layout.mesh, shape, uncut(shape)) if layout.keeps_whole else blocks_by(layout, shape)
    return recut(builder, v, layout.mesh, wanted.cuts, source)


def gathered(builder, v, source):
    """The whole of an array of which every rank has a part. Communicates one allgather per split axis."""
    blocks = blocks_of(builder, v)
    return v if blocks is None else recut(builder, v, blocks.mesh, uncut(blocks.shape), source)


# ---------------------------------------------------------------- operations on shards


def cut_as_asked(builder, inputs, asked, mesh, source) -> list:
    """Operands of which those that are whole are cut as asked for: every rank has its part already."""

    def cut(v, cuts):
        whole = v.scalar is None and blocks_of(builder, v) is None and id(v) not in builder.unreduced
        if cuts is None or not whole or builder.meshes:
            return v
        blocks = Blocks(mesh, v.aval.shape, cuts)
        return held_as(builder, recut(builder, v, mesh, cuts, source), blocks, blocks.sharding, True, source)

    return [cut(v, cuts) for v, cuts in zip(inputs, asked, strict=True)]


def remember_gather(builder, eqn, k: int, inputs, source) -> None:
    """Note that an operation makes its operand `k`, a split array, whole on every rank."""
    v = inputs[k]
    if blocks_of(builder, v) is not None:
        aval, argument = global_aval(builder, v), v.position if v.kind == "input" and v.outside is None else -1
        instead = _split_elsewhere(builder, eqn, k, inputs)
        builder.gathers[aval.nbytes, aval.str_short(), eqn.primitive.name, source, k, argument, instead] = None


def _split_elsewhere(builder, eqn, k: int, inputs) -> str:
    """How operand `k` may be split, over the same mesh axes along one array axis, so that an operation takes its parts
    and no rank combines results; empty if there is no such way."""
    rule, held = rule_of(eqn.primitive), [blocks_of(builder, v) for v in inputs]
    have = held[k]
    if rule is None or have is None:
        return ""
    axes = mesh_axes(have.cuts)
    parts = count(axes, have.mesh.shape)
    seen = _as_rules_see_it(builder, eqn, inputs, [v.aval for v in eqn.outvars], held, have.mesh)
    for d, n in enumerate(have.shape):
        if have.cuts[d] is not None or n == 0 or n % parts:
            continue
        cuts = (*uncut(have.shape[:d]), even_cut(n, axes, parts), *uncut(have.shape[d + 1 :]))
        others = [*seen.cuts[:k], cuts, *seen.cuts[k + 1 :]]
        plan = rule(replace(seen, cuts=others, origins=()))
        if plan is not None and plan.whole is None and not plan.over and plan.operands[k] == cuts:
            return str(sharding_over(have.mesh, (*((),) * d, axes)).spec)
    return ""


def spread(builder, eqn, inputs, avals, source):
    """An operation outside of shard_map bodies, done by every rank on its parts; None where it needs whole operands."""
    held = [blocks_of(builder, v) for v in inputs]
    mesh = next((b.mesh for b in held if b is not None), None)
    rule = rule_of(eqn.primitive)
    if mesh is None or rule is None or fx.pins(eqn.effects):
        return None
    rotated = _rotated(builder, eqn, inputs, source)
    if rotated is not None:
        return [rotated]
    plan = rule(_as_rules_see_it(builder, eqn, inputs, avals, held, mesh))
    if plan is None:
        return None
    if plan.whole is not None:
        with sources_from(source):
            closed = trace_to_closed_jaxpr(plan.whole, [global_aval(builder, v) for v in inputs])
        return builder.inline(closed, inputs, source)
    first = len(builder.graph.nodes)
    for k, cuts in enumerate(plan.operands):
        if not any(cuts):
            remember_gather(builder, eqn, k, inputs, source)
    operands = [recut(builder, v, mesh, cuts, source) for v, cuts in zip(inputs, plan.operands, strict=True)]
    results = [Blocks(mesh, a.shape, cuts) for a, cuts in zip(avals, plan.results, strict=True)]
    for aval, blocks in zip(avals, results, strict=True):
        builder.placements[aval, eqn.primitive.name, source, tuple(mesh.shape.items()), blocks.cuts] = None
    outs = done_here(builder, eqn, plan, operands, avals, results, source)
    waits = plan.op == "sum" and bool(plan.over) and builder.sum_may_wait(eqn, mesh)
    if plan.over and not waits:
        outs = [combined(builder, outs[0], plan.over, plan.op, mesh, source)]
    made = {id(o) for node in builder.graph.nodes[first:] for o in node.outputs}
    named = _named_alike(results, held, [layout_held(builder, v) for v in inputs])
    outs = [
        held_as(builder, o, blocks, layout, id(o) in made, source)
        for o, blocks, layout in zip(outs, results, named, strict=True)
    ]
    if eqn.primitive is slice_p and not any(k != 1 for k in eqn.params["strides"] or ()):
        _remember_view(builder, eqn.params, inputs[0], held[0], outs[0])
    if waits:
        builder.sum_waits(outs[0], mesh, plan.over)
    return outs


def _rotated(builder, eqn, inputs, source):
    """Two slices that are put together the other way around (`jnp.roll`), as one exchange; else None."""
    lower = eqn.primitive.lower
    if not isinstance(lower, Structural) or lower.writes is not Writes.CONCATENATE:
        return None
    found = rotation([builder.views.get(id(v)) for v in inputs], eqn.params["dimension"])
    if found is None:
        return None
    view, by = found
    first = len(builder.graph.nodes)
    move = Redistribution(builder, view.blocks.mesh, source)
    out = move.rotated(view.source, view.blocks, eqn.params["dimension"], by)
    made = {id(o) for node in builder.graph.nodes[first:] for o in node.outputs}
    layout = layout_held(builder, view.source) or view.blocks.sharding
    return held_as(builder, out, view.blocks, layout, id(out) in made, source)


def done_here(builder, eqn, plan: Plan, operands, avals, results, source) -> list:
    """The operation on this rank's parts, as in the body of a `shard_map`."""
    mesh = results[0].mesh
    with builder.in_body_over(mesh):
        if plan.program is not None:
            first = len(builder.graph.nodes)
            with named_axes(dict(mesh.shape)), sources_from(source):
                closed = trace_to_closed_jaxpr(_listed(plan.program), [v.aval for v in operands])
            outs = builder.inline(closed, operands, source)
            give_reason(builder.graph.nodes[first:], f"the ranks do {eqn.primitive.name} together")
            return [builder.local(v) for v in outs]
        local = [a.update(shape=b.local_shape, split=None) for a, b in zip(avals, results, strict=True)]
        outvars = [type(v)(a) for v, a in zip(eqn.outvars, local, strict=True)]
        here = eqn.replace(params=dict(plan.params), outvars=outvars)
        # In a loop, what does not change may have been computed before it.
        return [builder.local(v) for v in builder.apply(here, operands, source)]


def _listed(program):
    """A function of tracers that returns a list."""

    def call(*args):
        out = program(*args)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    return call


def held_as(builder, v, blocks: Blocks, layout, new: bool, source):
    """A value that is this rank's part of an array; `layout` names the sharding where blocks are even.

    Copies a value that is already known as part of another array: the two are equal on this rank, not on all.
    """
    known = blocks_of(builder, v)
    _note_unequal(builder, blocks.cuts)
    if known is not None and known != blocks:
        v, new = copied(builder, v, source), True
    v = marked(builder, v, layout if blocks.is_even else blocks.sharding, new, source)
    if not builder.meshes and not blocks.is_whole:
        builder.blocks[id(v)] = blocks
    return v


def known_alike(builder, v, other) -> None:
    """Let `other`, which stands for `v` in a region, be known as the same part of an array."""
    blocks, layout = blocks_of(builder, v), layout_held(builder, v)
    if blocks is not None:
        builder.blocks[id(other)] = blocks
        builder.shards[id(other)] = layout
    elif layout is not None and not builder.meshes:
        builder.placed[id(other)] = layout


def as_result(builder, v):
    """A value as a program returns it: in blocks of `ceil(size / parts)`, the last ones shorter or empty.

    Whole along an axis that has fewer elements than ranks.
    """
    blocks = blocks_of(builder, v)
    if blocks is None or blocks.is_even:
        return v
    after = blocks.recut(_even_cuts(blocks))
    return held_as(builder, recut(builder, v, blocks.mesh, after.cuts, UNKNOWN), after, after.sharding, True, UNKNOWN)


def _even_cuts(blocks: Blocks) -> Cuts:
    cuts = enumerate(zip(blocks.shape, blocks.cuts, strict=True))
    return tuple(blocks.even(d, c.axes) if c is not None and (n >= c.parts or n == 0) else None for d, (n, c) in cuts)


def _remember_view(builder, params, v, blocks: Blocks | None, out) -> None:
    """Halos of a slice are read from the array that it is a slice of."""
    if blocks is None or blocks_of(builder, out) is None:
        return
    starts, ends = params["start_indices"], params["limit_indices"]
    inner = builder.views.get(id(v))
    if inner is not None and all(a == b or b is None for a, b in zip(inner.blocks.cuts, blocks.cuts, strict=True)):
        v, blocks = inner.source, inner.blocks
        starts, ends = (tuple(a + b for a, b in zip(x, inner.starts, strict=True)) for x in (starts, ends))
    builder.views[id(out)] = View(v, blocks, tuple(starts), tuple(ends))


def followed(builder, eqn, inputs, outs, source) -> list:
    """The results of an operation on values over devices of this process, laid out as its operands are."""
    known = (builder.placed.get(id(v)) for v in inputs)
    layouts = [x if x is not None and x.is_fully_addressable else None for x in known]
    first = next((x for x in layouts if x is not None), None)
    if first is None:
        return outs
    avals = [v.aval for v in eqn.outvars]

    def labelled(out, layout):
        known = id(out) in builder.placed or id(out) in builder.shards or out.scalar is not None
        if layout.memory_kind != first.memory_kind:
            layout = layout.with_memory_kind(first.memory_kind)
        return out if known else marked(builder, out, layout, True, source)

    return list(map(labelled, outs, _layouts_of_results(builder, eqn, inputs, avals, layouts, first)))


def _layouts_of_results(builder, eqn, inputs, avals, layouts, first) -> list:
    if not hasattr(first, "mesh"):
        return [first] * len(avals)
    mesh, rule = first.mesh, rule_of(eqn.primitive)
    over_mesh = [x if hasattr(x, "mesh") else None for x in layouts]
    held = [
        None if x is None or x.mesh != mesh else blocks_by(x, v.aval.shape)
        for x, v in zip(over_mesh, inputs, strict=True)
    ]
    plan = rule(_as_rules_see_it(builder, eqn, inputs, avals, held, mesh)) if rule is not None else None
    if plan is not None:
        results = [Blocks(mesh, a.shape, c) for a, c in zip(avals, plan.results, strict=True)]
        return _named_alike([b if b.is_even else b.recut(uncut(b.shape)) for b in results], held, over_mesh)
    of_shape = {v.aval.shape: x for v, x in zip(inputs, over_mesh, strict=True) if x is not None}
    return [of_shape.get(a.shape) or sharding_over(mesh, ((),) * a.ndim) for a in avals]


def _named_alike(results, held, layouts) -> list:
    """Shardings of results; where an operand of the same shape is cut alike, by the names that its sharding has."""
    known = {}
    for blocks, layout in reversed(list(zip(held, layouts, strict=True))):
        if layout is not None and blocks is not None and layout.mesh == blocks.mesh:
            known[blocks.shape, blocks.cuts] = layout
    return [known.get((b.shape, b.cuts)) or b.sharding for b in results]


def _as_rules_see_it(builder, eqn, inputs, avals, held, mesh) -> Operation:
    shapes = [v.aval.shape if b is None else b.shape for v, b in zip(inputs, held, strict=True)]
    cuts = [uncut(x) if b is None or b.mesh != mesh else b.cuts for x, b in zip(shapes, held, strict=True)]
    views = (builder.views.get(id(v)) for v in inputs)
    origins = [None if w is None else w.blocks.cuts for w in views]
    numeric = all(isinstance(v.aval.dtype, np.dtype) for v in inputs)
    return Operation(eqn.params, shapes, [a.shape for a in avals], cuts, mesh.shape, place_in(mesh), origins, numeric)


def combined(builder, v, over: tuple[Any, ...], op: str, mesh, source):
    """The ranks' partial results as one. Communicates one allreduce."""
    params = {"axes": over, "axis_index_groups": None}
    return communicate_here(builder, mesh, reduction_p(op), params, v, v.aval.shape, source)
