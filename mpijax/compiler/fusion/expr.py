"""Scalar expressions: represent what a kernel computes for one element.

Equal expressions of one kernel are the same object, so each is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Set
from typing import Any, NamedTuple

import numpy as np

from mpijax.core.shapes.index import Dynamic, Lin, LoopVar

INT64 = np.dtype(np.int64)


class Applied(NamedTuple):
    """An elementwise primitive with its parameters, and which of its results the expression is."""

    primitive: Any
    params: dict[str, Any]
    result: int


class Expr:
    """An operation on elements.

    op: `load` (attr: buffer value, position `Lin`), `const` (attr: value), `index` (attr: `Lin`),
    `acc` (attr: reduction member), `temp` (attr: member, whose element was computed in this kernel)
    or the name of an elementwise primitive (attr: `Applied`).
    has_parts: whether it contains a `choose` (see `compiler.fusion.pieces`).
    """

    __slots__ = ("op", "args", "dtype", "attr", "cost", "has_parts")

    cost: int
    has_parts: bool

    def __init__(self, op: str, args: tuple[Expr, ...], dtype: np.dtype, attr: Any = None, cost: int = 0):
        self.op = op
        self.args = args
        self.dtype = dtype
        self.attr = attr
        self.cost = cost + sum(a.cost for a in args)
        self.has_parts = op == "choose" or any(a.has_parts for a in args)
        if op in ("load", "index") and not self.has_parts:
            position = position_of(self)
            assert position is not None
            self.has_parts = any(e.has_parts for e in dynamic_parts(position))

    def __repr__(self) -> str:
        return f"{self.op}({', '.join(map(repr, self.args))})"


class ExprTable:
    """Makes expressions; equal ones are the same object."""

    def __init__(self) -> None:
        self.known: dict[Any, Expr] = {}

    def make(self, op: str, args: tuple[Expr, ...], dtype, attr: Any, attr_key: Any, cost: int = 0) -> Expr:
        key = (op, args, dtype, attr_key)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = Expr(op, args, dtype, attr, cost)
        return found

    def load(self, value, position: Lin) -> Expr:
        return self.make("load", (), value.element, (value, position), (value, position.key))

    def const(self, value, dtype) -> Expr:
        scalar = np.asarray(value, dtype)[()]
        return self.make("const", (), np.dtype(dtype), scalar, scalar.tobytes())

    def index(self, position: Lin, dtype=INT64) -> Expr:
        return self.make("index", (), dtype, position, position.key)

    def apply(self, primitive, args: tuple[Expr, ...], dtype, params: dict[str, Any], result: int = 0) -> Expr:
        rule = primitive.lower
        attr = Applied(primitive, params, result)
        return self.make(primitive.name, args, dtype, attr, (repr(sorted(params.items())), result), rule.cost)


def children(e: Expr) -> list[Expr]:
    """Operands, including run-time integers in positions."""
    position = position_of(e)
    return list(e.args) if position is None else [*e.args, *dynamic_parts(position)]


def reachable(
    roots: Iterable[Expr], below: Callable[[Expr], Iterable[Expr]] = children
) -> Iterator[Expr]:
    """Each expression that `roots` depend on, once, including those in positions; users come before operands.

    below: the operands to follow.
    """
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            yield e
            stack.extend(below(e))


def ordered(roots: Iterable[Expr], known: Container[Expr] = ()) -> list[Expr]:
    """Each expression that `roots` depend on, once, operands before users; the walk stops at those in `known`."""
    seen: set[Expr] = set()
    order: list[Expr] = []
    # A marked entry is appended: its operands are all in the list already.
    stack: list[tuple[Expr, bool]] = [(e, False) for e in roots][::-1]
    while stack:
        e, complete = stack.pop()
        if complete:
            order.append(e)
        elif e not in seen and e not in known:
            seen.add(e)
            stack.append((e, True))
            stack.extend([(a, False) for a in reversed(children(e))])
    return order


def position_of(e: Expr) -> Lin | None:
    """The position of a load, choose or index expression; None for others."""
    if e.op == "load":
        return e.attr[1]
    if e.op == "choose":
        return e.attr[0]
    return e.attr if e.op == "index" else None


def dynamic_parts(position: Lin) -> list[Expr]:
    """Run-time integers in a position."""
    out: list[Expr] = []
    for atom, _ in position.terms:
        if type(atom) is Dynamic:
            out.append(atom.expr)
        elif type(atom) is not LoopVar:
            out.extend(dynamic_parts(atom.of))
    return out


def loop_vars(position: Lin) -> set[LoopVar]:
    """Loop variables in a position, except those inside run-time integers."""
    out: set[LoopVar] = set()
    for atom, _ in position.terms:
        if type(atom) is LoopVar:
            out.add(atom)
        elif hasattr(atom, "of"):
            out |= loop_vars(atom.of)
    return out


def mentions_inner(expr: Expr, inner: Set[LoopVar]) -> bool:
    """Whether the expression depends on one of the loop variables."""
    positions = (position_of(e) for e in reachable([expr]))
    return any(position is not None and loop_vars(position) & inner for position in positions)
