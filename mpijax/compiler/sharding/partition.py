"""Partitions a program over ranks: shards of arguments, and communication within `shard_map` bodies.

Every rank builds its own graph. A value is either whole on every rank or cut into one block per rank; blocks may differ
in size. Cutting a whole value is free: the slice is an index map. Outside of `shard_map` bodies, each rank runs an
operation on its blocks if the primitive has a sharding rule; otherwise operands are gathered.

An array over several devices of one process is whole in this sense. Its sharding is a label, which propagates by the
same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mpijax.compiler.graph.nodes import ValueKind
from mpijax.compiler.graph.views import order_of, start_of
from mpijax.compiler.sharding import explicit, local_shards, messages, partly_manual, rounds, shown_parts, unreduced
from mpijax.compiler.sharding.blocks import Blocks, blocks_by, place_in, sharding_over
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.compiler.sharding.redistribute import (
    Redistribution,
    SliceView,
    extreme_of_all,
    gathered,
    recut,
    redistributed,
    rotation,
)
from mpijax.core.base.source import UNKNOWN, sources_from
from mpijax.core.rules.default_rules import rule_of
from mpijax.core.rules.lowering import Communication, OverRanks, Structural, Writes
from mpijax.core.rules.sharding_rules import Operation, Plan, Rule
from mpijax.core.sharding.cuts import Cuts, count, even_cut, mesh_axes, uncut
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.trace import named_axes
from mpijax.core.types import effects as fx
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.collectives.one_sided import paired


def run_shards(p: Partitioner, closed, params: dict[str, Any], inputs, source):
    """The body of a `shard_map` on this rank's shards."""
    mesh = params["mesh"]
    if mesh.stands_in:
        mesh = p.on_devices_of_values(mesh)
        params = params | {"mesh": mesh}
    if fx.one_sided in closed.effects:
        with named_axes(dict(mesh.shape)):
            closed = paired(local_shards.without_varying(closed))
    p.are_over(sharding_over(mesh, ()), lambda: "shard_map inside jit")
    if partly_manual.applies(p, closed, mesh, params["newly_manual_axes"], inputs):
        return partly_manual.run(p, closed, params, inputs, source)
    shardings = [NamedSharding(mesh, spec) for spec in params["in_specs"]]
    ranks = [a.ndim if mesh.are_all_axes_explicit else 0 for a in closed.out_avals]  # as results of all operations then
    results_in = [NamedSharding(mesh, s.padded(n)) for s, n in zip(params["out_specs"], ranks, strict=True)]
    # If a process stores its devices' shards separately, each process computes the shards of all devices.
    for_all = any(sharding.keeps_others for sharding in (*shardings, *results_in))
    if for_all:
        shardings = [sharding_over(mesh, ())] * len(inputs)
    local = [redistributed(p, v, sharding, source) for v, sharding in zip(inputs, shardings, strict=True)]
    first = len(p.nodes)
    with p.graph.apart():
        if mesh.holds_several:
            outs = local_shards.run(p, closed, params, local, for_all, source)
            outs = [redistributed(p, v, x, source) for v, x in zip(outs, results_in, strict=True)] if for_all else outs
        else:
            with p.in_body_over(mesh):
                outs = p.graph.inline(closed, local, source)
    made = p.made_since(first)
    results = []
    for v, sharding in zip(outs, results_in, strict=True):
        if p.in_body and not sharding.keeps_whole:
            raise NotImplementedError(
                "A shard_map inside another one must return replicated results. Use one shard_map over both axes."
            )
        results.append(p.marked(v, sharding, v in made, source))
    return results


# ---------------------------------------------------------------- operations on shards


def constant(p: Partitioner, v):
    """A constant as operations read it: whole inside `shard_map` bodies."""
    if not p.in_body:
        return v
    with p.in_body_over():
        return gathered(p, v, UNKNOWN)


def done(p: Partitioner, eqn, inputs, source) -> list:
    """The results of the current operation, on operands cut as requested and with pending sums where possible."""
    outs = rounds.done(p, eqn, inputs, source)
    if outs is not None:
        return outs
    frame = p.graph.frame
    wishes = None if frame is None else frame.asked
    if wishes is not None and id(eqn) in wishes.operands:
        inputs = _cut_as_asked(p, inputs, wishes.operands[id(eqn)], wishes.mesh, source)
    inputs, waiting = unreduced.ready(p, eqn, inputs, source)
    p.waiting = waiting
    outs = p.graph.apply(eqn, inputs, source)
    p.waiting = None
    return outs if waiting is None else [unreduced.go_on(p, eqn, outs[0], waiting, source)]


