"""The strategy `along`: vectorizes a reduced axis; lanes hold partial results, combined at the end of the row."""

from __future__ import annotations

from functools import partial

from mpijax.compiler.fusion.expr import Expr
from mpijax.compiler.fusion.kernel import Kernel, Reduce
from mpijax.compiler.fusion.reductions import first_hit, identity
from mpijax.compiler.loops import partial_sums
from mpijax.compiler.loops.addresses import INT64
from mpijax.compiler.loops.evaluate import Rule, accumulated, hoist, order_of_keys, rule
from mpijax.compiler.loops.nest import LoopNest
from mpijax.compiler.loops.partial_sums import turns_of_block
from mpijax.compiler.loops.schedule import iterations_of
from mpijax.compiler.loops.scope import Scope
from mpijax.compiler.loops.stores import fetch_next_row, may_overlap, store, store_lanes
from mpijax.scalar.builder import Builder
from mpijax.scalar.types import Scalar


def along(nest: LoopNest, kernel: Kernel, scope: Scope, outermost: bool) -> None:
    """Vectorize the innermost reduced axis; combine lanes at the end."""
    for phase in range(kernel.phases):
        scope.phase = phase
        _RowPass(nest, kernel, scope).write()
    scope.phase = kernel.phases + 1
    for s in kernel.outer:
        store(nest, s, scope)


