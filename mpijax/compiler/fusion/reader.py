"""Reads expressions from the graph: an element of a value at an index, in terms of arrays in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.compiler.fusion.depth import Shallow
from mpijax.compiler.fusion.expr import Expr, ExprTable, IndexValue, KnownNumber
from mpijax.compiler.fusion.pieces import choice
from mpijax.compiler.graph.nodes import Node, Value, operation_of
from mpijax.core.rules.lowering import Elementwise
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.shapes.index import Dynamic, Lin, linearized
from mpijax.core.types.avals import ShapedArray

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
UINT32 = np.dtype(np.uint32)


def converted(table: ExprTable, x: Expr, dtype: np.dtype) -> Expr:
    """An expression converted to another dtype."""
    if x.dtype == dtype:
        return x
    params = {"new_dtype": dtype, "weak_type": False, "sharding": None}
    return table.apply(lax.convert_element_type_p, (x,), dtype, params)


class CannotFuse(Exception):
    """The kernel computes the requested value, but not at the requested element."""


class ElementReader:
    """Builds expressions of elements. stored: tells which values are loaded from memory.

    members: maps values that the same kernel computes to a function of the index that returns their expression or
    raises `CannotFuse`.
    """

    def __init__(self, stored, members=None, table: ExprTable | None = None):
        self.stored = stored
        self.members = members or {}
        self.table = table or ExprTable()
        self.memo: dict[Any, Expr] = {}
        self.begin()
        self._computed = Shallow(self._compute)

    def begin(self) -> None:
        """Start recording which arrays are read, and which memo entries `undo` must remove."""
        self.buffers: set[Value] = set()
        self.noted: list[Any] = []

    def undo(self) -> None:
        """Forget everything read since `begin`."""
        for key in self.noted:
            self.memo.pop(key, None)

    def element(self, value: Value, index: tuple[Lin, ...]) -> Expr:
        """The element of `value` at `index`."""
        if value.scalar is not None:
            return self.table.const(value.scalar, value.element)
        member = self.members.get(value)
        if member is not None:
            return member(index)
        if value.producer is None or self.stored(value):
            self.buffers.add(value)
            return self.table.load(value, linearized(index, value.shape))
        return self.computed(value, index)

    def computed(self, value: Value, index: tuple[Lin, ...]) -> Expr:
        """The element computed by the value's operation, even if the value is also in memory."""
        found = self.memo.get((value, tuple([i.key for i in index])))
        return self._computed(value, index) if found is None else found

    def _compute(self, value: Value, index: tuple[Lin, ...]) -> Expr:
        key = (value, tuple([i.key for i in index]))
        node = operation_of(value)
        scope = NodeReader(self, node)
        if isinstance(node.primitive.lower, Elementwise):
            found = self._elementwise(scope, node, value, index)
        else:
            lower = node.primitive.lower
            if is_extended(value) and not lower.words:
                # The words of an element are last axes, which structural operations do not see.
                ndim = len(value.aval.shape)
                index, scope.words = index[:ndim], index[ndim:]
            found = lower.read(scope, index, [v.aval for v in node.inputs], node.params)
        self.memo[key] = found
        self.noted.append(key)
        return found

    def _elementwise(self, scope, node: Node, value: Value, index) -> Expr:
        args = []
        for k, v in enumerate(node.inputs):
            if not v.shape:
                args.append(scope.read(k, ()))
            else:
                aligned = index[: len(v.shape)]
                args.append(
                    scope.read(k, tuple(Lin(0) if d == 1 else i for d, i in zip(v.shape, aligned, strict=True)))
                )
        return self.table.apply(node.primitive, tuple(args), value.element, node.params, value.position)


def is_extended(value: Value) -> bool:
    """Whether elements are PRNG keys, or of another extended dtype."""
    return not isinstance(value.aval.dtype, np.dtype)


class NodeReader:
    """The interface for lowering rules: operands by number, and scalar operations."""

    __slots__ = ("reader", "node", "table", "words")

    def __init__(self, reader: ElementReader, node: Node):
        self.reader = reader
        self.node = node
        self.table = reader.table
        self.words: tuple[Lin, ...] = ()

    def read(self, k: int, index: tuple[Lin, ...]) -> Expr:
        value = self.node.inputs[k]
        if self.words and is_extended(value):
            index = (*index, *self.words)
        return self.reader.element(value, index)

    def const(self, value, dtype) -> Expr:
        return self.table.const(value, dtype)

    def index(self, position: Lin) -> Expr:
        return self.table.index(position)

    def as_index(self, expr: Expr, size: int) -> Lin:
        if isinstance(expr, KnownNumber):
            return Lin(int(expr.scalar))
        return Lin(0, [(Dynamic(expr, size), 1)])

    def choice(self, form: Lin, cuts: tuple[int, ...], parts: tuple[Callable[[], Expr], ...]) -> Expr:
        """One of `parts`, selected by comparing an index with `cuts` (see `compiler.fusion.pieces`)."""
        return choice(self.table, form, cuts, parts)

    def convert(self, x: Expr, dtype) -> Expr:
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        if isinstance(x, KnownNumber):
            return self.const(np.asarray(x.scalar).astype(dtype), dtype)
        if isinstance(x, IndexValue) and x.dtype == INT64 and x.position.bounds()[1] < 2**31:
            # A vector register holds twice as many 32-bit integers, and one instruction converts them to floats.
            return self.convert(self.table.index(x.position, INT32), dtype)
        if isinstance(x, IndexValue) and dtype == UINT32 and x.dtype == INT32:
            return self.table.index(x.position, UINT32)
        return converted(self.table, x, dtype)

    def op(self, operation: str | Primitive, *args: Expr, result: int = 0) -> Expr:
        primitive = registry[operation] if isinstance(operation, str) else operation
        types = primitive.type_rule(*(ShapedArray((), a.dtype) for a in args))
        aval = types[result] if primitive.multiple_results else types
        return self.table.apply(primitive, args, aval.dtype, {}, result)
