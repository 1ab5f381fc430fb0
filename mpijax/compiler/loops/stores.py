"""Emits stores of vectors and elements, and prefetches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from mpijax.compiler.fusion.expr import dynamic_parts
from mpijax.compiler.fusion.kernel import Kernel, KernelStore
from mpijax.compiler.loops.addresses import lane_offsets, pointer, vector_step
from mpijax.compiler.loops.schedule import VECTOR_BYTES
from mpijax.compiler.loops.scope import Scope
from mpijax.compiler.loops.streaming import streams
from mpijax.core.rules.lowering import Meaning
from mpijax.core.shapes.index import LoopVar
from mpijax.scalar.builder import Builder
from mpijax.scalar.types import Scalar

if TYPE_CHECKING:
    from mpijax.compiler.loops.nest import LoopNest
    from mpijax.core.rules.primitive import Primitive

# Scatters into arrays of more bytes than this prefetch the element to be written PREFETCH_AHEAD iterations later.
PREFETCH_ABOVE = 1 << 19
PREFETCH_AHEAD = 24
# Arrays of more bytes than this, which exceed the L2 cache, are prefetched one row ahead.
PREFETCH_ROWS_ABOVE = 1 << 20
# At most this many results side by side are interleaved and written as whole rows.
INTERLEAVED = 9
# Bytes of a cache line.
LINE = 64


def store(nest: LoopNest, s: KernelStore, scope: Scope) -> None:
    """Compute a store's expression and store it."""
    varies = nest.varies(nest.needs.of_position(s.position) | nest.needs.of(s.expr), scope)
    lanes = scope.lanes if varies else 1
    b = nest.function.builder(lanes)
    x = nest.vector(s.expr, scope, lanes)
    ptr = pointer(nest, s.value, s.position, scope)
    if nest.kernel.ordered:
        _ordered_store(nest, s, b, ptr, x, scope)
        return
    if lanes == 1:
        b.store(ptr, x)
        return
    if scope.fresh:
        store_lanes(nest, ptr, x, scope)
        return
    step, parts = vector_step(nest, s.position, scope)
    if parts:
        b.store_scatter(ptr, lane_offsets(nest, scope, step, parts), x)
    elif step != 1:
        b.store_strided(ptr, nest.function.param(step), x)
    elif streams(s, nest.kernel, nest.schedule) and lanes * s.value.element.itemsize >= VECTOR_BYTES:
        b.store_past_caches(ptr, x)
    else:
        b.store(ptr, x)


def store_lanes(nest: LoopNest, ptr: str, x: Scalar, scope: Scope) -> None:
    """Store the lanes of a vector that count, to neighbouring elements from `ptr` on."""
    wide = nest.function.builder(scope.lanes)
    if not scope.fresh:
        wide.store(ptr, x)
        return
    at = scope.lanes - scope.fresh
    while at < scope.lanes:
        width = 1 << (scope.lanes - at).bit_length() - 1
        nest.function.builder(width).store(nest.function.element(ptr, x.dtype, at), wide.part(x, at, width))
        at += width


def may_overlap(nest: LoopNest, kernel: Kernel, stores: Iterable[KernelStore], v: LoopVar) -> bool:
    """Whether a last vector may repeat elements along `v`, because its stores can leave these out."""
    steps = [vector_step(nest, s.position, Scope(None, {}, v, 2)) for s in stores]
    return not kernel.ordered and all(step == 1 and not parts for step, parts in steps)


def place_of_lanes(nest: LoopNest, s: KernelStore, scope: Scope) -> tuple[int, int] | None:
    """(step between lanes, offset in unrolled loops) of a strided store that neighbours may complete; else None."""
    step, parts = vector_step(nest, s.position, scope)
    if scope.lanes == 1 or parts or not 2 <= step <= INTERLEAVED or s.value.element.kind == "b":
        return None
    terms = nest.needs.terms(s.position)
    if any(type(atom) is not LoopVar for atom, _ in terms):
        return None
    written = [loop[-1] for loop in nest.schedule.written]
    return step, s.position.offset + sum(c * int(scope.variable(v)) for v, c in terms if v in written)