class _RowPass:
    """One pass over the reduced axes: whole vectors, then the rest.

    Lists of accumulators hold the vector accumulators first, then the scalar ones. orders: see `order_of_keys`.
    """

    def __init__(self, nest: LoopNest, kernel: Kernel, scope: Scope):
        self.nest, self.kernel, self.scope = nest, kernel, scope
        self.phase = scope.phase
        self.reduces, _ = kernel.of_phase(self.phase)
        self.lanes = nest.schedule.pass_lanes(self.phase)
        self.wide, self.one = nest.function.builder(self.lanes), nest.function.builder(1)
        self.rows = [(m, array) for m, array in nest.rows.values() if m.phase == self.phase]
        self.orders = {r.member: order_of_keys(nest, kernel, r) for r in self.reduces}
        loop, schedule = nest.schedule.inner[-1], nest.schedule
        self.along = loop[-1]
        # A last whole vector that overlaps the previous one does the rest of a row. A scalar loop for it would take
        # longer, and keep constants in registers that the vectors need.
        size, stores = iterations_of(loop), [s for s in kernel.inner if s.phase == self.phase]
        whole = self.lanes > 1 and size >= self.lanes and not schedule.split
        # In chunks, whose ends differ, the number of new elements is a run-time value; elsewhere it is `rest`.
        self.overlaps = whole and schedule.chunked is not None and not kernel.inner
        known = whole and schedule.chunked is None and may_overlap(nest, kernel, stores, loop[-1])
        self.rest = size % self.lanes if known else 0

    def write(self) -> None:
        """Emit the pass; afterwards the scope knows its results."""
        done = self._loops(self.kernel, 0, self.scope, self._start_both())
        for k, r in enumerate(self.reduces):
            combine = self._rule(self.kernel, r)
            total = combine(self.one, self.wide.reduce(combine, done[k]), done[len(self.reduces) + k])
            self.scope.finish(r.member, self.one.of_key(total) if self.orders[r.member] else total)
        if self.nest.function.flag:
            self._note_found(self.reduces[0])

    def _start(self, b: Builder) -> list[Scalar]:
        return [self._first(b, r) for r in self.reduces]

    def _start_both(self) -> list[Scalar]:
        return [*self._start(self.wide), *self._start(self.one)]

    def _combined(self, kernel: Kernel, b: Builder, left: list[Scalar], right: list[Scalar]) -> list[Scalar]:
        """The accumulators of two parts of a row."""
        return [self._rule(kernel, r)(b, x, y) for r, x, y in zip(self.reduces, left, right, strict=True)]

    def _combined_both(self, kernel: Kernel, left: list[Scalar], right: list[Scalar]) -> list[Scalar]:
        """As `_combined`, of the vector accumulators and of the scalar ones."""
        n = len(self.reduces)
        pairs = ((self.wide, slice(n)), (self.one, slice(n, None)))
        return [x for b, some in pairs for x in self._combined(kernel, b, left[some], right[some])]

    def _first(self, b: Builder, r: Reduce) -> Scalar:
        """The accumulator before the first element."""
        first, order = b.const(identity(r.op, r.dtype), r.dtype), self.orders[r.member]
        return b.key_of_extremum(order, first) if order else first

    def _rule(self, kernel: Kernel, r: Reduce) -> Rule:
        order = self.orders[r.member]
        return {"gt": Builder.maximum, "lt": Builder.minimum}[order] if order else rule(self.nest, kernel, r)

    def _loops(self, kernel: Kernel, depth: int, scope: Scope, carried: list[Scalar]) -> list[Scalar]:
        """The reduced loops from `depth` on; returns the accumulators after them."""
        nest = self.nest
        loop = nest.schedule.inner[depth]
        last = depth == len(nest.schedule.inner) - 1
        widths = [self.lanes] * len(self.reduces) + [1] * len(self.reduces)
        for part, lo, hi, _ in nest.parts(kernel, loop, *nest.iterations(depth, scope)):
            reduces, stores = part.of_phase(self.phase)
            exprs = [r.expr for r in reduces] + [part.computed[m.value] for m, _ in self.rows]
            hoist(nest, exprs, stores, scope, nest.schedule.vector, self.lanes)

            def body(i: str, c: list[Scalar], part: Kernel = part) -> list[Scalar]:
                return self._loops(part, depth + 1, scope.at(loop[-1], i), c)

            if last:
                carried = self._row(part, lo, hi, scope, carried)
            else:
                turns = turns_of_block(reduces, nest.schedule.inner[depth:], self.lanes)
                first, combine = self._start_both, partial(self._combined_both, part)
                carried = partial_sums.loop(nest.function, lo, hi, 1, turns, carried, first, combine, widths, body)
        return carried

    def _row(self, kernel: Kernel, lo: str, hi: str, scope: Scope, carried: list[Scalar]) -> list[Scalar]:
        """A part of a row: whole vectors, then one overlapping vector or single elements."""
        nest, function, n, lanes = self.nest, self.nest.function, len(self.reduces), self.lanes
        hit = self._hit(kernel)
        if hit is not None and nest.schedule.chunked is not None:
            lo = self._unless_found(lo, hi)
        mid = function.vectors_end(lo, hi, lanes)
        at: list[Scope] = []

        def iteration(i: str, c: list[Scalar]) -> list[Scalar]:
            at[:] = [scope.along(self.along, i, lanes)]
            out = self._element(kernel, at[0], c)
            if self.phase == 1:
                fetch_next_row(nest, kernel, at[0])
            return out

        def overlapping(_: str, c: list[Scalar]) -> list[Scalar]:
            first, new = self.one.emit(f"sub i64 {hi}, {lanes}"), self.one.emit(f"sub i64 {hi}, {mid}")
            seen = Scalar(INT64, self.one.emit(f"sub i64 {lanes}, {new}"))
            fresh = self.wide.compare("ge", self.wide.iota(), self.wide.splat(seen))
            out = self._element(kernel, scope.along(self.along, first, lanes), c)
            return [self.wide.select(fresh, x, before) for x, before in zip(out, c, strict=True)]

        def single(i: str, c: list[Scalar]) -> list[Scalar]:
            return self._element(kernel, scope.along(self.along, i, 1), c)

        if hit is None:
            turns = turns_of_block(self.reduces, nest.schedule.inner[-1:], lanes)
            first, combine = partial(self._start, self.wide), partial(self._combined, kernel, self.wide)
            vec = partial_sums.loop(
                function, lo, mid, lanes, turns, carried[:n], first, combine, [lanes] * n, iteration
            )
        else:
            vec = function.loop(
                lo, mid, lanes, carried[:n], [lanes] * n, iteration,
                lambda: self.wide.any_lane(nest.vector(hit, at[0], lanes)),
            )  # fmt: skip
        if self.rest:
            last = scope.along(self.along, self.one.emit(f"sub i64 {hi}, {lanes}"), lanes, self.rest)
            out = self._element(kernel, last, vec)
            pairs = zip(out, vec, strict=True)
            return [self.wide.select_last(self.rest, x, before) for x, before in pairs] + carried[n:]
        if self.overlaps:
            return function.loop(mid, hi, lanes, vec, [lanes] * n, overlapping) + carried[n:]
        return vec + function.loop(mid, hi, 1, carried[n:], [1] * n, single)

    def _element(self, kernel: Kernel, scope: Scope, carried: list[Scalar]) -> list[Scalar]:
        """The accumulators after one more element or vector; also its stores."""
        nest, out = self.nest, []
        b = nest.function.builder(scope.lanes)
        reduces, stores = kernel.of_phase(self.phase)
        for r, acc in zip(reduces, carried, strict=True):
            order = self.orders[r.member]
            if order:
                key = b.key_of_extremum(order, nest.vector(r.expr, scope, scope.lanes))
                out.append(self._rule(kernel, r)(b, acc, key))
            else:
                out.append(accumulated(nest, kernel, r, acc, scope, scope.lanes))
        for s in stores:
            store(nest, s, scope)
        for member, row in self.rows:
            x = nest.vector(kernel.computed[member.value], scope, scope.lanes)
            ptr = nest.function.element(row, x.dtype, scope.variable(self.along))
            store_lanes(nest, ptr, x, scope)
        return out

    # ------------------------------------------------------------ first positions

    def _hit(self, kernel: Kernel) -> Expr | None:
        """The condition, if the pass searches for the first position where it holds; else None."""
        reduces, stores = kernel.of_phase(self.phase)
        return first_hit(reduces, self.nest.schedule.inner) if not stores and not self.rows else None

    def _unless_found(self, lo: str, hi: str) -> str:
        """The first iteration of a chunk; its end if an earlier chunk of the same call has a hit."""
        flag = self.nest.function.take_flag()
        return self.one.emit(f"select i1 {self.one.emit(f'load i1, ptr {flag}')}, i64 {hi}, i64 {lo}")

    def _note_found(self, r: Reduce) -> None:
        """Set the flag if there was a hit in the chunk."""
        b, flag = self.one, self.nest.function.flag
        missed = b.compare("eq", self.scope.lookup(r.member), b.const(identity(r.op, r.dtype), r.dtype))
        before = b.emit(f"load i1, ptr {flag}")
        hit = b.emit(f"xor i1 {missed.ir}, true")
        b.effect(f"store i1 {b.emit(f'or i1 {before}, {hit}')}, ptr {flag}")
