"""The strategy `across`: vectorizes a kept axis; each lane runs the reductions serially.

A map is the case without reductions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mpijax.compiler.fusion.kernel import Kernel, KernelStore, Reduce
from mpijax.compiler.fusion.reductions import identity
from mpijax.compiler.loops import partial_sums
from mpijax.compiler.loops.evaluate import accumulated, hoist, rule
from mpijax.compiler.loops.partial_sums import turns_of_block
from mpijax.compiler.loops.schedule import Loop
from mpijax.compiler.loops.scope import Scope
from mpijax.compiler.loops.stores import may_overlap, place_of_lanes, store, store_interleaved
from mpijax.scalar.types import Scalar

if TYPE_CHECKING:
    from mpijax.compiler.loops.nest import LoopNest

# A store whose operand is computed, with the scope it was computed in.
Ready = tuple[KernelStore, Scope]


def across(nest: LoopNest, kernel: Kernel, scope: Scope, outermost: bool) -> None:
    """Vectorize a kept axis; each lane runs the reductions serially."""
    loop = nest.schedule.vector_loop
    if loop is None:
        reduce_and_store(nest, kernel, Scope(scope, {}))
        return
    for part, lo, hi, size in nest.parts(kernel, loop, *nest.range(loop, outermost)):
        _across_part(nest, part, loop, lo, hi, size, scope, outermost)


def _across_part(
    nest: LoopNest, kernel: Kernel, loop: Loop, lo: str, hi: str, size: int, scope: Scope, outermost: bool
) -> None:
    schedule = nest.schedule
    hoist(nest, kernel.roots, kernel.stores, scope, loop[-1], schedule.lanes)

    def iteration(i: str, width: int, fresh: int = 0) -> None:
        reduce_and_store(nest, kernel, scope.along(loop[-1], i, width, fresh))

    if not outermost and schedule.whole_vectors():
        for first in range(0, schedule.vector_size, schedule.step):
            iteration(str(first), schedule.step)
    elif not outermost and schedule.written_out(kernel, size):
        for k in range(size):
            iteration(lo if k == 0 else nest.function.builder(1).emit(f"add i64 {lo}, {k}"), 1)
    else:
        widths = schedule.widths_of(size, row=not outermost)
        # In one long map, the rest takes no time, and the same code serves other sizes.
        often = len(widths) > 1 and not schedule.written and (not outermost or kernel.reduces)
        rest = size % widths[-2] if often and size >= widths[-2] else 0
        if rest and not may_overlap(nest, kernel, kernel.stores, loop[-1]):
            rest = 0
        # Threads take multiples of whole vectors.
        nest.function.in_widths(lo, hi, widths, iteration, rest)


def reduce_and_store(nest: LoopNest, kernel: Kernel, scope: Scope) -> None:
    """Compute and store everything at one kept position, or at a vector of them."""
    if not nest.schedule.written:
        _at_position(nest, kernel, scope)
        return
    # Compute everything before any store, so that LLVM sees that operands do not change in between.
    hoist(nest, kernel.roots, (), scope, scope.vector, scope.lanes)
    ready: list[Ready] = []
    _written_out(nest, kernel, 0, scope, ready)
    for run in _runs(nest, ready):
        if len(run) > 1:
            store_interleaved(nest, run)
        else:
            store(nest, *run[0])


def _runs(nest: LoopNest, ready: list[Ready]) -> list[list[Ready]]:
    """Runs of stores that together fill memory without gaps, in order of position; other stores are runs of one."""
    places: dict[tuple, dict[int, Ready]] = {}
    found = []
    for s, at in ready:
        place = place_of_lanes(nest, s, at)
        if place is None:
            found.append([(s, at)])
        else:
            step, offset = place
            places.setdefault((s.value, step), {})[offset] = s, at
    for (_, step), by_offset in places.items():
        offsets = sorted(by_offset)
        while offsets:
            run = [k for k in range(offsets[0], offsets[0] + step) if k in by_offset]
            taken = run if len(run) == step else run[:1]
            found.append([by_offset[k] for k in taken])
            offsets = [k for k in offsets if k not in taken]
    return found


def _written_out(nest: LoopNest, kernel: Kernel, depth: int, scope: Scope, ready: list[Ready]) -> None:
    """Compute every position of the unrolled short loops inside the vectorized one; append its stores to `ready`."""
    if depth == len(nest.schedule.written):
        if kernel.reduces:
            _reductions(nest, kernel, scope)
        for s in kernel.stores:
            nest.eval(s.expr, scope)
            ready.append((s, scope))
        return
    loop = nest.schedule.written[depth]
    done = 0
    for part, _, _, size in nest.parts(kernel, loop, "0", nest.extent(loop)):
        for i in range(done, done + size):
            _written_out(nest, part, depth + 1, scope.at(loop[-1], str(i)), ready)
        done += size


def _at_position(nest: LoopNest, kernel: Kernel, scope: Scope) -> None:
    """All passes of the reductions at one kept position, or a vector of them, then the stores."""
    _reductions(nest, kernel, scope)
    for part in _narrowed(nest, kernel, scope):
        for s in kernel.outer:
            store(nest, s, part)


def _reductions(nest: LoopNest, kernel: Kernel, scope: Scope) -> None:
    for phase in range(kernel.phases):
        scope.phase = phase
        _serial_reduction(nest, kernel, scope)
    scope.phase = kernel.phases + 1


def _narrowed(nest: LoopNest, kernel: Kernel, scope: Scope) -> Iterator[Scope]:
    """The scope itself; if it is wider than the stores after the reductions allow, its parts one by one."""
    lanes = nest.schedule.lanes
    if scope.lanes <= lanes or scope.vector is None:
        yield scope
        return
    wide = nest.function.builder(scope.lanes)
    first = scope.variable(scope.vector)
    for at in range(0, scope.lanes, lanes):
        index = str(int(first) + at) if first.isdigit() else wide.emit(f"add i64 {first}, {at}")
        part = Scope(scope.parent, {scope.vector: index}, scope.vector, lanes)
        part.phase = scope.phase
        for r in kernel.reduces:
            part.finish(r.member, wide.part(scope.lookup(r.member), at, lanes))
        yield part


def _serial_reduction(nest: LoopNest, kernel: Kernel, scope: Scope) -> None:
    """One pass over the reduced axes."""
    reduces, stores = kernel.of_phase(scope.phase)
    if not nest.schedule.inner:
        for r in reduces:
            scope.known[r.member] = nest.vector(r.expr, scope, scope.lanes)
        for s in stores:
            nest.eval(s.expr, scope)
        for s in stores:
            store(nest, s, scope)
        return
    first = _first(nest, reduces, scope)
    for r, acc in zip(reduces, _pass(nest, kernel, 0, scope, first), strict=True):
        scope.finish(r.member, acc)


def _first(nest: LoopNest, reduces: Sequence[Reduce], scope: Scope) -> list[Scalar]:
    """The accumulators before the first element."""
    b = nest.function.builder(scope.lanes)
    return [b.const(identity(r.op, r.dtype), r.dtype) for r in reduces]


def _combined(
    nest: LoopNest, kernel: Kernel, reduces: Sequence[Reduce], scope: Scope, one: list[Scalar], other: list[Scalar]
) -> list[Scalar]:
    b = nest.function.builder(scope.lanes)
    return [rule(nest, kernel, r)(b, x, y) for r, x, y in zip(reduces, one, other, strict=True)]


def _pass(nest: LoopNest, kernel: Kernel, depth: int, scope: Scope, accs: list[Scalar]) -> list[Scalar]:
    """The reduced loops from `depth` on; returns the accumulators after them."""
    schedule = nest.schedule
    if depth == len(schedule.inner):
        reduces, stores = kernel.of_phase(scope.phase)
        pairs = zip(reduces, accs, strict=True)
        accs = [accumulated(nest, kernel, r, acc, scope, scope.lanes) for r, acc in pairs]
        for s in stores:
            store(nest, s, scope)
        return accs
    loop = schedule.inner[depth]
    done = 0
    for part, lo, hi, size in nest.parts(kernel, loop, *nest.iterations(depth, scope)):
        reduces, stores = part.of_phase(scope.phase)
        hoist(nest, [r.expr for r in reduces], stores, scope, scope.vector, scope.lanes)

        def body(i: str, carried: list[Scalar], part: Kernel = part) -> list[Scalar]:
            return _pass(nest, part, depth + 1, scope.at(loop[-1], i), carried)

        if schedule.unrolled(depth):
            for i in range(done, done + size):
                accs = body(str(i), accs)
        else:
            turns = turns_of_block(reduces, schedule.inner[depth:])
            first = partial(_first, nest, reduces, scope)
            combine = partial(_combined, nest, part, reduces, scope)
            lanes_of = [scope.lanes] * len(accs)
            accs = partial_sums.loop(nest.function, lo, hi, 1, turns, accs, first, combine, lanes_of, body)
        done += size
    return accs