def placed(p: Partitioner, eqn, inputs, outs, first: int, source) -> list:
    """The results of an equation, sharded to match its operands and its types.

    first: the number of nodes before the equation was added.
    """
    if p.in_body:
        return outs
    outs = _followed(p, eqn, inputs, outs, first, source)
    return explicit.as_typed(p, eqn, outs, first, source) if ShapedArray.any_split and p.outer is None else outs


def made_whole(p: Partitioner, eqn, inputs, source) -> list:
    """The operands, gathered for an operation that needs whole arrays."""
    for k in range(len(inputs)):
        _remember_gather(p, eqn, k, inputs, source)
    return [gathered(p, v, source) for v in inputs]


def _cut_as_asked(p: Partitioner, inputs, asked, mesh, source) -> list:
    """The operands, cut as requested where they are whole: every rank already has its part."""

    def cut(v, cuts):
        whole = v.scalar is None and p.blocks_of(v) is None and v not in p.known.unreduced
        if cuts is None or not whole or p.in_body:
            return v
        blocks = Blocks(mesh, v.aval.shape, cuts)
        return p.held_as(recut(p, v, mesh, cuts, source), blocks, blocks.sharding, True, source)

    return [cut(v, cuts) for v, cuts in zip(inputs, asked, strict=True)]


def _remember_gather(p: Partitioner, eqn, k: int, inputs, source) -> None:
    """Record that an operation gathers its operand `k`, a split array."""
    v = inputs[k]
    if p.blocks_of(v) is not None:
        aval, argument = p.global_aval(v), v.position if v.kind is ValueKind.INPUT and v.outside is None else -1
        instead = _split_elsewhere(p, eqn, k, inputs)
        p.known.gathers[aval.nbytes, aval.str_short(True), eqn.primitive.name, source, k, argument, instead] = None


def _split_elsewhere(p: Partitioner, eqn, k: int, inputs) -> str:
    """A split of operand `k`, over the same mesh axes but along another array axis, that lets the operation run on
    shards without combining results; empty if there is none."""
    rule, held = rule_of(eqn.primitive), [p.blocks_of(v) for v in inputs]
    have = held[k]
    if rule is None or have is None:
        return ""
    axes = mesh_axes(have.cuts)
    parts = count(axes, have.mesh.processes_along)
    seen = _as_rules_see_it(p, eqn, inputs, [v.aval for v in eqn.outvars], held, have.mesh)
    for d, n in enumerate(have.shape):
        if have.cuts[d] is not None or n == 0 or n % parts:
            continue
        cuts = (*uncut(have.shape[:d]), even_cut(n, axes, parts), *uncut(have.shape[d + 1 :]))
        others = [*seen.cuts[:k], cuts, *seen.cuts[k + 1 :]]
        plan = rule(replace(seen, cuts=others, origins=()))
        if plan is not None and plan.whole is None and not plan.over and plan.operands[k] == cuts:
            return str(sharding_over(have.mesh, (*((),) * d, axes)).spec)
    return ""


def shown(p: Partitioner, eqn, inputs, source) -> list | None:
    """An operation without results that shows each device's part of its operands; None if it shows them whole."""
    rule = rule_of(eqn.primitive)
    held, shardings = [p.blocks_of(v) for v in inputs], [p.sharding_held(v) for v in inputs]
    mesh = next((b.mesh for b in held if b is not None), shown_parts.device_mesh(shardings))
    if rule is None or mesh is None or p.in_body:
        return None
    plan = rule(_as_rules_see_it(p, eqn, inputs, [], held, mesh))
    return None if plan is None else shown_parts.add(p, eqn, plan, inputs, held, shardings, mesh, source)


