"""Large reductions, and running ones, in chunks, so that threads share them.

A loop nest whose results are few has nothing to divide among threads but the reduction itself. Such a kernel becomes
two: one finds the partial results of each chunk of the outermost reduced loop, the other combines them. A kernel of
several passes becomes two for each pass. A running reduction becomes three: the total of each chunk, what those before
each chunk combine to, and the running values in a chunk from there on. How many chunks there are depends on sizes
alone, so that results have the same bits on any number of threads.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from mpijax.compiler.fusion.depth import Rewriter
from mpijax.compiler.fusion.expr import Expr, ExprTable
from mpijax.compiler.fusion.groups import joined_name
from mpijax.compiler.fusion.kernel import Cumulate, Kernel, Member, Reduce, Store, checked
from mpijax.compiler.fusion.reductions import first_hit, identity, zero_has_no_sign
from mpijax.compiler.graph.nodes import Value, operation_of
from mpijax.compiler.loops.schedule import Schedule, turns_of
from mpijax.compiler.loops.scheduling import CHUNK_UNIT, divided_loop, scheduled
from mpijax.compiler.loops.streaming import SHARE
from mpijax.core.avals import ShapedArray
from mpijax.core.index import Dynamic, Lin, LoopVar, Quotient, Remainder, linearized, var

# Elements of work that make it worth to wake another thread.
GRAIN = 32768
# Columns that a thread takes at least, and in reductions: fewer are read in pieces too short to be fetched ahead.
COLUMNS = 1024
REDUCED_COLUMNS = 256
# Kernels are divided into at least and at most so many chunks.
FEWEST, MOST = 4, 1024
# Elements for each partial result, at least.
PER_PARTIAL = 256
# Kernels that threads can share by their results, in so many parts, are not divided.
ENOUGH = 32
# Running ones, whose operand chunks read twice, are not where there are so many parts.
ENOUGH_RUNNING = 8
# Of those with several passes, which find a row in the cache after the first, fewer rows are enough.
ENOUGH_ROWS = 4


def grain_of(kernel: Kernel, schedule: Schedule) -> int:
    """Turns of the outermost loop that a thread takes at least."""
    work = math.prod(max(v.size, 1) for v in kernel.variables)
    grain = max(1, schedule.extent * GRAIN // work)
    if kernel.ordered:
        grain = schedule.extent
    if schedule.vector_loop is not None and not schedule.outer:
        grain = -(-max(grain, REDUCED_COLUMNS if kernel.reduces else COLUMNS) // SHARE) * SHARE
    return grain


def in_chunks(kernel: Kernel) -> list[Kernel]:
    """The kernels that do the work of one, in order: itself, if threads need no chunks."""
    work = turns_of(kernel.variables)
    if not kernel.reduces or kernel.ordered or kernel.cumulate is not None or work < FEWEST * GRAIN:
        return [kernel]
    schedule = scheduled(kernel)
    parts = max(schedule.extent // grain_of(kernel, schedule), 1)
    if parts >= (ENOUGH_ROWS if kernel.phases > 1 else ENOUGH) or _chunks(kernel, schedule) < max(FEWEST, 2 * parts):
        return [kernel]
    return _Division(kernel).kernels


def running_in_chunks(kernel: Kernel) -> list[Kernel]:
    """The kernels that do the work of one with a running reduction, in order: itself, if threads need no chunks."""
    work = turns_of(kernel.variables)
    if kernel.cumulate is None or work < FEWEST * GRAIN:
        return [kernel]
    schedule = scheduled(kernel)
    parts = max(schedule.extent // grain_of(kernel, schedule), 1)
    chunks = _chunks(kernel, schedule)
    if parts >= ENOUGH_RUNNING or chunks < max(FEWEST, 2 * parts) or first_hit(kernel.reduces, schedule.inner):
        return [kernel]
    return _running(kernel, chunks)


def _running(kernel: Kernel, chunks: int) -> list[Kernel]:
    """Totals, then what comes before each chunk, then the running values."""
    [r], [axis], cumulate = kernel.reduces, kernel.axes, kernel.cumulate
    assert cumulate is not None
    length = -(-kernel.variables[axis].size // (chunks * CHUNK_UNIT)) * CHUNK_UNIT
    chunks = -(-kernel.variables[axis].size // length)
    kept = kernel.kept
    shape = tuple(v.size for v in kept)
    total = Value(ShapedArray((chunks, *shape), r.dtype), "total", position=0)
    # Of one chunk more: nothing is before the first one, or behind the last one.
    before = Value(ShapedArray((chunks + 1, *shape), r.dtype), "before", position=1)
    table, chunk = ExprTable(), LoopVar(chunks, "chunk")

    def place(first: Lin) -> Lin:
        return linearized((first, *map(var, kept)), before.shape)

    run, back = cumulate.running, cumulate.reverse
    done = table.load(before, place(var(chunk) + (1 if back else 0)))
    none = table.const(identity(r.op, r.dtype), r.dtype)
    combined = replace(r, expr=table.load(total, place(var(chunk))))
    divided = replace(kernel, chunks=chunk, chunk_length=length)
    parts = {
        "_totals": replace(divided, inner=(), outer=(Store(total, place(var(chunk)), run),), cumulate=None),
        "_ends": Kernel(kept, inner=(Store(before, place(Lin(chunks if back else 0)), none),)),
        "_before": Kernel(
            (chunk, *kept), (0,), (combined,), (Store(before, place(var(chunk) + (0 if back else 1)), run),),
            cumulate=Cumulate(run, back),
        ),
        "": replace(divided, cumulate=Cumulate(run, back, done)),
    }  # fmt: skip
    named = {suffix: replace(part, source=kernel.source, name=kernel.name + suffix) for suffix, part in parts.items()}
    return list(map(checked, named.values()))


def _chunks(kernel: Kernel, schedule: Schedule) -> int:
    """How many chunks a kernel may be divided into."""
    turns = turns_of(schedule.inner[divided_loop(schedule.inner)]) if schedule.inner else 1
    return min(turns_of(kernel.variables) // GRAIN, MOST, turns_of(kernel.reduced) // PER_PARTIAL, turns)


class _Division:
    """The kernels that one becomes."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.kernels: list[Kernel] = []
        self.shape = tuple(v.size for v in kernel.kept)
        self.table = ExprTable()
        # What stands for the result of a reduction in later passes.
        self.known: dict[Member, Expr] = {}
        last = max(r.phase for r in kernel.reduces)
        for phase in range(kernel.phases):
            self._divide(phase, last)

    def _divide(self, phase: int, last: int) -> None:
        """Add the kernels of one pass."""
        kernel, later = self.kernel, _Later(self.kernel, phase, self.known)
        present, stores = kernel.of_phase(phase)
        inner = tuple(replace(s, expr=later(s.expr), phase=0) for s in stores)
        reduces = tuple(
            replace(r, expr=later(r.expr), phase=0, any_zero=zero_has_no_sign(kernel, r)) for r in present
        )
        made = [*(r.member.value for r in reduces), *(s.value for s in inner)]
        if not reduces:
            self._add(Kernel(kernel.variables, inner=inner), made)
            return
        part = Kernel(kernel.variables, kernel.axes, reduces, inner)
        chunk = LoopVar(_chunks(part, scheduled(part)), "chunk")
        shape = (chunk.size, *self.shape)
        partial = [Value(ShapedArray(shape, r.dtype), "partial", position=k) for k, r in enumerate(reduces)]
        position = linearized((var(chunk), *map(var, kernel.kept)), shape)
        results = [Store(v, position, self._result(r)) for v, r in zip(partial, reduces, strict=True)]
        loads = [self.table.load(v, position) for v in partial]
        outer: list[Store] = []
        if phase == last:
            outer = [replace(s, expr=later(s.expr), phase=1) for s in kernel.outer]
        if phase + 1 < kernel.phases:
            outer += [self._kept_result(r) for r in reduces]
        self._add(replace(part, chunks=chunk, outer=tuple(results)), made)
        combined = tuple(replace(r, expr=load) for r, load in zip(reduces, loads, strict=True))
        self._add(Kernel((chunk, *kernel.kept), (0,), combined, outer=tuple(outer)), made, "_combined")

    def _result(self, r: Reduce) -> Expr:
        value = r.member.value
        return self.table.make("acc", (), value.element, r.member, value)

    def _kept_result(self, r: Reduce) -> Store:
        """Gives a result memory, from which later passes read it."""
        total = Value(ShapedArray(self.shape, r.dtype), "total", position=len(self.known))
        position = linearized(tuple(map(var, self.kernel.kept)), self.shape)
        self.known[r.member] = self.table.load(total, position)
        return Store(total, position, self._result(r), 1)

    def _add(self, kernel: Kernel, made: list[Value], suffix: str = "") -> None:
        name = joined_name(list(map(operation_of, made))) + suffix
        self.kernels.append(checked(replace(kernel, source=self.kernel.source, name=name)))


