"""Bodies of loops and branches as graphs of their own.

A region reads values from outside (its captures) and arguments that are new in each turn. What does not depend
on those leaves the region where that saves work: it is computed once, before the loop. Index maps of outside
values stay inside, where they cost nothing; outside they would need memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from mpijax.compiler.graph.views import is_view
from mpijax.compiler.sharding.blocks import Blocks
from mpijax.compiler.sharding.redistribute import recut
from mpijax.core import effects as fx
from mpijax.core.avals import ShapedArray
from mpijax.core.jaxpr import ClosedJaxpr, without_dead_code
from mpijax.core.lazy_dataclass import dataclass
from mpijax.core.lowering import Communication, ControlFlow, Elementwise, Partitioned, Structural
from mpijax.core.memo import memo_on_jaxpr
from mpijax.core.source import UNKNOWN, Source
from mpijax.ops.ad_ops import copy_p

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


@dataclass
class Body:
    """A body that is built, before it is known how its results are to leave it. child: builds its graph."""

    child: Any
    args: list[Any]
    outs: list[Any]
    source: Source

    def closed(
        self, blocks: Sequence[Blocks | None], carries: int | None = None, merge_from: int | None = None
    ) -> Region:
        """The region.

        blocks: as which parts of arrays results leave; None for whole ones. carries: the position of the argument to
        which the first result is carried; a result may be its argument itself, while all others are made of operations
        of the region. merge_from: results from this one on are no carries, and are stored once where they are equal.
        """
        child, source = self.child, self.source
        outputs: list[Any] = []
        position: list[int] = []
        first: dict[Any, int] = {}
        for k, (v, part) in enumerate(zip(self.outs, blocks, strict=True)):
            carried = carries is not None and (merge_from is None or k < merge_from)
            if merge_from is not None and not carried:
                if v in first:
                    position.append(first[v])
                    continue
                first[v] = len(outputs)
            position.append(len(outputs))
            if carries is None or not carried or v is not self.args[carries + k]:
                if part is None:
                    v = child.whole(v, source)
                else:
                    v = recut(child.partitioner, v, part.mesh, part.cuts, source)
                if v.producer is None or not child.owns(v) or any(v is o for o in outputs):
                    [v] = child.node(copy_p, {}, [child.local(v)], [v.aval], source)
            outputs.append(v)
        graph = child.finish(outputs)
        captures = [v for v, inside in child.captured if inside.users]
        graph.inputs += [inside for _, inside in child.captured if inside.users]
        return Region(graph, captures, len(graph.inputs) - len(captures), position)


def opened(builder, closed: ClosedJaxpr, args: Sequence[Any], source: Source, leaves: bool) -> Body:
    """The body of a loop or branch.

    args: for each argument a value from outside, or the type of one that is new in each turn and which part of it this
    rank has (None for all of it). leaves: whether unchanging work may be done outside.
    """
    child = builder.child(leaves)
    inner = [_argument(child, *a) if isinstance(a, tuple) else a for a in args]
    return Body(child, inner, child.inline(needed(closed), inner, source), source)


def _argument(child, aval: ShapedArray, blocks: Blocks | None) -> Any:
    if blocks is None:
        return child.argument(aval)
    value = child.argument(aval.update(shape=blocks.local_shape))
    return child.partitioner.held_as(value, blocks, blocks.sharding, True, UNKNOWN)


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