def spread(p: Partitioner, eqn, inputs, avals, source):
    """An operation outside of `shard_map` bodies, run by each rank on its shards; None if it needs whole operands."""
    held = [p.blocks_of(v) for v in inputs]
    mesh = next((b.mesh for b in held if b is not None), None)
    rule = rule_of(eqn.primitive)
    if mesh is None or rule is None or fx.pins(eqn.effects):
        return None
    rotated = _rotated(p, eqn, inputs, source)
    if rotated is not None:
        return [rotated]
    seen = _as_rules_see_it(p, eqn, inputs, avals, held, mesh)
    plan = rule(seen)
    if plan is None:
        return None
    if plan.whole is not None:
        with sources_from(source):
            closed = trace_to_closed_jaxpr(_listed(plan.whole), [p.global_aval(v) for v in inputs])
        return p.graph.inline(closed, inputs, source)
    # Merges whole operations, as every rank does. Work on shards is not merged: it may be equal on this rank only.
    do = partial(_done_on_parts, p, eqn, plan, inputs, avals, held, seen, source)
    outs = p.graph.once((eqn.primitive, mesh), eqn.params, inputs, avals, do)
    if plan.over and plan.op is OverRanks.SUM:
        waiting = unreduced.wait(p, outs[0], mesh, plan.over)
        return outs if unreduced.may_wait(p, eqn, mesh) else [unreduced.finished(p, outs[0], waiting, None, source)]
    return outs


def _done_on_parts(p: Partitioner, eqn, plan: Plan, inputs, avals, held, seen: Operation, source) -> list:
    """The results of an operation that each rank runs on its shards; their sum over ranks may stay pending."""
    mesh, rule = next(b.mesh for b in held if b is not None), rule_of(eqn.primitive)
    assert rule is not None
    first = len(p.nodes)
    for k, cuts in enumerate(plan.operands):
        if not any(cuts):
            _remember_gather(p, eqn, k, inputs, source)
    operands = [recut(p, v, mesh, cuts, source) for v, cuts in zip(inputs, plan.operands, strict=True)]
    results = [Blocks(mesh, a.shape, cuts) for a, cuts in zip(avals, plan.results, strict=True)]
    for aval, blocks in zip(avals, results, strict=True):
        p.known.placements[aval, eqn.primitive.name, source, tuple(mesh.processes_along.items()), blocks.cuts] = None
    outs = done_here(p, eqn, plan, operands, avals, results, source)
    if plan.over and plan.op is not OverRanks.SUM:
        compared = plan.op in (OverRanks.MAX, OverRanks.MIN) and avals[0].dtype.kind == "c"
        combine = extreme_of_all if compared else messages.combined
        outs = [combine(p, outs[0], plan.over, plan.op, mesh, source)]
    made = p.made_since(first)
    named = _named_alike(results, held, [p.sharding_held(v) for v in inputs])
    outs = [
        p.held_as(o, blocks, sharding, o in made, source)
        for o, blocks, sharding in zip(outs, results, named, strict=True)
    ]
    start, order = start_of(eqn), order_of(eqn)
    if start is not None:
        _remember_view(p, start, avals[0].shape, inputs[0], held[0], outs[0])
    if order is not None and held[0] is not None:
        p.turned[outs[0]] = inputs[0], held[0], order
    p.known.lost.update(zip(outs, _lost(p, rule, seen, plan.plain or plan, inputs), strict=False))
    return outs


def _lost(p: Partitioner, rule: Rule, seen: Operation, plan: Plan, inputs) -> Sequence[Cuts]:
    """The cuts that results would have if no operand had been gathered, for this operation or before."""
    lost = [
        tuple((h or before) if w is None else None for h, before, w in zip(have, old, want, strict=True))
        for have, want, old in zip(
            seen.cuts, plan.operands, (p.known.lost.get(v) or uncut(v.aval.shape) for v in inputs), strict=True
        )
    ]
    found = rule(replace(seen, cuts=lost, origins=())) if any(map(any, lost)) else None
    if found is None or found.over or found.program is not None or found.whole is not None:
        return ()
    pairs = (pair for cuts, want in zip(lost, found.operands, strict=True) for pair in zip(cuts, want, strict=True))
    return found.results if all(cut is None or cut == want for cut, want in pairs) else ()