class _Later(Rewriter):
    """Expressions as a pass computes them that has a kernel of its own: what earlier ones left is in memory."""

    def __init__(self, kernel: Kernel, phase: int, known: dict[Member, Expr]):
        super().__init__()
        self.saved, self.phase, self.known = kernel.saved, phase, known
        self.table = ExprTable()

    def rewritten(self, e: Expr) -> Expr:
        if e.op == "acc":
            return self.known.get(e.attr, e)
        if e.op == "inner":
            member = e.attr
            if member.phase < self.phase and member.value in self.saved:
                return self.table.load(member.value, linearized(member.index, member.value.shape))
            return self(e.args[0])
        if e.op == "load":
            value, position = e.attr
            moved = self._position(position)
            return e if moved is position else self.table.load(value, moved)
        if e.op == "index":
            position = self._position(e.attr)
            return e if position is e.attr else self.table.index(position, e.dtype)
        args = tuple(map(self, e.args))
        if all(a is b for a, b in zip(args, e.args, strict=True)):
            return e
        return Expr(e.op, args, e.dtype, e.attr, e.cost - sum(a.cost for a in e.args))

    def _position(self, position: Lin) -> Lin:
        """A position whose run-time integers are rewritten; the same object if they do not change."""
        terms = [(self._atom(atom), c) for atom, c in position.terms]
        same = all(a is b for (a, _), (b, _) in zip(terms, position.terms, strict=True))
        return position if same else Lin(position.offset, terms)

    def _atom(self, atom: Any) -> Any:
        if type(atom) is LoopVar:
            return atom
        if type(atom) is Dynamic:
            e = self(atom.expr)
            return atom if e is atom.expr else Dynamic(e, atom.size)
        form = self._position(atom.of)
        return atom if form is atom.of else (Quotient if type(atom) is Quotient else Remainder)(form, atom.by)
