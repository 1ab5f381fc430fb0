"""The kernel form, ready to be emitted: loops, reductions and stores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import field, replace
from enum import Enum, auto
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from mpijax.compiler.fusion.expr import (
    Applied,
    Choice,
    Expr,
    IndexValue,
    Load,
    MemberValue,
    ReducedValue,
    children,
    dynamic_parts,
    loop_vars,
    mentions_inner,
    ordered,
    reachable,
)
from mpijax.compiler.graph.nodes import Value
from mpijax.core.base import config
from mpijax.core.base.errors import require
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import UNKNOWN, Source
from mpijax.core.rules.lowering import Combiner
from mpijax.core.shapes.index import Lin, LoopVar

if TYPE_CHECKING:
    from mpijax.core.rules.primitive import Primitive


class MemberKind(Enum):
    """How often a kernel computes a value.

    REDUCE: once per kept position, by a reduction. INNER: once per element of the frame. OUTER: once per kept position.
    """

    REDUCE = auto()
    INNER = auto()
    OUTER = auto()


@dataclass(frozen=True, eq=False)
class Member:
    """A value the kernel computes.

    phase: the pass over the row that computes it (reduce, inner), or the number of passes before it (outer).
    expr: the element, or what is reduced.
    """

    value: Value
    kind: MemberKind
    index: tuple[Lin, ...]
    expr: Expr
    phase: int


@dataclass(frozen=True, eq=False)
class Begin:
    """Initializes `target` with a copy of `base`; without a base, only makes the array."""

    base: Value | None
    target: Value


@dataclass(frozen=True, eq=False)
class KernelStore:
    """Write `expr` at `position` of `value`'s memory. combine: the elementwise primitive that merges it with the old
    element. guard: a bool expression; the store is skipped where it is false."""

    value: Value
    position: Lin
    expr: Expr
    phase: int = 0
    combine: Primitive | None = None
    guard: Expr | None = None


@dataclass(frozen=True, eq=False)
class Reduce:
    """Combine `expr` over the reduced axes; expressions read the result as `acc` of `member`.

    any_zero: whether a maximum or minimum may return a zero of either sign, also in the kernel that this is part of.
    """

    member: Member
    op: Combiner
    expr: Expr
    phase: int
    dtype: np.dtype
    any_zero: bool = False


@dataclass(frozen=True, eq=False)
class Cumulate:
    """Makes the kernel's reduction cumulative. running: its value at each element. reverse: start at the end.

    before: in a chunk of the axis, the running value before the chunk's first element.
    """

    running: Expr
    reverse: bool
    before: Expr | None = None


@dataclass(frozen=True, eq=False)
class Kernel:
    """One loop nest.

    variables: loop variables in memory order; axes: which are reduced.
    inner: stores for every element of the frame; outer: stores after the reductions.
    ordered: whether elements must be processed sequentially in order (scatters).
    computed: the expressions of members, by value. made: see `compiler.fusion.pieces`.
    streamed: ids of the results whose stores may bypass the caches (see `compiler.loops.streaming`).
    chunks: the loop over chunks of the reduction; each chunk has its own results (see `compiler.loops.chunks`).
    chunk_length: the number of iterations of a chunk; 0 if the schedule decides.
    """

    variables: Sequence[LoopVar]
    axes: tuple[int, ...] = ()
    reduces: tuple[Reduce, ...] = ()
    inner: tuple[KernelStore, ...] = ()
    outer: tuple[KernelStore, ...] = ()
    ordered: bool = False
    source: Source = UNKNOWN
    name: str = "kernel"
    members: tuple[Member, ...] = ()
    computed: dict[Value, Expr] = field(default_factory=dict)
    made: dict = field(default_factory=dict)
    cumulate: Cumulate | None = None
    streamed: frozenset[int] = frozenset()
    chunks: LoopVar | None = None
    chunk_length: int = 0

    @cached_property
    def phases(self) -> int:
        """The number of passes over the reduced axes."""
        return max([r.phase for r in self.reduces] + [s.phase for s in self.inner], default=-1) + 1

    @cached_property
    def kept(self) -> list[LoopVar]:
        """The loop variables that are not reduced."""
        return [v for a, v in enumerate(self.variables) if a not in self.axes]

    @cached_property
    def reduced(self) -> list[LoopVar]:
        """The loop variables that are reduced."""
        return [v for a, v in enumerate(self.variables) if a in self.axes]

    @cached_property
    def stores(self) -> tuple[KernelStore, ...]:
        """All stores."""
        return self.inner + self.outer

    @cached_property
    def saved(self) -> frozenset[Value]:
        """Values stored for every element."""
        return frozenset(s.value for s in self.inner)

    def of_phase(self, phase: int) -> tuple[list[Reduce], list[KernelStore]]:
        """The reductions and stores of one pass over the reduced axes."""
        return [r for r in self.reduces if r.phase == phase], [s for s in self.inner if s.phase == phase]

    def streaming(self, values: frozenset[int]) -> Kernel:
        """This kernel, with streaming stores for `values`, given by id."""
        return replace(self, streamed=values) if values else self

    def read_again(self) -> list[Member]:
        """Members computed in one pass over a row and read in a later one."""
        work = [(r.expr, r.phase) for r in self.reduces] + [(s.expr, s.phase) for s in self.inner]
        return list(dict.fromkeys(m for root, phase in work for m in _made_before(phase, root)))

    def reads_of_first_pass(self) -> list:
        """(value, position) of each load in the first pass over a row."""
        reduces, stores = self.of_phase(0)
        reads = reachable([*(r.expr for r in reduces), *(s.expr for s in stores)])
        return list({(e.value, e.position.key): (e.value, e.position) for e in reads if isinstance(e, Load)}.values())

    @cached_property
    def roots(self) -> list[Expr]:
        """All expressions that are reduced, stored or used as guards."""
        found = [r.expr for r in self.reduces]
        if self.cumulate is not None and self.cumulate.before is not None:
            found.append(self.cumulate.before)
        for s in self.stores:
            found.append(s.expr)
            if s.guard is not None:
                found.append(s.guard)
        return found

    @cached_property
    def expressions(self) -> list[Expr]:
        """Every expression, operands before users."""
        return ordered([*self.roots, *(e for s in self.stores for e in dynamic_parts(s.position))])

    @cached_property
    def positions(self) -> list[Lin]:
        """All positions in memory, and all indices used as values."""
        found = [s.position for s in self.stores]
        for e in self.expressions:
            if isinstance(e, (Load, IndexValue)):
                found.append(e.position)
        return found

    @property
    def inside(self) -> Kernel:
        """The part of the kernel that runs for every element of the reduced axes."""
        return Kernel(self.variables, self.axes, self.reduces, self.inner)

    def flops(self) -> int:
        """Elementary operations of one run: per element for those inside reductions, per result for the others."""

        def operations(kernel: Kernel) -> int:
            return len(kernel.reduces) + sum(isinstance(e, Applied) for e in kernel.expressions)

        inside, results = operations(self.inside), math.prod(v.size for v in self.kept)
        return math.prod(v.size for v in self.variables) * inside + results * (operations(self) - inside)

    def loaded_by(self, roots: list[Expr]) -> set[int]:
        """Ids of the values that are loaded to compute `roots`."""
        return {id(e.value) for e in reachable(roots) if isinstance(e, Load)}

    def surely_loaded_before(self, store: KernelStore) -> set[int]:
        """Ids of the values of which an element is in a register when `store` comes, whatever the element.

        Not those of alternatives, and not those of members of earlier passes, which may be kept.
        """
        of_elements = store in self.inner
        phase = store.phase if of_elements else self.phases + 1
        reduces = [r.expr for r in self.reduces if of_elements and r.phase == phase]
        same = [s for s in (self.inner if of_elements else self.outer) if s.phase == store.phase]
        roots = reduces + [s.expr for s in same[: same.index(store)]]

        def sure(e: Expr) -> Iterable[Expr]:
            is_earlier = isinstance(e, MemberValue) and e.member.phase < phase
            return () if is_earlier or isinstance(e, Choice) else children(e)

        return {id(e.value) for e in reachable(roots, sure) if isinstance(e, Load)}

    def reads(self) -> dict[int, Value]:
        """Values loaded from memory, by id."""
        return {id(e.value): e.value for e in self.expressions if isinstance(e, Load)}

    def writes(self) -> dict[int, Value]:
        """Values stored, by id."""
        return {id(s.value): s.value for s in self.stores}


def _made_before(phase: int, root: Expr) -> list[Member]:
    """The members that `root`, evaluated in pass `phase`, reads from earlier passes."""

    def made(e: Expr) -> Member | None:
        return e.member if isinstance(e, MemberValue) and e.member.phase < phase else None

    reached = reachable([root], lambda e: children(e) if made(e) is None else ())
    return [member for e in reached if (member := made(e)) is not None]


def collapsed(kernel: Kernel, order: Iterable[LoopVar], parts: Set[LoopVar] = frozenset()) -> list[list[LoopVar]]:
    """Neighbouring loops, outermost first, merged where every position steps through both as through one loop.

    parts: variables along which the kernel is split; each must be the outermost of its merged loop.
    """
    loops: list[list[LoopVar]] = []
    for v in order:
        if v.size == 1:
            continue
        if loops and v not in parts:
            last = loops[-1][-1]
            same_kind = (last in kernel.reduced) == (v in kernel.reduced)
            if same_kind and all(_steps_together(p, last, v) for p in kernel.positions):
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
            if {outer, inner} & loop_vars(atom.of) and not _steps_together(atom.of, outer, inner):
                return False
    return a == b * inner.size


def verify(kernel: Kernel) -> None:
    """Check the rules of a kernel.

    Raises:
      BrokenForm: a rule does not hold; the message names it.
    """
    require(_rules(kernel), f"the kernel {kernel.name} of {kernel.source}")


def _rules(kernel: Kernel) -> Iterator[tuple[bool, str]]:
    """The rules of a kernel, and whether they hold; each rule relies on the ones before it."""
    axes, variables = kernel.axes, [*kernel.variables, *([] if kernel.chunks is None else [kernel.chunks])]
    yield len(set(variables)) == len(variables), "each loop variable is declared once"
    in_order = list(axes) == sorted(set(axes) & set(range(len(kernel.variables))))
    yield in_order, "reduced axes are loops of the kernel, in the same order"
    yield bool(kernel.stores), "a kernel has at least one store"
    reached = set(kernel.expressions) | set(reachable(kernel.computed.values()))
    positions = [p for e in reached if (p := e.position) is not None] + [s.position for s in kernel.stores]
    used = {v for p in positions for v in loop_vars(p)}
    yield used <= set(variables), f"positions use loop variables of the kernel only, but use {used - set(variables)}"
    empty = any(v.size == 0 for v in variables)
    choices = empty or any(e.has_parts for e in reached)
    members = {r.member for r in kernel.reduces}
    yield len(members) == len(kernel.reduces), "each member is reduced once"
    for e in reached:
        if isinstance(e, ReducedValue):
            yield e.member in members, "an `acc` is the result of a reduction of the kernel"
        elif isinstance(e, Load):
            value, position = e.value, e.position
            yield value.scalar is None, "loads read arrays, not literals"
            # An alternative that is not chosen at an element may be out of bounds.
            yield choices or _is_inside(position, value), f"loads stay within {value}, but reach {position.bounds()}"
    for r in kernel.reduces:
        has = r.expr.dtype
        yield r.dtype == has, f"a reduced expression has the dtype of the result, {r.dtype}, but has {has}"
    phases = {r.member: r.phase for r in kernel.reduces}
    running = None if kernel.cumulate is None else kernel.cumulate.running
    for r in kernel.reduces:
        earlier = all(phases[e.member] < r.phase for e in reachable([r.expr]) if isinstance(e, ReducedValue))
        yield earlier, "a reduction reads results of earlier passes only"
    for s in kernel.inner:
        results = [e for e in reachable([s.expr]) if isinstance(e, ReducedValue) and e is not running]
        earlier = all(phases[e.member] < s.phase for e in results)
        yield earlier, "a store for every element reads results of earlier passes only"
    reduced = set(kernel.reduced)
    for s in kernel.outer:
        inside = mentions_inner(s.expr, reduced) or bool(loop_vars(s.position) & reduced)
        yield not inside, "a store after the reductions does not depend on reduced loops"
    for s in kernel.stores:
        yield s.value.element == s.expr.dtype, f"a store to {s.value} has its dtype, but has {s.expr.dtype}"
        inside = kernel.ordered or empty or _is_inside(s.position, s.value)
        yield inside, f"stores stay within {s.value}, but reach {s.position.bounds()}"
        yield kernel.ordered or (s.guard is None and s.combine is None), "only ordered kernels have guards or combine"
    for s in () if kernel.ordered or empty else kernel.stores:
        loops = kernel.kept if s in kernel.outer else kernel.variables
        yield _is_injective(s.position, loops), f"iterations store to distinct elements of {s.value}"
    for s, t in combinations(kernel.stores, 2):
        yield s.value is not t.value or _are_apart(s.position, t.position), f"two stores to {s.value} do not overlap"


def _is_inside(position: Lin, value: Value) -> bool:
    """Whether a position is always within the value's elements."""
    low, high = position.bounds()
    return 0 <= low and high < value.size


def _is_injective(position: Lin, loops: Iterable[LoopVar]) -> bool:
    """Whether all iterations have distinct positions: each loop's step exceeds the range of the loops inside it."""
    steps = {atom: abs(c) for atom, c in position.terms if type(atom) is LoopVar}
    long = [v for v in loops if v.size > 1]
    if any(v not in steps for v in long):
        return False
    reach = 0
    for v in sorted(long, key=steps.__getitem__):
        if steps[v] <= reach:
            return False
        reach += steps[v] * (v.size - 1)
    return True


def _are_apart(one: Lin, other: Lin) -> bool:
    """Whether the bounds of two positions prove that they never overlap."""
    (low, high), (first, last) = one.bounds(), other.bounds()
    return high < first or last < low


def checked(kernel: Kernel) -> Kernel:
    """The kernel, verified if `jax_enable_checks` is on."""
    if config.values.jax_enable_checks:
        verify(kernel)
    return kernel