def _rotated(p: Partitioner, eqn, inputs, source):
    """A concatenation of two slices that rotates an array (`jnp.roll`), as one exchange; else None."""
    lower = eqn.primitive.lower
    if not isinstance(lower, Structural) or lower.writes is not Writes.CONCATENATE:
        return None
    found = rotation([p.views.get(v) for v in inputs], eqn.params["dimension"])
    if found is None:
        return None
    view, by = found
    first = len(p.nodes)
    move = Redistribution(p, view.blocks.mesh, source)
    out = move.rotated(view.source, view.blocks, eqn.params["dimension"], by)
    made = p.made_since(first)
    sharding = p.sharding_held(view.source) or view.blocks.sharding
    return p.held_as(out, view.blocks, sharding, out in made, source)


def done_here(p: Partitioner, eqn, plan: Plan, operands, avals, results, source) -> list:
    """The operation on this rank's shards, as in the body of a `shard_map`."""
    mesh = results[0].mesh
    if plan.program is not None:
        return messages.computed_together(p, mesh, plan.program, operands, eqn.primitive.name, source)
    with p.in_body_over(mesh):
        local = [a.update(shape=b.local_shape, split=None) for a, b in zip(avals, results, strict=True)]
        outvars = [type(v)(a) for v, a in zip(eqn.outvars, local, strict=True)]
        here = eqn.replace(params=dict(plan.params), outvars=outvars)
        # In a loop, invariant operations may have been added outside; `local` captures their results.
        return [p.graph.local(v) for v in p.graph.apply(here, operands, source)]


def _listed(program):
    """The program, returning a list."""

    def call(*args):
        out = program(*args)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    return call


def as_result(p: Partitioner, v):
    """A value as a program returns it: in blocks of `ceil(size / parts)`, the last ones shorter or empty.

    An axis with fewer elements than ranks becomes whole.
    """
    blocks = p.blocks_of(v)
    if blocks is None or blocks.is_even:
        return v
    after = blocks.recut(_even_cuts(blocks))
    return p.held_as(recut(p, v, blocks.mesh, after.cuts, UNKNOWN), after, after.sharding, True, UNKNOWN)


def _even_cuts(blocks: Blocks) -> Cuts:
    cuts = (None if c is None else blocks.even(d, blocks.mesh.process_axes(c.axes)) for d, c in enumerate(blocks.cuts))
    return tuple(c if c is None or n >= c.parts or n == 0 else None for n, c in zip(blocks.shape, cuts, strict=True))


def _remember_view(p: Partitioner, start, shape, v, blocks: Blocks | None, out) -> None:
    """Record that `out`, whole of this shape, is a window of `v`, so that its halos can be read from `v`."""
    if blocks is None or p.blocks_of(out) is None:
        return
    starts, ends = start, tuple(s + n for s, n in zip(start, shape, strict=True))
    inner = p.views.get(v)
    if inner is not None and all(a == b or b is None for a, b in zip(inner.blocks.cuts, blocks.cuts, strict=True)):
        v, blocks = inner.source, inner.blocks
        starts, ends = (tuple(a + b for a, b in zip(x, inner.starts, strict=True)) for x in (starts, ends))
    p.views[out] = SliceView(v, blocks, tuple(starts), tuple(ends))


def _followed(p: Partitioner, eqn, inputs, outs, first: int, source) -> list:
    """The results of an operation on whole values or on values over several devices of a process, with shardings.

    Results of messages on a communicator, and values computed from them, get none: ranks differ. first: see `placed`.
    """
    lower = eqn.primitive.lower
    told = isinstance(lower, Communication) and lower.on_communicator
    if told or not p.known.own.isdisjoint(inputs):
        p.known.own.update(outs)
        return outs
    shardings = [x if _is_followed_by_name(x) else None for x in map(p.sharding_held, inputs)]
    one = next((x for x in shardings if x is not None), None)
    if one is None:
        return outs
    avals = [v.aval for v in eqn.outvars]
    spread_by_rule = hasattr(one, "mesh") and rule_of(eqn.primitive) is not None
    made: set[Any] = p.made_since(first) if spread_by_rule else set()

    def named(out, sharding):
        if sharding.memory_kind != one.memory_kind:
            sharding = sharding.with_memory_kind(one.memory_kind)
        if out.scalar is not None:
            return out
        if out not in p.known.shardings:
            return p.marked(out, sharding, True, source) if sharding.keeps_whole else out
        if out in made:
            blocks = p.blocks_of(out) or Blocks(sharding.mesh, out.aval.shape, uncut(out.aval.shape))
            if blocks_by(sharding, blocks.shape) == blocks:
                p.known.shardings[out] = sharding
        return out

    found = _shardings_of_results(p, eqn, inputs, outs, shardings, one)
    if found is None:
        made = set() if one.is_fully_addressable else made  # the operations that it consists of know better
        found = _shardings_by_shape(p, inputs, avals, shardings, one)
    return list(map(named, outs, found))


