"""Computes large intermediate arrays part by part, in a loop, so that the whole array never exists.

In attention the scores (queries times keys) are large, but the operations that follow reduce them to the size of the
queries. The sharding rules define each operation on one shard of an axis; here the shards are loop iterations instead
of ranks. The loop starts at a product with a large result. Later operations join it if they work on its parts, or sum a
result over them. An iteration holds only its part of each large array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from mpijax.compiler.graph.nodes import Graph, Node, OpenGraph, Value, ValueKind, operation_of
from mpijax.compiler.graph.products import dims_of
from mpijax.compiler.graph.regions import Region
from mpijax.compiler.graph.views import counted_axis, spread_axes
from mpijax.core.base import config
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.default_rules import operands_for, rule_of
from mpijax.core.rules.lowering import Library, OverRanks
from mpijax.core.rules.sharding_rules import Operation, Plan, Rule
from mpijax.core.sharding.cuts import Cuts, even_cut, uncut
from mpijax.core.types import effects as fx
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.control_flow.scan import scan_p
from mpijax.ops.elementwise.binary import add_p, mul_p
from mpijax.ops.shapes.creation import iota_p
from mpijax.ops.shapes.reshape import broadcast_in_dim_p, reshape_p, transpose_p

# Minimum bytes of a product computed in a loop, and the target bytes of its part in one iteration.
LARGE = 2**26
PART = 2**24
# The product must be this many times larger than all that the loop slices, stacks and sums.
TIMES = 4
# Minimum rows in an iteration: BLAS is slow on products with fewer.
ROWS = 64
# Maximum depth of the search for producers to move into the loop.
DEEPEST = 16

_AXES = ("iteration",)


def in_parts(graph: Graph) -> Graph:
    """The graph, and those of its loops and branches, with loops instead of operations on large arrays."""
    if config.values.mpijax_same_bits:
        return graph
    for node in graph.nodes:
        if node.regions:
            node.regions = tuple([replace(region, graph=in_parts(region.graph)) for region in node.regions])
    seen: set[Node] = set()
    while True:
        first = next((n for n in graph.nodes if _is_large(n) and n not in seen), None)
        if first is None:
            return graph
        seen.add(first)
        axes = range(first.outputs[0].aval.ndim)
        tried = (_stretch(graph, first, axis, others) for others in (False, True) for axis in axes)
        found = next((stretch for stretch in tried if stretch is not None), None)
        if found is not None:
            graph = _replaced(graph, found)


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Operations computed in one loop, part by part.

    cuts: the axis along which each result is divided; None for a result that is summed over the iterations. plans: each
    operation's work in one iteration, and its reads of operands. after: outer values that depend on them.
    """

    graph: Graph
    iterations: int
    cuts: dict[Value, int | None] = field(default_factory=dict)
    plans: dict[Node, Plan] = field(default_factory=dict)
    after: set[Value] = field(default_factory=set)

    def part(self, v: Value, axis: int) -> Cuts:
        shape = v.aval.shape
        return (*uncut(shape[:axis]), even_cut(shape[axis], _AXES, self.iterations), *uncut(shape[axis + 1 :]))

    def axis_of(self, v: Value, cuts: Cuts) -> int | None:
        """The axis along which the iterations divide a value evenly; None if it is whole or divided otherwise."""
        axes = [d for d, cut in enumerate(cuts) if cut is not None]
        even = len(axes) == 1 and v.aval.shape[axes[0]] % self.iterations == 0 and tuple(cuts) == self.part(v, axes[0])
        return axes[0] if even else None

    def local(self, v: Value, cuts: Cuts) -> ShapedArray:
        """The type of one iteration's part."""
        parts = (self.iterations if cut else 1 for cut in cuts)
        return v.aval.update(shape=tuple(n // k for n, k in zip(v.aval.shape, parts, strict=True)))

    def begins(self, product: Node, axis: int) -> bool:
        """Tries to start the loop with a product divided along an axis of its result; whether it can."""
        d = dims_of(product)
        left = (*d.lhs_batch, *d.lhs_free, *(None for _ in d.rhs_free))[axis]
        right = (*d.rhs_batch, *(None for _ in d.lhs_free), *d.rhs_free)[axis]
        reads = zip(product.inputs, (left, right), strict=True)
        cuts = [uncut(v.aval.shape) if at is None else self.part(v, at) for v, at in reads]
        return self.enters(product, cuts) and self.cuts[product.outputs[0]] == axis

    def joins(self, node: Node) -> bool:
        """Tries to add an operation to the loop, cut like the operands it reads from it; whether it can."""
        axes = [self.cuts.get(v) for v in node.inputs]
        if any(axis is None and v in self.cuts for v, axis in zip(node.inputs, axes, strict=True)):
            return False
        cuts = [uncut(v.aval.shape) if d is None else self.part(v, d) for v, d in zip(node.inputs, axes, strict=True)]
        return self.enters(node, cuts)

    def enters(self, node: Node, cuts: Sequence[Cuts]) -> bool:
        """Tries to add an operation to the loop with its operands cut as `cuts`; whether it can."""
        rule, values = _rule(node), (*node.inputs, *node.outputs)
        plain = all(isinstance(v.aval.dtype, np.dtype) and v.size for v in values)
        if rule is None or not plain:
            return False
        plan, last = (rule(self.whole(node, cuts, iteration)) for iteration in (0, self.iterations - 1))
        if plan is None or last is None or plan.program is not None or plan.whole is not None:
            return False
        reads = zip(node.inputs, cuts, plan.operands, strict=True)
        as_cut = all(not any(want) or self.axis_of(v, want) is not None for v, _, want in reads)
        stays = all(not any(cut) or tuple(want) == tuple(cut) for cut, want in zip(cuts, plan.operands, strict=True))
        axes = [self.axis_of(v, cut) for v, cut in zip(node.outputs, plan.results, strict=True)]
        summed = bool(plan.over) and plan.op is OverRanks.SUM and not any(map(any, plan.results))
        if not as_cut or not stays or dict(plan.params) != dict(last.params) or (None in axes) != summed:
            return False
        self.cuts.update(zip(node.outputs, axes, strict=True))
        self.plans[node] = plan
        return True

    def pull(self) -> None:
        """Move producers into the loop if only the loop reads their results and they do not read more than it did."""
        for v, axis in list(self.sliced()):
            new = {node: cuts for node, cuts in self.pulled(v, axis, ())[1] if node not in self.plans}
            if not all(self.enters(node, cuts) for node, cuts in new.items()) or not self.agrees():
                for node in new:
                    self.plans.pop(node, None)
                    for out in node.outputs:
                        self.cuts.pop(out, None)

    def agrees(self) -> bool:
        """Whether each result is read with the cut with which its operation makes it."""
        reads = (pair for n, plan in self.plans.items() for pair in zip(n.inputs, plan.operands, strict=True))
        made = ((v, cuts, self.cuts[v]) for v, cuts in reads if v in self.cuts)
        return all(axis is not None and tuple(cuts) == self.part(v, axis) for v, cuts, axis in made)

    def pulled(self, v: Value, axis: int, path: tuple[Node, ...]) -> tuple[int, list[tuple[Node, list[Cuts]]]]:
        """Bytes sliced for a value, and the producers to move into the loop for it. path: the operations reading it."""
        node, bytes_read = v.producer, self.moves(v, axis)
        rule = None if node is None else _rule(node)
        if node is None or rule is None or not bytes_read or len(node.outputs) > 1 or len(path) == DEEPEST:
            return bytes_read, []
        found = operands_for(self.whole(node), rule, self.part(v, axis))
        if found is None or any(u not in self.plans and u not in path for u in self.graph.users_of(v)):
            return bytes_read, []
        reads = {(u, self.axis_of(u, c)) for u, c in zip(node.inputs, found, strict=True) if c and u not in self.cuts}
        total = 0
        before: list[tuple[Node, list[Cuts]]] = []
        for u, d in reads:
            if d is None:
                return bytes_read, []
            moved, nodes = self.pulled(u, d, (*path, node))
            total, before = total + moved, [*before, *nodes]
        cuts = [c or uncut(u.aval.shape) for c, u in zip(found, node.inputs, strict=True)]
        return (total, [*before, (node, cuts)]) if total <= bytes_read else (bytes_read, [])

    def moves(self, v: Value, axis: int) -> int:
        """Bytes read part by part; 0 for a value that repeats along the axis or counts its positions."""
        return 0 if _repeats(v, axis) or _counts(v, axis) else v.nbytes

    def whole(self, node: Node, cuts: Sequence[Cuts] | None = None, iteration: int = 0) -> Operation:
        """An operation in the form that sharding rules take."""
        shapes, results = ([v.aval.shape for v in of] for of in (node.inputs, node.outputs))
        cuts = [uncut(x) for x in shapes] if cuts is None else cuts
        return Operation(node.params, shapes, results, cuts, {"iteration": self.iterations}, {"iteration": iteration})

    def sliced(self) -> dict[tuple[Value, int], None]:
        """The values that the loop reads part by part, with the axis of each."""
        reads = (
            (v, self.axis_of(v, cuts)) for node, plan in self.plans.items()
            for v, cuts in zip(node.inputs, plan.operands, strict=True) if v not in self.cuts
        )  # fmt: skip
        return {(v, axis): None for v, axis in reads if axis is not None}

    def left(self) -> list[Value]:
        """Results that are read outside the loop."""
        outputs, users = set(self.graph.outputs), self.graph.users_of
        return [v for v in self.cuts if v in outputs or any(u not in self.plans for u in users(v))]


def _rule(node: Node) -> Rule | None:
    """The sharding rule of an operation that a loop can run part by part; None for others."""
    return None if node.regions or fx.pins(node.effects) else rule_of(node.primitive)


def _repeats(v: Value, axis: int) -> bool:
    """Whether a value was broadcast along an axis, so that all its positions are equal."""
    node = v.producer
    if node is None:
        return False
    counted, axes = counted_axis(node), spread_axes(node)
    if axes is None:
        return counted not in (None, axis)
    return axis not in axes or node.inputs[0].aval.shape[axes.index(axis)] == 1


def _counts(v: Value, axis: int) -> bool:
    """Whether each element of a value is its position along an axis (iota)."""
    node = v.producer
    return node is not None and counted_axis(node) == axis and v.element.kind in "iu"


def _stretch(graph: Graph, product: Node, axis: int, others: bool) -> _Stretch | None:
    """The operations of a loop that divides a large product along one axis of its result; None if not worth it.

    others: whether later products of the same shape join although they read nothing from the loop.
    """
    out, least = product.outputs[0], 1 if axis < len(dims_of(product).lhs_batch) else ROWS
    n = out.aval.shape[axis]
    possible = [t for t in range(2, n // least + 1) if n % t == 0]
    if not possible:
        return None
    found = _Stretch(graph, next((t for t in possible if out.nbytes <= t * PART), possible[-1]))
    if not found.begins(product, axis):
        return None
    messages = False
    for node in graph.nodes[graph.nodes.index(product) + 1 :]:
        late = any(v in found.after for v in node.inputs)
        reads = any(v in found.cuts for v in node.inputs)
        if late or (reads and not found.joins(node)):
            found.after.update(node.outputs)
            messages |= fx.pins(node.effects)
        elif messages and fx.pins(node.effects):  # messages keep their order
            break
        elif others and not reads and _is_large(node) and node.outputs[0].aval.shape == out.aval.shape:
            found.begins(node, axis)
    found.pull()
    moved = sum(found.moves(v, at) for v, at in found.sliced()) + sum(v.nbytes for v in found.left())
    return found if TIMES * moved <= out.nbytes else None


def _is_large(node: Node) -> bool:
    return isinstance(node.primitive.lower, Library) and node.outputs[0].nbytes >= LARGE


class _StretchLoop:
    """Builds the loop of a stretch: its body, and the operations around it that cut and join arrays."""

    def __init__(self, graph: Graph, stretch: _Stretch):
        self.graph, self.stretch = graph, stretch
        self.nodes: list[Node] = []
        self.body = OpenGraph()
        self.inside: dict[Any, Value] = {}
        self.captures: list[Value] = []
        self.source = next(iter(stretch.plans)).source

    def node(self, nodes: list[Node], primitive: Any, params: dict[str, Any], inputs: list[Value], aval) -> Value:
        nodes.append(Node(primitive, params, inputs, [aval], self.source, fx.no_effects))
        return nodes[-1].outputs[0]

    def argument(self, aval: ShapedArray) -> Value:
        self.body.inputs.append(Value(aval, ValueKind.INPUT, position=len(self.body.inputs)))
        return self.body.inputs[-1]

    def reshaped(self, v: Value, shape: Sequence[int]) -> Value:
        params = {"new_sizes": tuple(shape), "dimensions": None, "sharding": None}
        return self.node(self.nodes, reshape_p, params, [v], v.aval.update(shape=tuple(shape)))

    def moved(self, v: Value, origin: int, target: int) -> Value:
        order = [d for d in range(v.aval.ndim) if d != origin]
        order.insert(target, origin)
        aval = v.aval.update(shape=tuple(v.aval.shape[d] for d in order))
        return v if origin == target else self.node(self.nodes, transpose_p, {"permutation": tuple(order)}, [v], aval)

    def read(self, v: Value, cuts: Cuts) -> Value:
        """A value inside the body: this iteration's part of it, or a capture."""
        known = self.inside.get((v, self.stretch.axis_of(v, cuts)))
        if known is not None or v.scalar is not None or v.kind is ValueKind.CONST:
            return v if known is None else known
        self.inside[v, None] = self.capture(v)
        return self.inside[v, None]

    def capture(self, v: Value) -> Value:
        """A new input of the body that captures an outer value."""
        self.captures.append(Value(v.aval, ValueKind.INPUT, position=-1, outside=v))
        return self.captures[-1]

    def counted(self, v: Value, step: int) -> Value:
        """The start positions of the iterations' parts."""
        aval, element = v.aval.update(shape=(self.stretch.iterations,)), v.element.type(step)
        scale = Value(aval.update(shape=()), ValueKind.LITERAL, scalar=element)
        return self.node(self.nodes, mul_p, {}, [self.positions(self.nodes, aval, 0), scale], aval)

    def positions(self, nodes: list[Node], aval: ShapedArray, axis: int) -> Value:
        """The positions along an axis of an array."""
        params = {"dtype": aval.dtype, "shape": aval.shape, "dimension": axis, "sharding": None}
        return self.node(nodes, iota_p, params, [], aval)

    def spread(self, nodes: list[Node], v: Value, aval: ShapedArray, axes: Sequence[int]) -> Value:
        """A value that repeats another one, whose axes lie along these."""
        params = {"shape": aval.shape, "broadcast_dimensions": tuple(axes), "sharding": None}
        return self.node(nodes, broadcast_in_dim_p, params, [v], aval)

    def made(self) -> dict[Value, Value]:
        """Adds the loop; returns the replacement of each value that is read outside of it."""
        stretch, iterations = self.stretch, self.stretch.iterations
        left = stretch.left()
        totals, parts = ([v for v in left if (stretch.cuts[v] is None) == total] for total in (True, False))
        operands = []
        for v in totals:
            zero = Value(v.aval.update(shape=()), ValueKind.LITERAL, scalar=v.element.type(0))
            operands.append(self.spread(self.nodes, zero, v.aval, ()))
        carries = [self.argument(v.aval) for v in totals]
        for v, axis in stretch.sliced():
            local = stretch.local(v, stretch.part(v, axis))
            if _repeats(v, axis):
                node = operation_of(v)
                counted, axes = counted_axis(node), spread_axes(node)
                if counted is not None:
                    self.inside[v, axis] = self.positions(self.body.nodes, local, counted)
                elif axes is not None:
                    [u] = node.inputs
                    self.inside[v, axis] = self.spread(self.body.nodes, self.read(u, uncut(u.aval.shape)), local, axes)
                continue
            if _counts(v, axis):
                operands.append(self.counted(v, local.shape[axis]))
                here = self.positions(self.body.nodes, local, axis)
                start = self.argument(local.update(shape=()))
                self.inside[v, axis] = self.node(self.body.nodes, add_p, {}, [here, start], local)
                continue
            divided = (*v.aval.shape[:axis], iterations, local.shape[axis], *v.aval.shape[axis + 1 :])
            operands.append(self.moved(self.reshaped(v, divided), axis, 0))
            self.inside[v, axis] = self.argument(local)
        for node in (node for node in self.graph.nodes if node in stretch.plans):
            plan = stretch.plans[node]
            inputs = [self.read(v, cuts) for v, cuts in zip(node.inputs, plan.operands, strict=True)]
            avals = [stretch.local(v, cuts) for v, cuts in zip(node.outputs, plan.results, strict=True)]
            part = Node(node.primitive, dict(plan.params), inputs, avals, node.source, node.effects, node.why)
            self.body.nodes.append(part)
            made = zip(node.outputs, self.body.nodes[-1].outputs, strict=True)
            self.inside.update(((v, stretch.cuts[v]), o) for v, o in made)
        sums = [
            self.node(self.body.nodes, add_p, {}, [c, self.inside[v, None]], v.aval)
            for v, c in zip(totals, carries, strict=True)
        ]
        body = in_parts(self.body.closed([*sums, *(self.inside[v, stretch.cuts[v]] for v in parts)]))
        arguments = len(body.inputs)
        body = replace(body, inputs=(*body.inputs, *self.captures))
        captured = tuple([v.outside for v in self.captures if v.outside is not None])
        how = {"length": iterations, "reverse": False, "num_consts": 0, "num_carry": len(totals), "unroll": 1}
        stacked = [v.aval.update(shape=(iterations, *self.inside[v, stretch.cuts[v]].aval.shape)) for v in parts]
        avals = [*(v.aval for v in totals), *stacked]
        loop = Node(scan_p, how, [*operands, *captured], avals, self.source, fx.no_effects)
        loop.regions = (Region(body, captured, arguments, tuple(range(len(left)))),)
        self.nodes.append(loop)
        found = dict(zip(totals, loop.outputs, strict=False))
        for v, whole in zip(parts, loop.outputs[len(totals) :], strict=True):
            found[v] = self.reshaped(self.moved(whole, 0, stretch.cuts[v] or 0), v.aval.shape)
        return found


def _replaced(graph: Graph, stretch: _Stretch) -> Graph:
    """The graph with a loop instead of the operations of a stretch."""
    loop = _StretchLoop(graph, stretch)
    new = loop.made()
    last = max(k for k, node in enumerate(graph.nodes) if node in stretch.plans)
    others = [node for node in graph.nodes[: last + 1] if node not in stretch.plans]
    later = [any(v in stretch.after for v in node.outputs) for node in others]
    before, after = ([node for node, x in zip(others, later, strict=True) if x == late] for late in (False, True))
    following = [*after, *graph.nodes[last + 1 :]]
    for node in following:
        node.read_instead(new)
    return graph.rebuilt([*before, *loop.nodes, *following], [new.get(v, v) for v in graph.outputs])