def store_interleaved(nest: LoopNest, stores: list[tuple[KernelStore, Scope]]) -> None:
    """Store interleaved: the stores' elements alternate in memory, so whole registers of neighbours are written."""
    first, scope = stores[0]
    b = nest.function.builder(scope.lanes)
    xs = [nest.vector(s.expr, at, scope.lanes) for s, at in stores]
    ptr = pointer(nest, first.value, first.position, scope)
    for k, x in enumerate(b.interleaved(xs)):
        b.store(nest.function.element(ptr, first.value.element, k * scope.lanes) if k else ptr, x)


def _ordered_store(nest: LoopNest, s: KernelStore, b: Builder, ptr: str, x: Scalar, scope: Scope) -> None:
    """A scatter's write: only if the guard holds, combined with the old element."""
    function = nest.function
    skip = function.label("skip")
    if b.lanes == 1 and scope.vector is not None and s.value.nbytes > PREFETCH_ABOVE:
        _prefetch(nest, s, scope)
    if s.guard is not None:
        ok, then = nest.eval(s.guard, scope), function.label("then")
        b.effect(f"br i1 {ok.ir}, label %{then}, label %{skip}")
        function.start(then)
    if s.combine is not None:
        x = _combined(s.combine, b, b.load(ptr, s.value.element), x)
    b.store(ptr, x)
    if s.guard is not None:
        b.effect(f"br label %{skip}")
        function.start(skip)


def _combined(operation: Primitive, b: Builder, old: Scalar, x: Scalar) -> Scalar:
    """The element that a scatter writes."""
    order = {Meaning.MAXIMUM: "gt", Meaning.MINIMUM: "lt"}.get(operation.lower.meaning)
    if b.lanes == 1 and order is not None and x.dtype in (np.float32, np.float64):
        return b.extremum_without_branches(order, old, x)
    return operation.lower.rule(b, old, x)


def _prefetch(nest: LoopNest, s: KernelStore, scope: Scope) -> None:
    """Prefetch the element written some iterations later (at most the last), which hardware cannot predict."""
    loop, vector = nest.schedule.vector_loop, scope.vector
    if loop is None or vector not in nest.needs.of_position(s.position) or not dynamic_parts(s.position):
        return
    one = nest.function.builder(1)
    last = one.emit(f"sub i64 {nest.extent(loop)}, 1")
    ahead = one.emit(f"add i64 {scope.variable(vector)}, {PREFETCH_AHEAD}")
    inside = one.emit(f"icmp slt i64 {ahead}, {last}")
    at = one.emit(f"select i1 {inside}, i64 {ahead}, i64 {last}")
    later = Scope(scope.parent, {vector: at}, vector, 1)
    fetch(nest, pointer(nest, s.value, s.position, later), writes=True)


def fetch(nest: LoopNest, ptr: str, *, writes: bool = False) -> None:
    """Prefetch the cache line at a pointer."""
    nest.function.text.declares.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    nest.function.builder(1).effect(f"call void @llvm.prefetch.p0(ptr {ptr}, i32 {int(writes)}, i32 3, i32 1)")


def fetch_next_row(nest: LoopNest, kernel: Kernel, scope: Scope) -> None:
    """In the second pass over a row, which is in the cache by then: prefetch the first pass's reads of the next row.

    Hardware prefetchers stop at page boundaries, and rows are often pages.
    """
    if not nest.schedule.outer:
        return
    outer = nest.schedule.outer[-1][-1]
    for value, position in kernel.reads_of_first_pass():
        if value.nbytes <= PREFETCH_ROWS_ABOVE or any(type(atom) is not LoopVar for atom, _ in position.terms):
            continue
        steps = dict(nest.needs.terms(position))
        if steps.get(scope.vector) != 1 or outer not in steps:
            continue
        ptr = pointer(nest, value, position, scope)
        ptr = nest.function.element(ptr, value.element, nest.function.param(steps[outer]))
        for at in range(0, scope.lanes, LINE // value.element.itemsize):
            fetch(nest, nest.function.element(ptr, value.element, at) if at else ptr)