def _is_followed_by_name(sharding) -> bool:
    """Whether a sharding is only a label: this process has the shards of several devices, or the whole array."""
    if sharding is None:
        return False
    return sharding.is_fully_addressable or (
        hasattr(sharding, "mesh") and (sharding.mesh.holds_several or sharding.keeps_whole)
    )


def _shardings_of_results(p: Partitioner, eqn, inputs, outs, shardings, first) -> list | None:
    """The shardings that the rule of an operation gives its results; None if it gives none."""
    avals = [v.aval for v in eqn.outvars]
    if not hasattr(first, "mesh"):
        return [first] * len(avals)
    mesh, rule = first.mesh, rule_of(eqn.primitive)
    if first.is_fully_addressable:  # where nothing moves between processes, the cheaper plan is no reason for a label
        rule = getattr(rule, "named", rule)
    devices = mesh.abstract_mesh  # its blocks are per device, not per process
    over = [x.update(mesh=devices) if x is not None and getattr(x, "mesh", None) == mesh else None for x in shardings]
    shapes = [p.global_aval(v).shape for v in inputs]
    held = [
        None if x is None else p.known.uneven.get(v) or blocks_by(x, shape)
        for v, x, shape in zip(inputs, over, shapes, strict=True)
    ]
    first_device = dict.fromkeys(mesh.axis_names, 0)
    plan = rule(_as_rules_see_it(p, eqn, inputs, avals, held, devices, first_device)) if rule is not None else None
    if plan is None or plan.whole is not None:
        return None
    results = [Blocks(devices, a.shape, c) for a, c in zip(avals, plan.results, strict=True)]
    p.known.uneven.update(
        (v, b) for v, b in zip(outs, (b.evened(exactly=False) for b in results), strict=True) if not b.is_even
    )
    names = _named_alike([b.evened(exactly=True) for b in results], held, over)
    return [x.update(mesh=mesh) for x in names]


def _shardings_by_shape(p: Partitioner, inputs, avals, shardings, first) -> list:
    """The shardings of results without a rule: those of operands of the same shape, else whole."""
    shapes = [p.global_aval(v).shape for v in inputs]
    of_shape = {shape: x for shape, x in zip(shapes, shardings, strict=True) if hasattr(x, "mesh")}
    return [of_shape.get(a.shape) or sharding_over(first.mesh, ((),) * a.ndim) for a in avals]


def _named_alike(results, held, shardings) -> list:
    """Shardings of results; a result with the shape and cut of an operand gets that operand's own sharding."""
    known = {}
    for blocks, sharding in reversed(list(zip(held, shardings, strict=True))):
        if sharding is not None and blocks is not None and sharding.mesh == blocks.mesh:
            known[blocks.shape, blocks.cuts] = sharding
    return [known.get((b.shape, b.cuts)) or b.sharding for b in results]


def _as_rules_see_it(p: Partitioner, eqn, inputs, avals, held, mesh, place=None) -> Operation:
    """An operation in the form that sharding rules take. place: coordinates along mesh axes, by default this rank's."""
    shapes = [p.global_aval(v).shape if b is None else b.shape for v, b in zip(inputs, held, strict=True)]
    cuts = [uncut(x) if b is None or b.mesh != mesh else b.cuts for x, b in zip(shapes, held, strict=True)]
    views = (p.views.get(v) for v in inputs)
    origins = [None if w is None else w.blocks.cuts for w in views]
    numeric = all(isinstance(v.aval.dtype, np.dtype) for v in inputs)
    results, sizes = [a.shape for a in avals], mesh.processes_along
    return Operation(eqn.params, shapes, results, cuts, sizes, place or place_in(mesh), origins, numeric)
