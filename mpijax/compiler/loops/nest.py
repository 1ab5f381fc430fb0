"""Loops as basic blocks, and the two strategies that run through rows.

- `across`: a kept axis is vectorized; reductions run serially inside, one per lane.
- `along`: a reduced axis is; lanes hold partial results, combined at the end of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from mpijax.compiler.fusion.kernel import Kernel, Reduce, Store
from mpijax.compiler.fusion.pieces import split
from mpijax.compiler.fusion.reductions import first_hit, identity, rule_of, zero_has_no_sign
from mpijax.compiler.loops.addresses import INT64, Scope
from mpijax.compiler.loops.evaluate import Evaluator
from mpijax.core.index import LoopVar
from mpijax.scalar.builder import Builder
from mpijax.scalar.types import Scalar, imag_part

# A store whose operand is computed: the kernel it is of (see `parts`), itself, and where.
Ready = tuple[Kernel, Store, Scope]


class Loops(Evaluator):
    """Loops with carried values, and kernels that go through their elements row by row."""

    chunk: tuple[str, str]
    # Where a function that looks for a first position keeps whether it has one.
    found = ""

    def loop(
        self,
        lo: str,
        hi: str,
        step: int,
        carried: list[Scalar],
        lanes_of: list[int],
        body: Callable[[str, list[Scalar]], list[Scalar]],
        until: Callable[[], str] | None = None,
    ) -> list[Scalar]:
        """`for i in range(lo, hi, step)` with values carried from turn to turn; returns their last values.

        until: asked after the body for an i1 that ends the loop.
        """
        head, exit_, before = self.label("loop"), self.label("done"), self.block
        b = self.builder(1)
        enter = b.emit(f"icmp slt i64 {lo}, {hi}")
        self.emit(f"br i1 {enter}, label %{head}, label %{exit_}")
        self.lines.append(f"{head}:")
        self.block = head
        index = self.text.fresh()
        phis = [self._phi_names(c) for c in carried]
        at = len(self.lines)
        inside = [
            Scalar(c.dtype, n[0], None if c.imag is None else Scalar(c.imag.dtype, n[1]))
            for c, n in zip(carried, phis, strict=True)
        ]
        after = body(index, inside)
        nxt = b.emit(f"add nsw i64 {index}, {step}")
        again = b.emit(f"icmp slt i64 {nxt}, {hi}")
        if until is not None:
            again = b.emit(f"select i1 {until()}, i1 false, i1 {again}")
        self.emit(f"br i1 {again}, label %{head}, label %{exit_}")
        latch = self.block
        head_phis = [f"  {index} = phi i64 [ {lo}, %{before} ], [ {nxt}, %{latch} ]"]
        for c, n, a, w in zip(carried, phis, after, lanes_of, strict=True):
            head_phis += self._phi_lines(n, c, before, a, latch, w)
        self.lines[at:at] = head_phis
        self.lines.append(f"{exit_}:")
        self.block = exit_
        results = []
        for c, a, w in zip(carried, after, lanes_of, strict=True):
            names = self._phi_names(c)
            self.lines += self._phi_lines(names, c, before, a, latch, w)
            results.append(Scalar(c.dtype, names[0], None if c.imag is None else Scalar(c.imag.dtype, names[1])))
        return results

    def parts(self, loop: list[LoopVar], lo: str, hi: str) -> Iterator[tuple[str, str, int]]:
        """The parts of a loop over [lo, hi) in which other alternatives hold: their bounds and largest size.

        While a part is at hand, `self.kernel` is the kernel with the alternatives chosen.
        """
        kernel, phase = self.kernel, self.phase
        found = split(kernel, loop[0])
        step = 1
        for v in loop[1:]:
            step *= v.size
        start = lo
        for part in found:
            end = hi if part is found[-1] else self._cut(part.end * step, start, lo, hi)
            self.kernel = part.kernel
            self.phase = phase
            yield start, end, (part.end - part.begin) * step
            start = end
        self.kernel, self.phase = kernel, phase

    def _cut(self, at: int, start: str, lo: str, hi: str) -> str:
        """A constant, moved into [start, hi) where a thread runs a share of the loop."""
        cut = self.param(at)
        if lo == "0":
            return cut
        b = self.builder(1)
        early = b.emit(f"icmp slt i64 {cut}, {start}")
        cut = b.emit(f"select i1 {early}, i64 {start}, i64 {cut}")
        late = b.emit(f"icmp slt i64 {hi}, {cut}")
        return b.emit(f"select i1 {late}, i64 {hi}, i64 {cut}")

    def _phi_names(self, c: Scalar) -> tuple[str, str]:
        return self.text.fresh(), self.text.fresh()

    def _phi_lines(self, names, first: Scalar, before: str, later: Scalar, latch: str, lanes: int) -> list[str]:
        t = self.builder(lanes).type(first.dtype)
        lines = [f"  {names[0]} = phi {t} [ {first.ir}, %{before} ], [ {later.ir}, %{latch} ]"]
        if first.imag is not None:
            lines.append(f"  {names[1]} = phi {t} [ {first.imag.ir}, %{before} ], [ {imag_part(later).ir}, %{latch} ]")
        return lines

    def vector_bounds(self, lo: str, hi: str, lanes: int) -> str:
        """Where the vector part of a loop over [lo, hi) ends."""
        b = self.builder(1)
        n = b.emit(f"sub i64 {hi}, {lo}")
        rest = b.emit(f"and i64 {n}, {lanes - 1}")
        return b.emit(f"sub i64 {hi}, {rest}")

    def _range(self, loop: list[LoopVar], outermost: bool) -> tuple[str, str]:
        return ("%begin", "%end") if outermost else ("0", self._extent(loop))

    def turns(self, depth: int) -> tuple[str, str]:
        """The turns of a reduced loop: all, or those of the chunk."""
        if depth == self.schedule.chunked:
            return self.chunk
        return "0", self._extent(self.schedule.inner[depth])

    def enter_chunk(self, number: str) -> None:
        """From here on, reduce the turns of one chunk."""
        assert self.schedule.chunked is not None
        b = self.builder(1)
        length, size = self.param(self.schedule.chunk_length), self._extent(self.schedule.inner[self.schedule.chunked])

        def bounded(at: str) -> str:
            inside = b.emit(f"icmp slt i64 {at}, {size}")
            return b.emit(f"select i1 {inside}, i64 {at}, i64 {size}")

        first = b.emit(f"mul i64 {number}, {length}")
        self.chunk = bounded(first), bounded(b.emit(f"add i64 {first}, {length}"))

    # ------------------------------------------------------------ strategy: across

    def _across(self, scope: Scope, outermost: bool) -> None:
        """A kept axis is vectorized; reductions run inside, one per lane."""
        loop = self.schedule.vector_loop
        if loop is None:
            self._reduce_and_store(Scope(scope, {}))
            return
        lo, hi = self._range(loop, outermost)
        for start, end, size in self.parts(loop, lo, hi):
            self._across_part(loop, start, end, size, scope, outermost)

    def _across_part(self, loop: list[LoopVar], lo: str, hi: str, size: int, scope: Scope, outermost: bool) -> None:
        key = id(loop[-1])
        lanes = self.schedule.lanes
        self.hoist(self.kernel.roots(), self.kernel.inner + self.kernel.outer, scope, key, lanes)
        if not outermost and self.schedule.whole_vectors():
            for first in range(0, self.schedule.vector_size, self.schedule.turn):
                self._reduce_and_store(Scope(scope, {key: str(first)}, key, self.schedule.turn))
            return
        if not outermost and self.schedule.written_out(self.kernel, size):
            one = self.builder(1)
            for k in range(size):
                at = lo if k == 0 else one.emit(f"add i64 {lo}, {k}")
                self._reduce_and_store(Scope(scope, {key: at}, key, 1))
            return
        start = lo
        for width in self.schedule.widths_of(size, row=not outermost):
            end = hi if width == 1 else self.vector_bounds(start, hi, width)

            def body(i: str, _, width=width):
                self._reduce_and_store(Scope(scope, {key: i}, key, width))
                return []

            self.loop(start, end, width, [], [], body)
            start = end

    def of_phase(self) -> tuple[list[Reduce], list[Store]]:
        """What the present pass over the reduced axes computes."""
        kernel = self.kernel
        return [r for r in kernel.reduces if r.phase == self.phase], [s for s in kernel.inner if s.phase == self.phase]

    def _reduce_and_store(self, scope: Scope) -> None:
        """What is computed and stored at one (vector of) kept position(s)."""
        if not self.schedule.written:
            self._at_position(scope)
            return
        # All is computed before anything is stored, so that the compiler sees that operands do not change in between.
        self.hoist(self.kernel.roots(), [], scope, scope.vector, scope.lanes)
        ready: list[Ready] = []
        kernel = self.kernel
        self._written_out(0, scope, ready)
        for run in self._runs(ready):
            if len(run) > 1:
                self.store_interleaved([(s, at) for _, s, at in run])
                continue
            [(self.kernel, s, at)] = run
            self.store(s, at)
        self.kernel = kernel

    def _runs(self, ready: list[Ready]) -> list[list[Ready]]:
        """Stores that together fill memory without gaps, by the first element's place; others alone."""
        places: dict[tuple[int, int], dict[int, Ready]] = {}
        alone = []
        for item in ready:
            _, s, at = item
            place = self.place_of_lanes(s, at)
            if place is None:
                alone.append([item])
            else:
                step, offset = place
                places.setdefault((id(s.value), step), {})[offset] = item
        found = []
        for (_, step), by_offset in places.items():
            offsets = sorted(by_offset)
            while offsets:
                run = [k for k in range(offsets[0], offsets[0] + step) if k in by_offset]
                whole = len(run) == step
                taken = run if whole else run[:1]
                found += [[by_offset[k] for k in taken]]
                offsets = [k for k in offsets if k not in taken]
        return alone + found

    def _written_out(self, depth: int, scope: Scope, ready: list[Ready]) -> None:
        """Compute each position of the short loops inside of the vectorized one; `ready` gets what is to be stored."""
        if depth == len(self.schedule.written):
            for phase in range(self.kernel.phases if self.kernel.reduces else 0):
                self.phase = phase
                self._serial_reduction(scope)
            self.phase = self.kernel.phases + 1 if self.kernel.reduces else 0
            for s in self.kernel.inner + self.kernel.outer:
                self.eval(s.expr, scope)
                ready.append((self.kernel, s, scope))
            return
        loop = self.schedule.written[depth]
        done = 0
        for _, _, size in self.parts(loop, "0", self._extent(loop)):
            for i in range(done, done + size):
                self._written_out(depth + 1, Scope(scope, {id(loop[-1]): str(i)}), ready)
            done += size

    def _at_position(self, scope: Scope) -> None:
        """All phases of reductions inside one (vector of) kept position(s), then the stores."""
        for phase in range(self.kernel.phases):
            self.phase = phase
            self._serial_reduction(scope)
        self.phase = self.kernel.phases + 1
        for part in self._narrowed(scope):
            for s in self.kernel.outer:
                self.store(s, part)

    def _narrowed(self, scope: Scope) -> Iterator[Scope]:
        """The scope itself, or where a turn is wider than what follows its reductions, its parts one by one."""
        lanes = self.schedule.lanes
        if scope.lanes <= lanes or scope.vector is None:
            yield scope
            return
        wide = self.builder(scope.lanes)
        totals = {id(r.member): self.acc_values[id(r.member)] for r in self.kernel.reduces}
        first = scope.variable(scope.vector)
        for at in range(0, scope.lanes, lanes):
            index = str(int(first) + at) if first.isdigit() else wide.emit(f"add i64 {first}, {at}")
            part = Scope(scope.parent, {scope.vector: index}, scope.vector, lanes)
            for key, total in totals.items():
                self.acc_values[key] = wide.part(total, at, lanes)
                part.available |= {("acc", key)}
            yield part

    def _accumulated_with(self, r: Reduce, acc: Scalar, scope: Scope, lanes: int) -> Scalar:
        """A running value with one more element; products are added without rounding them first, as BLAS does."""
        b = self.builder(lanes)
        if self.schedule.is_fused_product(r):
            left, right = [self.vector(e, scope, lanes) for e in r.expr.args]
            return b.fma(left, right, acc)
        return self._combining(r)(b, acc, self.vector(r.expr, scope, lanes))

    def _combining(self, r: Reduce) -> Callable[[Builder, Scalar, Scalar], Scalar]:
        """Combines two partial results."""
        if not self._is_any_zero(r):
            return rule_of(r.op)
        order = "gt" if r.op == "max" else "lt"
        return lambda b, x, y: b.extremum(order, x, y)

    def _order_of_keys(self, r: Reduce) -> str:
        """The order of an extremum of float32 that a pass along rows finds by integers; "" if it does not.

        The intrinsic that treats NaN and the signs of zeros as it should is a chain of dependent instructions.
        """
        if r.dtype != np.float32 or r.op not in ("max", "min") or self._is_any_zero(r):
            return ""
        return "gt" if r.op == "max" else "lt"

    def _is_any_zero(self, r: Reduce) -> bool:
        """Whether it is an extremum of which the sign of zero does not matter."""
        key = id(r.member)
        if key not in self.compared:
            self.compared[key] = r.any_zero or zero_has_no_sign(self.kernel, r)
        return self.compared[key]

    def _serial_reduction(self, scope: Scope) -> None:
        reduces, stores = self.of_phase()
        if not self.schedule.inner:
            if reduces:
                for r in reduces:
                    self.acc_values[id(r.member)] = self.vector(r.expr, scope, scope.lanes)
            for s in stores:
                self.eval(s.expr, scope)
            for s in stores:
                self.store(s, scope)
            return
        b = self.builder(scope.lanes)
        first = [b.const(identity(r.op, r.dtype), r.dtype) for r in reduces]

        def nest(depth: int, scope: Scope, accs: list[Scalar]) -> list[Scalar]:
            if depth == len(self.schedule.inner):
                reduces, stores = self.of_phase()
                new = []
                for r, acc in zip(reduces, accs, strict=True):
                    new.append(self._accumulated_with(r, acc, scope, scope.lanes))
                for s in stores:
                    self.store(s, scope)
                return new
            loop = self.schedule.inner[depth]

            def body(i: str, carried: list[Scalar]) -> list[Scalar]:
                return nest(depth + 1, Scope(scope, {id(loop[-1]): i}), carried)

            done = 0
            for lo, hi, size in self.parts(loop, *self.turns(depth)):
                reduces, stores = self.of_phase()
                self.hoist([r.expr for r in reduces], stores, scope, scope.vector, scope.lanes)
                if self.schedule.unrolled(depth):
                    for i in range(done, done + size):
                        accs = body(str(i), accs)
                else:
                    accs = self.loop(lo, hi, 1, accs, [scope.lanes] * len(accs), body)
                done += size
            return accs

        done = nest(0, scope, first)
        for r, acc in zip(reduces, done, strict=True):
            self.acc_values[id(r.member)] = acc
            scope.available |= {("acc", id(r.member))}

    # ------------------------------------------------------------ strategy: along

    def _along(self, scope: Scope, outermost: bool) -> None:
        """The innermost reduced axis is vectorized; lanes are combined at the end."""
        kernel = self.kernel
        for phase in range(kernel.phases):
            self.phase = phase
            self._row_pass(scope)
        self.phase = kernel.phases + 1
        for s in kernel.outer:
            self.store(s, scope)

    def _row_pass(self, scope: Scope) -> None:
        lanes = self.schedule.pass_lanes(self.phase)
        wide, one = self.builder(lanes), self.builder(1)
        reduces, _ = self.of_phase()
        rows = [(m, name) for m, name in self.rows.values() if m.phase == self.phase]
        orders = {id(r.member): self._order_of_keys(r) for r in reduces}

        def start(b: Builder, r: Reduce) -> Scalar:
            first, order = b.const(identity(r.op, r.dtype), r.dtype), orders[id(r.member)]
            return b.key_of_extremum(order, first) if order else first

        def combined(r: Reduce) -> Callable[[Builder, Scalar, Scalar], Scalar]:
            order = orders[id(r.member)]
            return {"gt": Builder.maximum, "lt": Builder.minimum}[order] if order else self._combining(r)

        accs = [start(b, r) for b in (wide, one) for r in reduces]
        n = len(reduces)
        widths = [lanes] * n + [1] * n

        def element(scope: Scope, carried: list[Scalar], lanes: int) -> list[Scalar]:
            out = []
            reduces, stores = self.of_phase()
            for r, acc in zip(reduces, carried, strict=True):
                order, b = orders[id(r.member)], self.builder(lanes)
                if order:
                    key = b.key_of_extremum(order, self.vector(r.expr, scope, lanes))
                    out.append(combined(r)(b, acc, key))
                else:
                    out.append(self._accumulated_with(r, acc, scope, lanes))
            for s in stores:
                self.store(s, scope)
            for member, row in rows:
                assert scope.vector is not None
                b = self.builder(lanes)
                x = self.vector(self.kernel.computed[id(member.value)], scope, lanes)
                ptr = b.emit(f"getelementptr {b._element(x.dtype)}, ptr {row}, i64 {scope.variable(scope.vector)}")
                b.store(ptr, x)
            return out

        # What fills no vector ends a chunk as its last whole vector. The constants of another loop, of single elements,
        # would be kept in registers all the time, which the vectors need.
        whole = lanes > 1 and self.schedule.size(self.schedule.inner[-1]) >= lanes
        overlaps = whole and self.schedule.chunked is not None and not self.schedule.split and not self.kernel.inner

        def overlapping(key: int, mid: str, hi: str, scope: Scope, _: str, c: list[Scalar]) -> list[Scalar]:
            first, new = one.emit(f"sub i64 {hi}, {lanes}"), one.emit(f"sub i64 {hi}, {mid}")
            seen = Scalar(INT64, one.emit(f"sub i64 {lanes}, {new}"))
            fresh = wide.compare("ge", wide.iota(), wide.splat(seen))
            out = element(Scope(scope, {key: first}, key, lanes), c, lanes)
            return [wide.select(fresh, x, before) for x, before in zip(out, c, strict=True)]

        def vectors(loop, lo: str, hi: str, scope: Scope, carried: list[Scalar]) -> list[Scalar]:
            key = id(loop[-1])
            reduces, stores = self.of_phase()
            hit = first_hit(reduces, self.schedule.inner) if not stores and not rows else None
            if hit is not None and self.schedule.chunked is not None:
                lo = self._unless_found(lo, hi)
            mid = self.vector_bounds(lo, hi, lanes)
            at: list[Scope] = []

            def turn(i: str, c: list[Scalar]) -> list[Scalar]:
                at[:] = [Scope(scope, {key: i}, key, lanes)]
                out = element(at[0], c, lanes)
                if self.phase == 1:
                    self.fetch_next_row(at[0])
                return out

            until = None if hit is None else lambda: wide.any_lane(self.vector(hit, at[0], lanes))
            vec = self.loop(lo, mid, lanes, carried[:n], [lanes] * n, turn, until)
            if overlaps:
                last = partial(overlapping, key, mid, hi, scope)
                return self.loop(mid, hi, lanes, vec, [lanes] * n, last) + carried[n:]
            rest = self.loop(
                mid, hi, 1, carried[n:], [1] * n, lambda i, c: element(Scope(scope, {key: i}, key, 1), c, 1)
            )
            return vec + rest

        def nest(depth: int, scope: Scope, carried: list[Scalar]) -> list[Scalar]:
            loop = self.schedule.inner[depth]
            last = depth == len(self.schedule.inner) - 1

            def body(i, c):
                return nest(depth + 1, Scope(scope, {id(loop[-1]): i}), c)

            for lo, hi, _ in self.parts(loop, *self.turns(depth)):
                reduces, stores = self.of_phase()
                exprs = [r.expr for r in reduces] + [self.kernel.computed[id(m.value)] for m, _ in rows]
                self.hoist(exprs, stores, scope, self.schedule.vector_id, lanes)
                if last:
                    carried = vectors(loop, lo, hi, scope, carried)
                else:
                    carried = self.loop(lo, hi, 1, carried, widths, body)
            return carried

        done = nest(0, scope, accs)
        for k, r in enumerate(reduces):
            rule = combined(r)
            total = rule(one, wide.reduce(rule, done[k]), done[n + k])
            self.acc_values[id(r.member)] = one.of_key(total) if orders[id(r.member)] else total
            scope.available |= {("acc", id(r.member))}
        if self.found:
            self._note_found(reduces[0])

    def _unless_found(self, lo: str, hi: str) -> str:
        """The first turn of a chunk; if an earlier one of the same call has a hit, its end."""
        b = self.builder(1)
        if not self.found:
            self.found = self.text.fresh()
            self.entry += [f"  {self.found} = alloca i1", f"  store i1 false, ptr {self.found}"]
        return b.emit(f"select i1 {b.emit(f'load i1, ptr {self.found}')}, i64 {hi}, i64 {lo}")

    def _note_found(self, r: Reduce) -> None:
        """Remember whether there was a hit in the chunk."""
        b = self.builder(1)
        missed = b.compare("eq", self.acc_values[id(r.member)], b.const(identity(r.op, r.dtype), r.dtype))
        before = b.emit(f"load i1, ptr {self.found}")
        hit = b.emit(f"xor i1 {missed.ir}, true")
        b.effect(f"store i1 {b.emit(f'or i1 {before}, {hit}')}, ptr {self.found}")
