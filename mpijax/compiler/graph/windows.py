"""Computes only the window of a result that is read.

Of `(x @ y)[:10]` ten rows are read; of an array that every rank has whole, each rank may read its own part only. The
sharding rule of the operation says which windows of its operands it then needs. So the window moves back from operation
to operation, up to values that something else reads as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mpijax.compiler.graph.nodes import Graph, Node, Value
from mpijax.compiler.graph.views import start_of
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.default_rules import plan_for, rule_of
from mpijax.core.rules.lowering import Elementwise, Native, Structural
from mpijax.core.rules.sharding_rules import Operation
from mpijax.core.sharding.cuts import Cut, Span, WindowCut, uncut
from mpijax.core.types import effects as fx
from mpijax.ops.indexing.slicing import slice_p

# The largest part of a result that is computed instead of all of it.
MOST = 7 / 8

# For each axis of an array the positions that are read; None for all.
Read = tuple[Span | None, ...]


def narrowed(graph: Graph) -> Graph:
    """The graph, and those of its loops and branches, without work for elements that nothing reads."""
    for node in graph.nodes:
        if node.regions:
            node.regions = tuple([replace(region, graph=narrowed(region.graph)) for region in node.regions])
    if not any(map(_is_worth_it, graph.nodes)) or not any(map(_window_of, graph.nodes)):
        return graph
    plans = _useful(graph, _plans(graph))
    return _replaced(graph, plans) if plans else graph


def _is_worth_it(node: Node) -> bool:
    """Whether an operation computes its whole result; others compute an element where it is read."""
    return not isinstance(node.primitive.lower, Elementwise | Structural)


def _window_of(node: Node) -> Read | None:
    """The window of its operand that an operation reads; None if it does anything else, or reads nothing."""
    start = start_of(node)
    if start is None or not node.outputs[0].size:
        return None
    sizes, whole = node.outputs[0].aval.shape, node.inputs[0].aval.shape
    window = tuple(None if n == m else (s, s + n) for s, n, m in zip(start, sizes, whole, strict=True))
    return window if any(window) else None


@dataclass(frozen=True, slots=True)
class _Narrow:
    """An operation that computes a window of its result.

    reads: the window of each operand; None for all of it. params: its parameters then.
    """

    window: Read
    reads: Sequence[Read | None]
    params: Mapping[str, Any]


def _plans(graph: Graph) -> dict[Node, _Narrow]:
    """The operations that can compute the smallest window that contains all that is read."""
    plans: dict[Node, _Narrow] = {}
    read: dict[Value, Read | None] = dict.fromkeys(graph.outputs)
    for node in reversed(graph.nodes):
        window = read.get(node.outputs[0]) if node.outputs else None
        plan = None if window is None else _narrow(node, window)
        if plan is not None:
            plans[node] = plan
        for v, own in zip(node.inputs, plan.reads if plan else [_window_of(node)] * len(node.inputs), strict=True):
            read[v] = _both(read[v], own) if v in read else own
    return plans


def _both(a: Read | None, b: Read | None) -> Read | None:
    """The smallest window that contains two windows."""
    if a is None or b is None:
        return None
    spans = (None if x is None or y is None else (min(x[0], y[0]), max(x[1], y[1])) for x, y in zip(a, b, strict=True))
    both = tuple(spans)
    return both if any(both) else None


def _saves(shape: tuple[int, ...], window: Read) -> bool:
    """Whether a window leaves out enough of a result to be worth other code."""
    return MOST * math.prod(shape) >= math.prod(_sizes(shape, window))


def _sizes(shape: tuple[int, ...], window: Read) -> tuple[int, ...]:
    return tuple(n if span is None else span[1] - span[0] for n, span in zip(shape, window, strict=True))


def _narrow(node: Node, window: Read) -> _Narrow | None:
    """How an operation computes a window of its result from windows of its operands; None if it cannot."""
    rule, shapes, shape = rule_of(node.primitive), [v.aval.shape for v in node.inputs], node.outputs[0].aval.shape
    if not _saves(shape, window):
        return None
    own = _window_of(node)
    if own is not None:
        return _Narrow(window, [_inside(own, window)], {})
    status = isinstance(node.primitive.lower, Native)
    if rule is None or node.regions or fx.pins(node.effects) or len(node.outputs) != 1 + status:
        return None
    # The window is the part of a rank; other ranks have what is before and after it.
    wish: list[Cut | None] = [None] * len(shape)
    sizes, place = {}, {}
    for d, (n, span) in enumerate(zip(shape, window, strict=True)):
        if span is not None:
            parts = [s for s in ((0, span[0]), span, (span[1], n)) if s[0] < s[1]]
            wish[d], sizes[d], place[d] = WindowCut((d,), parts), len(parts), parts.index(span)
    seen = Operation(node.params, shapes, [shape], [uncut(x) for x in shapes], sizes, place)
    found = plan_for(seen, rule, tuple(wish))
    if found is None:
        return None
    _, plan = found
    if not any(map(any, plan.operands)):
        return None
    spans = [tuple(None if c is None else seen.span(c) for c in of) for of in plan.operands]
    if any(low >= high for x in spans for low, high in filter(None, x)):
        return None
    return _Narrow(window, [x if any(x) else None for x in spans], plan.params)


def _inside(window: Read, inner: Read) -> Read:
    """A window of a window."""

    def positions(span: Span | None, part: Span | None) -> Span | None:
        return span if part is None else part if span is None else (span[0] + part[0], span[0] + part[1])

    return tuple(map(positions, window, inner))


def _useful(graph: Graph, plans: Mapping[Node, _Narrow]) -> dict[Node, _Narrow]:
    """Operations that do less work, narrowed operations that they read, and narrowed operations that read either."""
    useful = set(filter(_is_worth_it, plans))
    for node in reversed(graph.nodes):
        if node in plans and any(reader in useful for reader in graph.users_of(node.outputs[0])):
            useful.add(node)
    for node in graph.nodes:
        if node in plans and any(v.producer in useful for v in node.inputs):
            useful.add(node)
    return {node: plan for node, plan in plans.items() if node in useful}


def _replaced(graph: Graph, plans: Mapping[Node, _Narrow]) -> Graph:
    """The graph with the operations of `plans` on windows."""
    nodes: list[Node] = []
    new: dict[Value, Value] = {}
    slices: dict[tuple[Value, Read], Value] = {}

    def part(v: Value, own: Read | None, reader: Node) -> Value:
        """A window of `v`; if `v` itself is narrowed, a slice of what is computed of it."""
        here, plan = new.get(v, v), None if v.producer is None else plans.get(v.producer)
        if own is not None and plan is not None:
            own = _relative(own, plan.window)
        if own is None:
            return here
        if (here, own) not in slices:
            nodes.append(_slice(here, own, reader))
            slices[here, own] = nodes[-1].outputs[0]
        return slices[here, own]

    for node in graph.nodes:
        plan, own = plans.get(node), _window_of(node)
        if own is not None and (plan is not None or node.inputs[0].producer in plans):
            new[node.outputs[0]] = part(node.inputs[0], own if plan is None else plan.reads[0], node)
        elif plan is not None:
            inputs = [part(v, read, node) for v, read in zip(node.inputs, plan.reads, strict=True)]
            out, *status = [v.aval for v in node.outputs]
            avals = [out.update(shape=_sizes(out.shape, plan.window)), *status]
            nodes.append(Node(node.primitive, dict(plan.params), inputs, avals, node.source, node.effects, node.why))
            new[node.outputs[0]] = nodes[-1].outputs[0]
        else:
            node.read_instead(new)
            nodes.append(node)
    return graph.rebuilt(nodes, [new.get(v, v) for v in graph.outputs])


def _relative(window: Read, around: Read) -> Read | None:
    """A window as one of a larger window; None if they are the same."""
    if window == around:
        return None
    begins = [0 if span is None else span[0] for span in around]
    return tuple(
        None if a == b or a is None else (a[0] - begin, a[1] - begin)
        for a, b, begin in zip(window, around, begins, strict=True)
    )


def _slice(v: Value, window: Read, reader: Node) -> Node:
    bounds = [span or (0, n) for n, span in zip(v.aval.shape, window, strict=True)]
    low, high = zip(*bounds, strict=True)
    params = {"start_indices": low, "limit_indices": high, "strides": None}
    aval = v.aval.update(shape=tuple(b - a for a, b in bounds))
    return Node(slice_p, params, [v], [aval], reader.source, fx.no_effects)
