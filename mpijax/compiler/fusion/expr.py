"""Scalar expressions: represent what a kernel computes for one element.

Equal expressions of one kernel are the same object, so each is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax.core.shapes.index import Dynamic, Lin, LoopVar

if TYPE_CHECKING:
    from mpijax.compiler.fusion.kernel import Member
    from mpijax.compiler.graph.nodes import Value
    from mpijax.core.rules.lowering import Meaning
    from mpijax.core.rules.primitive import Primitive

INT64 = np.dtype(np.int64)


class Expr:
    """What a kernel computes for one element. Does not change.

    args: the operands, except run-time integers in a position. cost: of the expression and its operands, in additions.
    has_parts: whether it contains a `Choice`. position: in memory, or of the loops; None for expressions without.
    """

    __slots__ = ("args", "dtype", "cost", "has_parts")

    cost: int
    has_parts: bool
    position: Lin | None = None

    def __init__(self, args: tuple[Expr, ...], dtype: np.dtype, cost: int, has_parts: bool):
        self.args = args
        self.dtype = dtype
        self.cost = cost + sum(a.cost for a in args)
        self.has_parts = has_parts or any(a.has_parts for a in args)

    def with_args(self, args: tuple[Expr, ...]) -> Expr:
        """The same operation of other operands."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.args))})"


class Load(Expr):
    """The element at a position of an array in memory."""

    __slots__ = ("value", "position")

    position: Lin

    def __init__(self, value: Value, position: Lin):
        super().__init__((), value.element, 0, _has_parts(position))
        self.value = value
        self.position = position


class KnownNumber(Expr):
    """A number known when compiling, as a NumPy scalar."""

    __slots__ = ("scalar",)

    def __init__(self, scalar: Any, dtype: np.dtype):
        super().__init__((), dtype, 0, False)
        self.scalar = scalar


class IndexValue(Expr):
    """A position as a number."""

    __slots__ = ("position",)

    position: Lin

    def __init__(self, position: Lin, dtype: np.dtype):
        super().__init__((), dtype, 0, _has_parts(position))
        self.position = position


class ReducedValue(Expr):
    """The result of a member of the kernel that is a reduction."""

    __slots__ = ("member",)

    def __init__(self, member: Member, dtype: np.dtype):
        super().__init__((), dtype, 0, False)
        self.member = member


class MemberValue(Expr):
    """The element of another member of the kernel, whose expression is the operand."""

    __slots__ = ("member",)

    def __init__(self, member: Member, expr: Expr):
        super().__init__((expr,), member.value.element, 0, False)
        self.member = member

    def with_args(self, args: tuple[Expr, ...]) -> MemberValue:
        return MemberValue(self.member, *args)


class Choice(Expr):
    """One of the operands: number k, where `cuts[k - 1] <= position < cuts[k]` (see `compiler.fusion.pieces`)."""

    __slots__ = ("position", "cuts")

    position: Lin

    def __init__(self, position: Lin, cuts: tuple[int, ...], args: tuple[Expr, ...]):
        super().__init__(args, args[0].dtype, 0, True)
        self.position = position
        self.cuts = cuts

    def with_args(self, args: tuple[Expr, ...]) -> Choice:
        return Choice(self.position, self.cuts, args)


class Applied(Expr):
    """An elementwise primitive with its parameters. result: which of its results the expression is."""

    __slots__ = ("primitive", "params", "result")

    def __init__(
        self, primitive: Primitive, args: tuple[Expr, ...], dtype: np.dtype, params: dict[str, Any], result: int = 0
    ):
        Expr.__init__(self, args, dtype, primitive.lower.cost, False)  # most are; faster than `super()`
        self.primitive = primitive
        self.params = params
        self.result = result

    @property
    def meaning(self) -> Meaning:
        return self.primitive.lower.meaning

    def with_args(self, args: tuple[Expr, ...]) -> Applied:
        return Applied(self.primitive, args, self.dtype, self.params, self.result)

    def __repr__(self) -> str:
        return f"{self.primitive.name}({', '.join(map(repr, self.args))})"


def _has_parts(position: Lin) -> bool:
    return any(e.has_parts for e in dynamic_parts(position))


class ExprTable:
    """Makes expressions; equal ones are the same object."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}

    def load(self, value: Value, position: Lin) -> Load:
        key = Load, value, position.key
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = Load(value, position)
        return found

    def const(self, value: Any, dtype: Any) -> KnownNumber:
        scalar = np.asarray(value, dtype)[()]
        key = KnownNumber, dtype, scalar.tobytes()
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = KnownNumber(scalar, np.dtype(dtype))
        return found

    def index(self, position: Lin, dtype: np.dtype = INT64) -> IndexValue:
        key = IndexValue, dtype, position.key
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = IndexValue(position, dtype)
        return found

    def reduced(self, member: Member, dtype: np.dtype) -> ReducedValue:
        key = ReducedValue, dtype, member.value
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = ReducedValue(member, dtype)
        return found

    def member(self, member: Member) -> MemberValue:
        key = MemberValue, member.expr, member.value
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = MemberValue(member, member.expr)
        return found

    def choice(self, position: Lin, cuts: tuple[int, ...], args: tuple[Expr, ...]) -> Choice:
        key = Choice, args, position.key, cuts
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = Choice(position, cuts, args)
        return found

    def apply(
        self, primitive: Primitive, args: tuple[Expr, ...], dtype: np.dtype, params: dict[str, Any], result: int = 0
    ) -> Applied:
        key = primitive, args, dtype, repr(sorted(params.items())), result
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = Applied(primitive, args, dtype, params, result)
        return found


def children(e: Expr) -> list[Expr]:
    """Operands, including run-time integers in positions."""
    position = e.position
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
    positions = (e.position for e in reachable([expr]))
    return any(position is not None and loop_vars(position) & inner for position in positions)
