"""The compiler's form of a program: values, operations, and the graph of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.errors import BrokenForm
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import Source
from mpijax.core.rules.lowering import Combiner, Elementwise, Library, Reduction
from mpijax.core.types import effects as fx
from mpijax.core.types.avals import ShapedArray


class ValueKind(StrEnum):
    """Where a value comes from.

    INPUT: an argument or capture of the graph. CONST: an array that the program holds. LITERAL: a number of the
    program's text, which needs no memory. NODE: an operation computes it.

    Other stages add values that no graph has. PARTIAL: results of the chunks of a reduction. TOTAL: a reduction's
    result that a later kernel reads. BEFORE: a running value before each chunk. PACKED: several operands in one
    message. SCRATCH: memory that a loop or branch needs besides its operands and results. PAIRS: stands for an array of
    pairs that is computed block by block (see `compiler.sharding.rounds`).
    """

    INPUT = "input"
    CONST = "const"
    LITERAL = "literal"
    NODE = "node"
    PARTIAL = "partial"
    TOTAL = "total"
    BEFORE = "before"
    PACKED = "packed"
    SCRATCH = "scratch"
    PAIRS = "pairs"


class Value:
    """An array the program reads or computes.

    shape, element: as laid out in memory (a PRNG key is two uint32 along a last axis).
    scalar: the NumPy scalar of a literal, which needs no memory.
    outside: for an input of a loop or branch body, the value that it captures from the surrounding graph.
    holds: the array if known when compiling, None if it depends on arguments, `...` until `normalize.known` runs.
    """

    __slots__ = ("aval", "shape", "element", "producer", "kind", "position", "scalar", "outside", "holds")

    def __init__(
        self,
        aval: ShapedArray,
        kind: ValueKind,
        producer: Node | None = None,
        position: int = 0,
        scalar: Any = None,
        outside: Value | None = None,
    ):
        self.aval = aval.unsplit()  # the partitioner has the shardings of values, not their types
        self.kind = kind
        self.producer = producer
        self.position = position
        self.scalar = scalar
        self.outside = outside
        self.holds: Any = ...
        if isinstance(aval.dtype, np.dtype):
            self.shape, self.element = aval.shape, aval.dtype
            if aval.dtype == dtypes.float0:
                self.element = np.dtype(np.bool_)
        else:
            self.shape, self.element = (*aval.shape, *aval.dtype.physical_shape), aval.dtype.physical_dtype

    @property
    def size(self) -> int:
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def nbytes(self) -> int:
        return self.size * self.element.itemsize

    def __repr__(self) -> str:
        return f"{self.kind}{self.position}:{self.aval.str_short(True)}"


def operation_of(v: Value) -> Node:
    """The operation that computes a value, which must not be an input or constant."""
    assert v.producer is not None, v
    return v.producer


class Node:
    """An operation of the graph.

    regions: bodies of a loop or branch (see `compiler.graph.regions`). why: the reason, if the compiler added this
    communication.
    """

    __slots__ = ("primitive", "params", "inputs", "outputs", "source", "effects", "regions", "why")

    def __init__(self, primitive, params, inputs: list[Value], avals, source: Source, effects, why: str = ""):
        self.primitive = primitive
        self.params = params
        self.inputs = inputs
        self.source = source
        self.effects = effects
        self.regions: tuple = ()
        self.why = why
        self.outputs = [Value(a, ValueKind.NODE, self, i) for i, a in enumerate(avals)]

    def read_instead(self, new: Mapping[Value, Value]) -> None:
        """Read other values, in the operation and in its regions. new: keyed by those read so far."""
        self.inputs = [new.get(v, v) for v in self.inputs]
        for v in (v for region in self.regions for v in region.graph.inputs if v.outside is not None):
            v.outside = new.get(v.outside, v.outside)
        self.regions = tuple(
            [replace(region, captures=tuple([new.get(v, v) for v in region.captures])) for region in self.regions]
        )

    def __repr__(self) -> str:
        return f"{self.primitive.name}({', '.join(map(repr, self.inputs))})"


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs, results, constants and operations in program order.

    users: for each value that operations of this graph read, these operations, once for each operand; without
      constants, which all regions may read.
    shardings: for each result that is this rank's shard of a global array, its sharding (else None).
    elsewhere: the sharding over the ranks that run the program, if this rank is not one of them; else None.
    unequal: whether ranks have shards of different sizes or borders. The graphs of two ranks then differ in everything
      but the order of communication.
    gathers: arrays that operations made whole, see `compiler.steps.plan.Gathered`. placements: see
      `compiler.steps.plan.ResultPlacement`.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    users: Mapping[Value, Sequence[Node]]
    shardings: tuple[Any, ...]
    consts: tuple[Any, ...] = ()
    const_values: tuple[Value, ...] = ()
    elsewhere: Any = None
    unequal: bool = False
    gathers: tuple[tuple, ...] = ()
    placements: tuple[tuple, ...] = ()

    def users_of(self, v: Value) -> Sequence[Node]:
        """The operations of this graph that read a value, once for each operand."""
        return self.users.get(v, ())

    def rebuilt(self, nodes: list[Node], outputs: list[Value]) -> Graph:
        """This graph with other operations, of which those stay that the results need."""
        kept, users = _needed(nodes, outputs)
        return replace(self, nodes=kept, outputs=tuple(outputs), users=users)


class OpenGraph:
    """A graph to which operations are added."""

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.consts: list[Any] = []
        self.const_values: list[Value] = []
        self.nodes: list[Node] = []
        self.unequal = False

    def closed(self, outputs: list[Value], captured: Sequence[Value] = ()) -> Graph:
        """The graph, with the operations that the results need.

        captured: values that become inputs after the arguments if an operation reads them.
        """
        nodes, users = _needed(self.nodes, outputs)
        inputs = (*self.inputs, *[v for v in captured if v in users])
        shardings = (None,) * len(outputs)
        consts, const_values = tuple(self.consts), tuple(self.const_values)
        return Graph(
            inputs, tuple(outputs), nodes, users, shardings, consts, const_values, unequal=self.unequal
        )


def _needed(nodes: list[Node], outputs: list[Value]) -> tuple[tuple[Node, ...], dict[Value, list[Node]]]:
    """The operations that results need, or that have effects; and the readers of each value."""
    live: set[int] = {id(v.producer) for v in outputs if v.producer is not None}
    kept = []
    for node in reversed(nodes):
        if id(node) in live or fx.pins(node.effects):
            kept.append(node)
            live.update(id(v.producer) for v in node.inputs if v.producer is not None)
    kept.reverse()
    users: dict[Value, list[Node]] = {}
    constant = ValueKind.CONST
    for node in kept:
        for v in node.inputs:
            if v.kind is not constant:
                readers = users.get(v)
                if readers is None:
                    users[v] = [node]
                else:
                    readers.append(node)
    return tuple(kept), users


def text_of(graph: Graph, indent: str = "") -> str:
    """A graph as text: one operation a line, with the user's source line."""
    names: dict[int, str] = {}

    def name(v: Value) -> str:
        if v.scalar is not None:
            return str(v.scalar)
        return names.setdefault(id(v), f"v{len(names)}")

    inputs = ", ".join(f"{name(v)}: {v.aval.str_short(True)}" for v in graph.inputs)
    lines = [f"{indent}graph({inputs})"]
    for node in graph.nodes:
        operands = ", ".join(map(name, node.inputs))
        results = ", ".join(f"{name(v)}: {v.aval.str_short(True)}" for v in node.outputs)
        where = f"   ; {node.source.file.rsplit('/', 1)[-1]}:{node.source.line}" if node.source.file else ""
        lines.append(f"{indent}  {results} = {node.primitive.name}({operands}){where}")
        lines += [text_of(region.graph, indent + "    ") for region in node.regions]
    lines.append(f"{indent}  return {', '.join(map(name, graph.outputs))}")
    return "\n".join(lines)


