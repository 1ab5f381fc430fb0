"""Bodies of loops and branches as graphs of their own.

A region reads values from outside (its captures) and arguments that are new in each turn. What does not depend
on those leaves the region where that saves work: it is computed once, before the loop. Index maps of outside
values stay inside, where they cost nothing; outside they would need memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mpijax.compiler.graph.views import is_view
from mpijax.compiler.sharding import partition
from mpijax.compiler.sharding.blocks import Blocks
from mpijax.core import effects as fx
from mpijax.core.avals import ShapedArray
from mpijax.core.jaxpr import ClosedJaxpr, without_dead_code
from mpijax.core.lowering import Communication, ControlFlow, Elementwise, Partitioned, Structural
from mpijax.core.memo import memo_on_jaxpr
from mpijax.core.registry import registry
from mpijax.core.source import UNKNOWN

# An elementwise result of at most this many elements is worth memory when that takes work out of a loop.
SMALL = 4096
# So is a larger one of an operation that costs at least this much.
COSTLY = 4


@dataclass
class Region:
    """A body: its graph, whose inputs are the arguments and then the captures, and the values captured.

    position: for each result of the Jaxpr, which result of the graph it is; equal ones can be one.
    """

    graph: Any
    captures: list[Any] = field(default_factory=list)
    arguments: int = 0
    position: list[int] = field(default_factory=list)


def argument(child, aval: ShapedArray, blocks: Blocks) -> Any:
    """A new argument of a body: this rank's part of an array of type `aval`."""
    value = child.argument(aval.update(shape=blocks.local_shape))
    return partition.held_as(child, value, blocks, blocks.sharding, True, UNKNOWN)


def make_region(
    builder,
    closed: ClosedJaxpr,
    args: list[Any],
    source,
    *,
    leaves: bool,
    carries=(),
    merge_from: int | None = None,
    out_blocks: Sequence[Blocks] | None = None,
) -> Region:
    """The region of a body.

    args: for each argument a value from outside, or the type of one that is new in each turn; with its blocks where it
    is part of an array. out_blocks: as which parts of arrays results leave; whole by default.
    leaves: whether unchanging work may be done outside. carries: pairs of result and argument positions; such a
    result may be the argument itself, while all others are made of operations of the region. merge_from: results
    from this one on are stored once where they are equal.
    """
    child = builder.child(leaves)
    inner = [
        argument(child, *a) if isinstance(a, tuple) else child.argument(a) if isinstance(a, ShapedArray) else a
        for a in args
    ]
    outs = child.inline(needed(closed), inner, source)
    kept = dict(carries)
    outputs: list[Any] = []
    position: list[int] = []
    first: dict[int, int] = {}
    for k, v in enumerate(outs):
        if merge_from is not None and k >= merge_from:
            if id(v) in first:
                position.append(first[id(v)])
                continue
            first[id(v)] = len(outputs)
        position.append(len(outputs))
        if k in kept and v is inner[kept[k]]:
            outputs.append(v)
            continue
        if out_blocks is None:
            v = child.whole(v, source)
        else:
            v = partition.recut(child, v, out_blocks[k].mesh, out_blocks[k].cuts, source)
        if v.producer is None or not child.owns(v) or any(v is o for o in outputs):
            [v] = child.node(registry["copy"], {}, [child.local(v)], [v.aval], source)
        outputs.append(v)
    graph = child.finish(outputs)
    captures = [v for v, inside in child.captured if inside.users]
    graph.inputs += [inside for _, inside in child.captured if inside.users]
    return Region(graph, captures, len(graph.inputs) - len(captures), position)


@memo_on_jaxpr
def needed(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Without operations that no result needs."""
    jaxpr, consts, _ = without_dead_code(closed.jaxpr, closed.consts)
    return ClosedJaxpr(jaxpr.replace(invars=closed.jaxpr.invars), consts)


def leaves_region(eqn, avals) -> bool:
    """Whether an operation on outside values is better done outside."""
    lower = eqn.primitive.lower
    if fx.pins(eqn.effects) or isinstance(lower, (Communication, Partitioned)):
        return False
    if isinstance(lower, (Elementwise, Structural)):
        cost = lower.cost if isinstance(lower, Elementwise) else 0
        return cost >= COSTLY or all(a.size <= SMALL for a in avals)
    return not isinstance(lower, ControlFlow)


def stays_view(value) -> bool:
    """Whether an outside value is read through an index map, rather than from memory of its own."""
    return value.producer is not None and is_view(value.producer)


def control_node(builder, eqn, inputs: list[Any], avals, source):
    """The operation of a loop or branch: its inputs are the operands, then what its regions capture.

    Returns the results; a branch that is known is inlined.
    """
    kind = eqn.primitive.lower.kind
    return {"cond": _cond, "while": _while, "scan": _scan}[kind](builder, eqn, inputs, avals, source)


def _cond(builder, eqn, inputs, avals, source):
    index, *operands = inputs
    branches = eqn.params["branches"]
    if index.scalar is not None:
        return builder.inline(branches[min(max(int(index.scalar), 0), len(branches) - 1)], operands, source)
    regions = [make_region(builder, b, operands, source, leaves=False) for b in branches]
    return builder.control(eqn, [index], regions, avals, source)


def _while(builder, eqn, inputs, avals, source):
    p = eqn.params
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    carries = [v.aval for v in p["body_jaxpr"].jaxpr.invars[nb:]]
    same = [(k, nb + k) for k in range(len(carries))]
    cond = make_region(builder, p["cond_jaxpr"], [*inputs[:nc], *carries], source, leaves=True)
    body = make_region(
        builder, p["body_jaxpr"], [*inputs[nc : nc + nb], *carries], source, leaves=True, carries=same
    )
    return builder.control(eqn, inputs[nc + nb :], [cond, body], avals, source)


def _scan(builder, eqn, inputs, avals, source):
    p = eqn.params
    consts, rest = inputs[: p["num_consts"]], inputs[p["num_consts"] :]
    if p["length"] == 1:
        return _one_turn(builder, p, consts, rest, avals, source)
    fresh = [v.aval for v in p["jaxpr"].jaxpr.invars[len(consts) :]]
    same = [(k, len(consts) + k) for k in range(p["num_carry"])]
    body = make_region(
        builder, p["jaxpr"], [*consts, *fresh], source, leaves=True, carries=same, merge_from=p["num_carry"]
    )
    first = [body.position.index(at) for at in range(len(body.graph.outputs))]
    outs = builder.control(eqn, rest, [body], [avals[k] for k in first], source)
    return [outs[at] for at in body.position]


def _one_turn(builder, p, consts, rest, avals, source):
    """A scan of length 1 is its body."""
    n = p["num_carry"]
    slices = [v.aval for v in p["jaxpr"].jaxpr.invars[len(consts) + n :]]

    def reshaped(v, aval):
        params = {"new_sizes": aval.shape, "dimensions": None, "sharding": None}
        return builder.node(registry["reshape"], params, [builder.local(v)], [aval], source)[0]

    xs = [reshaped(v, aval) for v, aval in zip(rest[n:], slices, strict=True)]
    outs = builder.inline(p["jaxpr"], [*consts, *rest[:n], *xs], source)
    return [*outs[:n], *(reshaped(v, aval) for v, aval in zip(outs[n:], avals[n:], strict=True))]
