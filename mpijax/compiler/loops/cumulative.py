"""Running sums, products and extremes as loops.

The running value stays in registers along the axis: `across` and `tiled` carry one for each lane of a kept axis,
`along` finds those of a vector's lanes by log2(W) shifted combinations and carries the total on. The operand is an
expression, so what feeds it is computed in place.

In a chunk of the axis it starts from what the chunks before it combine to (see `compiler.loops.chunks`).
"""

from __future__ import annotations

from collections.abc import Callable

from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.fusion.reductions import identity, rule_of
from mpijax.compiler.loops.addresses import Scope
from mpijax.compiler.loops.emit import Emitter
from mpijax.compiler.loops.schedule import LIGHT, VECTOR_BYTES
from mpijax.compiler.loops.tiles import TILE
from mpijax.scalar.builder import Builder
from mpijax.scalar.types import Scalar, imag_part, info


class CumulativeEmitter(Emitter):
    """Emits one running combination."""

    def __init__(self, kernel: Kernel, name: str):
        super().__init__(kernel, name)
        [self.reduce] = kernel.reduces
        [self.target] = kernel.inner
        assert kernel.cumulate is not None
        self.running, self.reverse = kernel.cumulate.running, kernel.cumulate.reverse
        self.before = kernel.cumulate.before
        self.combine = rule_of(self.reduce.op)
        self.first = identity(self.reduce.op, self.reduce.dtype)
        variables = [v for v in kernel.variables if v.size != 1]
        self.dependencies[id(self.running)] = frozenset(self._var_key(v) for v in variables)
        [self.scanned] = self.schedule.inner

    def _hoisted(self, scope: Scope, lanes: int) -> None:
        self.hoist([self.reduce.expr], [self.target], scope, self.schedule.vector_id, lanes)

    def _put(self, x: Scalar, scope: Scope) -> None:
        """Store the running value as the result at the scope's position."""
        scope.known[id(self.running)] = x
        self.store(self.target, scope)

    def _turn(self, i: str, width: int = 1) -> str:
        """The position of the i-th step; for a vector, of its first lane in memory."""
        if not self.reverse:
            return i
        b = self.builder(1)
        lo, hi = self.turns(0)
        last = hi if lo == "0" else b.emit(f"add i64 {lo}, {hi}")
        return b.emit(f"sub i64 {b.emit(f'sub i64 {last}, {width}')}, {i}")

    def _start(self, scope: Scope, lanes: int) -> Scalar:
        """The running values before the first step."""
        if self.before is None:
            return self.builder(lanes).const(self.first, self.reduce.dtype)
        return self.vector(self.before, scope, lanes)

    # ------------------------------------------------------------ along a kept axis

    def _across(self, scope: Scope, outermost: bool) -> None:
        """The running values of a vector of kept positions, step by step."""
        loop = self.schedule.vector_loop
        if loop is None:
            self._steps(Scope(scope, {}))
            return
        key = id(loop[-1])
        self._hoisted(scope, self.schedule.lanes)
        start, hi = self._range(loop, outermost)
        for width in self.schedule.widths:
            end = hi if width == 1 else self.vector_bounds(start, hi, width)

            def body(i: str, _, width=width):
                self._steps(Scope(scope, {key: i}, key, width))
                return []

            self.loop(start, end, width, [], [], body)
            start = end

    def _steps(self, scope: Scope) -> None:
        lanes = scope.lanes
        self._hoisted(scope, lanes)

        def body(i: str, carried: list[Scalar]) -> list[Scalar]:
            inner = Scope(scope, {id(self.scanned[-1]): self._turn(i)})
            x = self.vector(self.reduce.expr, inner, lanes)
            total = self.combine(self.builder(lanes), carried[0], x)
            self._put(total, inner)
            return [total]

        self.loop(*self.turns(0), 1, [self._start(scope, lanes)], [lanes], body)

    def _tiled(self, scope: Scope, outermost: bool) -> None:
        """A tile of the kept axis at a time, whose running values stay in an array on the stack."""
        loop = self.schedule.vector_loop
        assert loop is not None
        key = id(loop[-1])
        lo, hi = self._range(loop, outermost)
        one = self.builder(1)
        array, dtype = self.text.fresh(), self.reduce.dtype
        self.entry.append(f"  {array} = alloca {one._element(dtype)}, i64 {TILE}, align 64")
        self._hoisted(scope, self.schedule.lanes)

        def tile(start: str, _):
            stop = one.emit(f"add i64 {start}, {TILE}")
            low = one.emit(f"icmp slt i64 {stop}, {hi}")
            stop = one.emit(f"select i1 {low}, i64 {stop}, i64 {hi}")

            def sweep(scope: Scope, body: Callable[[Scope, str], None]) -> None:
                at = start
                for width in self.schedule.widths:
                    end = stop if width == 1 else self.vector_bounds(at, stop, width)

                    def turn(j: str, _, width=width):
                        offset = one.emit(f"sub i64 {j}, {start}")
                        ptr = one.emit(f"getelementptr {one._element(dtype)}, ptr {array}, i64 {offset}")
                        body(Scope(scope, {key: j}, key, width), ptr)
                        return []

                    self.loop(at, end, width, [], [], turn)
                    at = end

            def clear(scope: Scope, ptr: str) -> None:
                self.builder(scope.lanes).store(ptr, self._start(scope, scope.lanes))

            def step(scope: Scope, ptr: str) -> None:
                b = self.builder(scope.lanes)
                total = self.combine(b, b.load(ptr, dtype), self.vector(self.reduce.expr, scope, scope.lanes))
                b.store(ptr, total)
                self._put(total, scope)

            def row(i: str, _):
                inner = Scope(scope, {id(self.scanned[-1]): self._turn(i)})
                self._hoisted(inner, self.schedule.lanes)
                sweep(inner, step)
                return []

            sweep(Scope(scope, {}), clear)
            self.loop(*self.turns(0), 1, [], [], row)
            return []

        self.loop(lo, hi, TILE, [], [], tile)

    # ------------------------------------------------------------ along the scanned axis

    def _along(self, scope: Scope, outermost: bool) -> None:
        """Several vectors a turn, then one, then element by element."""
        dtype = self.reduce.dtype
        block = min(self.schedule.lanes, VECTOR_BYTES // max(info(dtype).itemsize, 4))
        heavy = self.reduce.op == "logaddexp" or self.reduce.expr.cost > LIGHT or info(dtype).kind == "c"
        blocks = 1 if heavy else self.schedule.lanes // block
        carry = self.builder(block).splat(self._start(scope, 1)) if block > 1 else self._start(scope, 1)
        start, end = self.turns(0)
        self._hoisted(scope, block)
        for count in (blocks, 1) if blocks > 1 else (1,):
            if block == 1:
                break
            mid = self.vector_bounds(start, end, count * block)

            def body(i: str, carried: list[Scalar], count=count) -> list[Scalar]:
                return [self._vectors(scope, i, carried[0], count, block)]

            [carry] = self.loop(start, mid, count * block, [carry], [block], body)
            start = mid
        one = self.builder(1)
        key = id(self.scanned[-1])

        def last(i: str, carried: list[Scalar]) -> list[Scalar]:
            inner = Scope(scope, {key: self._turn(i)}, key, 1)
            total = self.combine(one, carried[0], self.vector(self.reduce.expr, inner, 1))
            self._put(total, inner)
            return [total]

        self.loop(start, end, 1, [self.builder(block).lane(carry, 0)], [1], last)

    def _vectors(self, scope: Scope, i: str, carry: Scalar, count: int, block: int) -> Scalar:
        """`count` vectors from step i on. `carry` holds the running value before them in all lanes; returns the next.

        Totals of the vectors are combined first, so that one combination a turn waits for the last turn.
        """
        b, one, key = self.builder(block), self.builder(1), id(self.scanned[-1])
        parts = []
        for k in range(count):
            at = i if k == 0 else one.emit(f"add i64 {i}, {k * block}")
            inner = Scope(scope, {key: self._turn(at, block)}, key, block)
            parts.append((inner, self._prefixes(b, self.vector(self.reduce.expr, inner, block))))
        final = 0 if self.reverse else block - 1
        totals: list[Scalar] = []
        for _, x in parts:
            last = b.splat(b.lane(x, final))
            totals.append(self.combine(b, totals[-1], last) if totals else last)
        for k, (inner, x) in enumerate(parts):
            before = carry if k == 0 else self.combine(b, carry, totals[k - 1])
            self._put(self.combine(b, before, x), inner)
        return self.combine(b, carry, totals[-1])

    def _prefixes(self, b: Builder, x: Scalar) -> Scalar:
        """The running combinations of a vector's lanes."""
        unit = b.const(self.first, self.reduce.dtype)
        step = 1
        while step < b.lanes:
            x = self.combine(b, _shifted(b, x, unit, -step if self.reverse else step), x)
            step *= 2
        return x


def _shifted(b: Builder, x: Scalar, fill: Scalar, by: int) -> Scalar:
    """Lanes moved up by `by`, or down if it is negative; lanes of `fill` move in."""
    n = b.lanes
    mask = ", ".join(f"i32 {n + j - by if 0 <= j - by < n else j}" for j in range(n))
    t = b.type(x.dtype)
    ir = b.emit(f"shufflevector {t} {fill.ir}, {t} {x.ir}, <{n} x i32> <{mask}>")
    return Scalar(x.dtype, ir, None if x.imag is None else _shifted(b.with_lanes(n), x.imag, imag_part(fill), by))
