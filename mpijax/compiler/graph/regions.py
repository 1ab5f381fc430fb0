"""Represents bodies of loops and branches as graphs of their own.

A region reads captures (values from outside) and arguments that change each iteration. Operations that read no argument
are hoisted out of the loop if that saves work. Index maps of outside values stay inside, where they cost nothing;
outside they would need memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.compiler.graph.views import is_view
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.base.source import Source
from mpijax.core.programs.jaxpr import ClosedJaxpr, without_dead_code
from mpijax.core.rules.lowering import Communication, ControlFlow, Elementwise, Partitioned, Structural
from mpijax.core.types import effects as fx
from mpijax.ops.ad_ops import copy_p

# Elementwise results of at most this many elements are hoisted: the saved work is worth the memory.
SMALL = 4096
# Larger results are hoisted if the operation costs at least this much, or if the loop then reads less memory.
COSTLY = 4


@dataclass(frozen=True, eq=False)
class Region:
    """A body: its graph and the captured values. The graph's inputs are the arguments, then the captures.

    position: for each result of the Jaxpr, its position among the graph's results; equal results may share one.
    """

    graph: Any
    captures: tuple[Any, ...]
    arguments: int
    position: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class OpenRegion:
    """A body that is built, while the cuts of its results are still open. child: builds its graph."""

    child: Any
    args: list[Any]
    outs: list[Any]
    source: Source

    def closed(self, parts: Sequence[Any], carries: int | None = None, merge_from: int | None = None) -> Region:
        """The region.

        parts: the part of an array that each result is; None for whole arrays. carries: the position of the first carry
        among the arguments. A carry may be its unchanged argument; all other results are computed in the region.
        merge_from: the first result that is not a carry; from there on, equal results are stored once.
        """
        child, source = self.child, self.source
        outputs: list[Any] = []
        position: list[int] = []
        first: dict[Any, int] = {}
        for k, (v, part) in enumerate(zip(self.outs, parts, strict=True)):
            carried = carries is not None and (merge_from is None or k < merge_from)
            if merge_from is not None and not carried:
                if v in first:
                    position.append(first[v])
                    continue
                first[v] = len(outputs)
            position.append(len(outputs))
            if carries is None or not carried or v is not self.args[carries + k]:
                v = child.leaving(v, part, source)
                if v.producer is None or not child.owns(v) or any(v is o for o in outputs):
                    [v] = child.node(copy_p, {}, [child.local(v)], [v.aval], source)
            outputs.append(v)
        graph = child.finish(outputs)
        captures = tuple([v for v, inside in child.captured if inside in graph.users])
        return Region(graph, captures, len(graph.inputs) - len(captures), tuple(position))


def opened(builder, closed: ClosedJaxpr, args: Sequence[Any], source: Source, leaves: bool) -> OpenRegion:
    """The body of a loop or branch.

    args: for each argument an outer value, or the type and part of an argument that changes each iteration (None:
    whole). leaves: whether loop-invariant operations may be hoisted.
    """
    child = builder.child(leaves)
    inner = [child.argument_as(*a) if isinstance(a, tuple) else a for a in args]
    return OpenRegion(child, inner, child.inline(needed(closed), inner, source), source)


@memo_on_jaxpr
def needed(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The Jaxpr without dead operations; its arguments stay."""
    jaxpr, consts, _ = without_dead_code(closed.jaxpr, closed.consts)
    return ClosedJaxpr(jaxpr.replace(invars=closed.jaxpr.invars), consts)


def leaves_region(eqn, inputs: list[Any], avals) -> bool:
    """Whether an operation that reads only outer values is cheaper before the loop."""
    lower = eqn.primitive.lower
    if fx.pins(eqn.effects) or isinstance(lower, (Communication, Partitioned)):
        return False
    if isinstance(lower, (Elementwise, Structural)):
        cost = lower.cost if isinstance(lower, Elementwise) else 0
        return cost >= COSTLY or all(a.size <= SMALL for a in avals) or (cost > 0 and _saves_reads(inputs, avals))
    return not isinstance(lower, ControlFlow)


def _saves_reads(inputs: list[Any], avals) -> bool:
    """Whether a result needs less memory than the operands that are read for it, or takes the place of an operand.

    An operand that an operation computes before the loop usually needs no memory if its only reader is there, too.
    """
    arrays = {id(v): v for v in inputs if v.scalar is None}.values()
    whole = [v for v in arrays if v.size == avals[0].size]
    if any(v.producer is not None and not is_view(v.producer) and v.nbytes >= _nbytes(avals) for v in whole):
        return True
    return sum(_read(v) for v in arrays) > _nbytes(avals)


def _nbytes(avals) -> int:
    return sum(a.size * a.dtype.itemsize for a in avals)


def _read(v) -> int:
    """The bytes of memory that the elements of a value are read from, through index maps."""
    least = v.nbytes
    while v.producer is not None and is_view(v.producer):
        v = v.producer.inputs[0]
        least = min(least, v.nbytes)
    return least


def stays_view(value) -> bool:
    """Whether an outer value is read through an index map rather than from its own memory."""
    return value.producer is not None and is_view(value.producer)
