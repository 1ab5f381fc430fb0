"""Splits large and cumulative reductions into chunks, so that threads can share them.

If a kernel has few results, only the reduction itself can be divided among threads. It becomes two kernels: the first
computes partial results for each chunk of the outermost reduced loop, the second combines them. A kernel of several
passes becomes two for each pass. A cumulative reduction becomes three: the total of each chunk, the running value
before each chunk, and the running values inside the chunks. The number of chunks depends on sizes alone, so results
have the same bits on any number of threads.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from mpijax.compiler.fusion.depth import Rewriter
from mpijax.compiler.fusion.expr import Expr, ExprTable, IndexValue, Load, MemberValue, ReducedValue
from mpijax.compiler.fusion.groups import joined_name
from mpijax.compiler.fusion.kernel import Cumulate, Kernel, KernelStore, Member, Reduce, checked
from mpijax.compiler.fusion.reductions import first_hit, identity, zero_has_no_sign
from mpijax.compiler.graph.nodes import Value, ValueKind, operation_of
from mpijax.compiler.loops.schedule import Schedule, iterations_of
from mpijax.compiler.loops.scheduling import CHUNK_UNIT, divided_loop, scheduled
from mpijax.compiler.loops.streaming import SHARE
from mpijax.core.shapes.index import Dynamic, Lin, LoopVar, Quotient, Remainder, linearized, var
from mpijax.core.types.avals import ShapedArray

# Elements of work that make it worthwhile to wake another thread.
GRAIN = 32768
# Minimum columns per thread, and in reductions. With fewer, contiguous pieces are too short for the prefetcher.
COLUMNS = 1024
REDUCED_COLUMNS = 256
# Minimum and maximum number of chunks of a kernel.
FEWEST, MOST = 4, 1024
# Minimum number of elements for each partial result.
PER_PARTIAL = 256
# Kernels whose results alone give threads this many parts are not split into chunks.
ENOUGH = 32
# The same for cumulative kernels, whose chunks read their operand twice.
ENOUGH_RUNNING = 8
# The same for kernels with several passes: after the first pass, a row is in the cache.
ENOUGH_ROWS = 4


def grain_of(kernel: Kernel, schedule: Schedule) -> int:
    """Minimum iterations of the outermost loop per thread."""
    work = math.prod(max(v.size, 1) for v in kernel.variables)
    grain = max(1, schedule.extent * GRAIN // work)
    if kernel.ordered:
        grain = schedule.extent
    if schedule.vector_loop is not None and not schedule.outer:
        grain = -(-max(grain, REDUCED_COLUMNS if kernel.reduces else COLUMNS) // SHARE) * SHARE
    return grain


def in_chunks(kernel: Kernel) -> list[Kernel]:
    """The kernels that replace a kernel with plain reductions, in order; itself, if chunks do not help."""
    work = iterations_of(kernel.variables)
    if not kernel.reduces or kernel.ordered or kernel.cumulate is not None or work < FEWEST * GRAIN:
        return [kernel]
    schedule = scheduled(kernel)
    parts = max(schedule.extent // grain_of(kernel, schedule), 1)
    if parts >= (ENOUGH_ROWS if kernel.phases > 1 else ENOUGH) or _chunks(kernel, schedule) < max(FEWEST, 2 * parts):
        return [kernel]
    return _Division(kernel).kernels


def running_in_chunks(kernel: Kernel) -> list[Kernel]:
    """The kernels that replace one with a cumulative reduction, in order; itself, if chunks do not help."""
    work = iterations_of(kernel.variables)
    if kernel.cumulate is None or work < FEWEST * GRAIN:
        return [kernel]
    schedule = scheduled(kernel)
    parts = max(schedule.extent // grain_of(kernel, schedule), 1)
    chunks = _chunks(kernel, schedule)
    if parts >= ENOUGH_RUNNING or chunks < max(FEWEST, 2 * parts) or first_hit(kernel.reduces, schedule.inner):
        return [kernel]
    return _running(kernel, chunks)


def _running(kernel: Kernel, chunks: int) -> list[Kernel]:
    """The kernels of a cumulative reduction in chunks: totals, running values before each chunk, running values."""
    [r], [axis], cumulate = kernel.reduces, kernel.axes, kernel.cumulate
    assert cumulate is not None
    length = -(-kernel.variables[axis].size // (chunks * CHUNK_UNIT)) * CHUNK_UNIT
    chunks = -(-kernel.variables[axis].size // length)
    kept = kernel.kept
    shape = tuple(v.size for v in kept)
    total = Value(ShapedArray((chunks, *shape), r.dtype), ValueKind.TOTAL, position=0)
    # One more entry than chunks: nothing comes before the first one (or after the last one, in reverse).
    before = Value(ShapedArray((chunks + 1, *shape), r.dtype), ValueKind.BEFORE, position=1)
    table, chunk = ExprTable(), LoopVar(chunks, "chunk")

    def place(first: Lin) -> Lin:
        return linearized((first, *map(var, kept)), before.shape)

    run, back = cumulate.running, cumulate.reverse
    done = table.load(before, place(var(chunk) + (1 if back else 0)))
    none = table.const(identity(r.op, r.dtype), r.dtype)
    combined = replace(r, expr=table.load(total, place(var(chunk))))
    divided = replace(kernel, chunks=chunk, chunk_length=length)
    parts = {
        "_totals": replace(divided, inner=(), outer=(KernelStore(total, place(var(chunk)), run),), cumulate=None),
        "_ends": Kernel(kept, inner=(KernelStore(before, place(Lin(chunks if back else 0)), none),)),
        "_before": Kernel(
            (chunk, *kept), (0,), (combined,), (KernelStore(before, place(var(chunk) + (0 if back else 1)), run),),
            cumulate=Cumulate(run, back),
        ),
        "": replace(divided, cumulate=Cumulate(run, back, done)),
    }  # fmt: skip
    named = {suffix: replace(part, source=kernel.source, name=kernel.name + suffix) for suffix, part in parts.items()}
    return list(map(checked, named.values()))


def _chunks(kernel: Kernel, schedule: Schedule) -> int:
    """The number of chunks into which a kernel may be split."""
    iterations = iterations_of(schedule.inner[divided_loop(schedule.inner)]) if schedule.inner else 1
    return min(iterations_of(kernel.variables) // GRAIN, MOST, iterations_of(kernel.reduced) // PER_PARTIAL, iterations)


class _Division:
    """The kernels that replace one kernel with reductions."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.kernels: list[Kernel] = []
        self.shape = tuple(v.size for v in kernel.kept)
        self.table = ExprTable()
        # For each reduction of an earlier pass, the load of its stored result.
        self.known: dict[Member, Expr] = {}
        last = max(r.phase for r in kernel.reduces)
        for phase in range(kernel.phases):
            self._divide(phase, last)

    def _divide(self, phase: int, last: int) -> None:
        """Add the kernels of one pass."""
        kernel, later = self.kernel, _LaterPass(self.kernel, phase, self.known)
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
        partial = [Value(ShapedArray(shape, r.dtype), ValueKind.PARTIAL, position=k) for k, r in enumerate(reduces)]
        position = linearized((var(chunk), *map(var, kernel.kept)), shape)
        results = [KernelStore(v, position, self._result(r)) for v, r in zip(partial, reduces, strict=True)]
        loads = [self.table.load(v, position) for v in partial]
        outer: list[KernelStore] = []
        if phase == last:
            outer = [replace(s, expr=later(s.expr), phase=1) for s in kernel.outer]
        if phase + 1 < kernel.phases:
            outer += [self._kept_result(r) for r in reduces]
        self._add(replace(part, chunks=chunk, outer=tuple(results)), made)
        combined = tuple(replace(r, expr=load) for r, load in zip(reduces, loads, strict=True))
        self._add(Kernel((chunk, *kernel.kept), (0,), combined, outer=tuple(outer)), made, "_combined")

    def _result(self, r: Reduce) -> Expr:
        value = r.member.value
        return self.table.reduced(r.member, value.element)

    def _kept_result(self, r: Reduce) -> KernelStore:
        """Store the result of a reduction, so that later passes can load it."""
        total = Value(ShapedArray(self.shape, r.dtype), ValueKind.TOTAL, position=len(self.known))
        position = linearized(tuple(map(var, self.kernel.kept)), self.shape)
        self.known[r.member] = self.table.load(total, position)
        return KernelStore(total, position, self._result(r), 1)

    def _add(self, kernel: Kernel, made: list[Value], suffix: str = "") -> None:
        name = joined_name(list(map(operation_of, made))) + suffix
        self.kernels.append(checked(replace(kernel, source=self.kernel.source, name=name)))


class _LaterPass(Rewriter):
    """Rewrites expressions for a pass that is a kernel by itself: results of earlier passes become loads."""

    def __init__(self, kernel: Kernel, phase: int, known: dict[Member, Expr]):
        super().__init__()
        self.saved, self.phase, self.known = kernel.saved, phase, known
        self.table = ExprTable()

    def rewritten(self, e: Expr) -> Expr:
        if isinstance(e, ReducedValue):
            return self.known.get(e.member, e)
        if isinstance(e, MemberValue):
            member = e.member
            if member.phase < self.phase and member.value in self.saved:
                return self.table.load(member.value, linearized(member.index, member.value.shape))
            return self(e.args[0])
        if isinstance(e, Load):
            moved = self._position(e.position)
            return e if moved is e.position else self.table.load(e.value, moved)
        if isinstance(e, IndexValue):
            moved = self._position(e.position)
            return e if moved is e.position else self.table.index(moved, e.dtype)
        args = tuple(map(self, e.args))
        if all(a is b for a, b in zip(args, e.args, strict=True)):
            return e
        return e.with_args(args)

    def _position(self, position: Lin) -> Lin:
        """A position with rewritten run-time integers; the same object if nothing changes."""
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
