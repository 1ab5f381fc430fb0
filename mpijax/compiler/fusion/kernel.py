"""A kernel ready to be emitted: loops, what is stored where, what is reduced."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass, field

import numpy as np

from mpijax.compiler.fusion.expr import Expr, children, dynamic_parts, loop_vars, ordered, reachable
from mpijax.compiler.graph.nodes import Value
from mpijax.core.index import Lin, LoopVar
from mpijax.core.source import UNKNOWN, Source


@dataclass
class Begin:
    """`target` starts as a copy of `base`; without a base, as nothing."""

    base: Value | None
    target: Value


@dataclass
class Store:
    """Write `expr` at `position` of `value`'s memory; `combine` names the primitive that merges it
    with what is there, `guard` a bool expression without which nothing happens."""

    value: Value
    position: Lin
    expr: Expr
    phase: int = 0
    combine: str | None = None
    guard: Expr | None = None


@dataclass
class Reduce:
    """Combine `expr` over the reduced axes; known by `member` in expressions (`acc`).

    any_zero: of a part of a kernel, whether the whole one may take a zero of either sign.
    """

    member: object
    op: str
    expr: Expr
    phase: int
    dtype: np.dtype
    any_zero: bool = False


@dataclass
class Cumulate:
    """The kernel's reduction is a running one: `running` is its value at each element, `reverse` where it starts.

    before: in a chunk of the axis, what the running value is before its first element.
    """

    running: Expr
    reverse: bool
    before: Expr | None = None


@dataclass
class Kernel:
    """One loop nest.

    variables: loop variables in memory order; axes: which are reduced.
    inner: stores for every element of the frame; outer: stores after the reductions.
    ordered: whether elements must be processed one by one in order (scatters).
    computed: the expressions of members, by value. made: see `compiler.fusion.pieces`.
    arguments: the constants that it is passed when it runs (see `compiler.loops.alike`).
    streamed: the results, by identity, whose stores may go past the caches (see `compiler.loops.streaming`).
    chunks: counts the chunks of the reduction, each of which has results of its own (see `compiler.loops.chunks`).
    chunk_length: how many turns a chunk has, where that is not left to the schedule.
    """

    variables: list[LoopVar]
    axes: tuple[int, ...]
    reduces: list[Reduce] = field(default_factory=list)
    inner: list[Store] = field(default_factory=list)
    outer: list[Store] = field(default_factory=list)
    ordered: bool = False
    source: Source = UNKNOWN
    name: str = "kernel"
    saved: set[int] = field(default_factory=set)
    members: list = field(default_factory=list)
    computed: dict[int, Expr] = field(default_factory=dict)
    made: dict = field(default_factory=dict)
    cumulate: Cumulate | None = None
    streamed: frozenset[int] = frozenset()
    arguments: tuple[Expr, ...] = ()
    chunks: LoopVar | None = None
    chunk_length: int = 0

    @property
    def phases(self) -> int:
        return max([r.phase for r in self.reduces] + [s.phase for s in self.inner], default=-1) + 1

    def read_again(self) -> list:
        """Members computed in one pass over a row and read in a later one."""
        found: dict[int, object] = {}
        work = [(r.expr, r.phase) for r in self.reduces] + [(s.expr, s.phase) for s in self.inner]
        for root, phase in work:
            seen: set[int] = set()
            stack = [root]
            while stack:
                e = stack.pop()
                if id(e) in seen:
                    continue
                seen.add(id(e))
                if e.op == "inner" and e.attr.phase < phase:
                    found[id(e.attr.value)] = e.attr
                    continue
                stack.extend(children(e))
        return list(found.values())

    def reads_of_first_pass(self) -> list:
        """(value, position) of what the first pass over a row reads."""
        roots = [r.expr for r in self.reduces if r.phase == 0] + [s.expr for s in self.inner if s.phase == 0]
        loads = [e.attr for e in reachable(roots) if e.op == "load"]
        return list({(id(value), position.key): (value, position) for value, position in loads}.values())

    def roots(self) -> list[Expr]:
        found = [r.expr for r in self.reduces]
        if self.cumulate is not None and self.cumulate.before is not None:
            found.append(self.cumulate.before)
        for s in self.inner + self.outer:
            found.append(s.expr)
            if s.guard is not None:
                found.append(s.guard)
        return found

    def expressions(self) -> list[Expr]:
        """Every expression, operands before users."""
        places = [e for s in self.inner + self.outer for e in dynamic_parts(s.position)]
        return ordered([*self.roots(), *places])

    def positions(self) -> list[Lin]:
        """All positions in memory, and all indices used as values."""
        found = [s.position for s in self.inner + self.outer]
        for e in self.expressions():
            if e.op == "load":
                found.append(e.attr[1])
            elif e.op == "index":
                found.append(e.attr)
        return found

    def positions_inside(self) -> set:
        """Keys of the positions visited for every element of the reduced axes; empty without reductions."""
        if not self.reduces:
            return set()
        inside = Kernel(self.variables, self.axes, self.reduces, self.inner)
        return {p.key for p in inside.positions()}

    def flops(self) -> int:
        """Elementary operations of one run: those before a reduction for every element, the others for each result."""

        def operations(kernel: Kernel) -> int:
            free = ("load", "const", "index", "acc", "inner", "choose")
            return len(kernel.reduces) + sum(e.op not in free for e in kernel.expressions())

        inside = operations(Kernel(self.variables, self.axes, self.reduces, self.inner))
        sizes = [v.size for v in self.variables]
        results = math.prod(n for axis, n in enumerate(sizes) if axis not in self.axes)
        return math.prod(sizes) * inside + results * (operations(self) - inside)

    def loaded_by(self, roots: list[Expr]) -> set[int]:
        """Ids of the values that are loaded to compute expressions."""
        return {id(e.attr[0]) for e in reachable(roots) if e.op == "load"}

    def reads(self) -> dict[int, Value]:
        """Values loaded from memory, by id."""
        return {id(e.attr[0]): e.attr[0] for e in self.expressions() if e.op == "load"}

    def writes(self) -> dict[int, Value]:
        return {id(s.value): s.value for s in self.inner + self.outer}


def collapsed(kernel: Kernel, order: list[LoopVar], parts: Set[int] = frozenset()) -> list[list[LoopVar]]:
    """Neighbouring loops, outermost first, joined where all positions step through both as through one.

    parts: variables, by id, along which there are parts: they are the outermost of the loop they are in.
    """
    positions = kernel.positions()
    loops: list[list[LoopVar]] = []
    axes = {id(kernel.variables[a]) for a in kernel.axes}
    for v in order:
        if v.size == 1:
            continue
        if loops and id(v) not in parts:
            last = loops[-1][-1]
            same_kind = (id(last) in axes) == (id(v) in axes)
            if same_kind and all(_steps_together(p, last, v) for p in positions):
                loops[-1].append(v)
                continue
        loops.append([v])
    return loops


def _steps_together(position: Lin, outer: LoopVar, inner: LoopVar) -> bool:
    a = b = 0
    for atom, c in position.terms:
        if atom is outer:
            a = c
        elif atom is inner:
            b = c
        elif hasattr(atom, "of"):
            if {id(outer), id(inner)} & loop_vars(atom.of) and not _steps_together(atom.of, outer, inner):
                return False
        elif hasattr(atom, "expr"):
            continue
    return a == b * inner.size