def verify(graph: Graph) -> None:
    """Check the rules of a finished graph and of the graphs inside it.

    Raises:
      BrokenForm: a rule does not hold; the message names it.
    """
    known = {id(v) for v in (*graph.inputs, *graph.const_values)}
    for node in graph.nodes:
        for holds, rule in _rules(node, known):
            if not holds:
                raise BrokenForm(f"{rule}, at {node.primitive.name} of {node.source}")
        known.update(map(id, node.outputs))
        for region in node.regions:
            verify(region.graph)
    for v in graph.outputs:
        if not _is_known(v, known):
            raise BrokenForm(f"A graph computes its results, but not {v}.")
    own = [*graph.inputs, *(v for node in graph.nodes for v in node.outputs)]
    counted = Counter((id(v), id(u)) for v in (*own, *graph.const_values) for u in graph.users_of(v))
    ids = set(map(id, own))
    if counted != Counter((id(v), id(node)) for node in graph.nodes for v in node.inputs if id(v) in ids):
        raise BrokenForm("`users` of a value must list each operation that reads it, once for each operand.")


def _is_known(v: Value, known: set[int]) -> bool:
    """Whether a value is defined: literals and the program's constants always are."""
    return v.scalar is not None or v.kind is ValueKind.CONST or id(v) in known


def _rules(node: Node, known: set[int]) -> Iterator[tuple[bool, str]]:
    missing = [v for v in node.inputs if not _is_known(v, known)]
    yield not missing, f"operands are arguments or results of earlier operations, but {missing} are not"
    for i, v in enumerate(node.outputs):
        own = v.kind is ValueKind.NODE and v.producer is node and v.position == i
        yield own and id(v) not in known, f"a result is computed once, by its producer, but {v} is not"
    for region in node.regions:
        captured = len(region.graph.inputs) - region.arguments
        yield captured == len(region.captures), "a body has an input for each argument and each capture"
        yield all(v in node.inputs for v in region.captures), "captures of a body are operands of the loop"
    lower = node.primitive.lower
    if isinstance(lower, Elementwise):
        for out in node.outputs:
            fit = all(_repeats(v.aval.shape, out.aval.shape) for v in node.inputs)
            yield fit, f"operands of an elementwise operation have the result's shape or are broadcast: {node} -> {out}"
    elif isinstance(lower, Reduction):
        [x], [out] = node.inputs, node.outputs
        kept = tuple(n for i, n in enumerate(x.aval.shape) if i not in node.params["axes"])
        yield kept == out.aval.shape, f"a reduction keeps the other axes: {node} -> {out}"
        yield x.element == out.element, f"a reduction keeps the dtype: {node} -> {out}"


def _repeats(shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
    return shape == () or (len(shape) == len(out) and all(a in (1, b) for a, b in zip(shape, out, strict=True)))


def is_narrow(dtype) -> bool:
    """Floats of fewer than 32 bits, which are computed in float32."""
    return isinstance(dtype, np.dtype) and dtypes.issubdtype(dtype, np.floating) and dtype.itemsize < 4


def operator_of(node: Node) -> Combiner:
    """The operation with which a reduction or product combines elements."""
    return Combiner.ADD if isinstance(node.primitive.lower, Library) else node.primitive.lower.op
