"""Emits cumulative sums, products and extrema as loops.

The running value stays in registers along the axis. `across` and `tiled` carry one for each lane of a kept axis.
`along` computes those of a vector's lanes with log2(W) shifted combinations and carries the total on. The operand is an
expression, so its producers are fused.

A chunk of the axis starts from the combination of the chunks before it (see `compiler.loops.chunks`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.fusion.reductions import identity, rule_of
from mpijax.compiler.loops import partial_sums
from mpijax.compiler.loops.evaluate import hoist
from mpijax.compiler.loops.nest import LoopNest
from mpijax.compiler.loops.partial_sums import turns_of_block
from mpijax.compiler.loops.schedule import LIGHT, VECTOR_BYTES
from mpijax.compiler.loops.scope import Scope
from mpijax.compiler.loops.stores import store
from mpijax.compiler.loops.tiled import TILE, Columns
from mpijax.core.rules.lowering import Combiner
from mpijax.scalar.builder import Builder
from mpijax.scalar.types import Scalar, imag_part, info

# Takes the running value of a block and returns that of the whole axis.
Rule = Callable[[Scalar], Scalar]


def across(nest: LoopNest, kernel: Kernel, scope: Scope, outermost: bool) -> None:
    """Step along the axis with the running values of a vector of kept positions."""
    running, loop = _CumulativeReduction(nest, kernel, scope), nest.schedule.vector_loop
    if loop is None:
        running.steps(Scope(scope, {}))
        return
    running.hoist(scope, nest.schedule.lanes)
    lo, hi = nest.range(loop, outermost)
    nest.function.in_widths(lo, hi, nest.schedule.widths, lambda i, n: running.steps(scope.along(loop[-1], i, n)))


def tiled(nest: LoopNest, kernel: Kernel, scope: Scope, outermost: bool) -> None:
    """Process the kept axis in tiles; the running values of a tile are in an array on the stack."""
    running, loop, function = _CumulativeReduction(nest, kernel, scope), nest.schedule.vector_loop, nest.function
    assert loop is not None
    lo, hi = nest.range(loop, outermost)
    turns = running.turns(1)
    whole = function.array(running.dtype, TILE)
    own = function.array(running.dtype, TILE) if turns else whole  # the running values of a block
    running.hoist(scope, nest.schedule.lanes)

    def tile(start: str, stop: str) -> None:
        columns = Columns(function, loop, start, stop, nest.schedule.widths)

        def fill(array: str, first: Callable[[Scope], Scalar]) -> None:
            def one(at: Scope) -> None:
                function.builder(at.lanes).store(columns.pointer(array, running.dtype, at), first(at))

            columns.sweep([Scope(scope, {})], one)

        def total(at: Scope) -> Scalar:
            b = function.builder(at.lanes)
            parts = [b.load(columns.pointer(array, running.dtype, at), running.dtype) for array in (whole, own)]
            return running.combine(b, *parts)

        def step(at: Scope) -> None:
            b, ptr = function.builder(at.lanes), columns.pointer(own, running.dtype, at)
            value = running.combine(b, b.load(ptr, running.dtype), running.operand(at, at.lanes))
            b.store(ptr, value)
            running.put(total(at) if turns else value, at)

        def row(i: str) -> None:
            inner = scope.at(running.axis, running.iteration(i))
            running.hoist(inner, nest.schedule.lanes)
            columns.sweep([inner], step)

        def block(first: str, end: str) -> None:
            fill(own, lambda at: function.builder(at.lanes).const(running.first, running.dtype))
            function.each(first, end, 1, row)
            fill(whole, total)

        fill(whole, lambda at: running.start(at, at.lanes))
        if turns:
            function.in_tiles(*nest.iterations(0, scope), turns, block)
        else:
            function.each(*nest.iterations(0, scope), 1, row)

    function.in_tiles(lo, hi, TILE, tile)


def along(nest: LoopNest, kernel: Kernel, scope: Scope, outermost: bool) -> None:
    """Vectorize the scanned axis: several vectors per iteration, then single vectors, then single elements."""
    running, lanes, function = _CumulativeReduction(nest, kernel, scope), nest.schedule.lanes, nest.function
    block = min(lanes, VECTOR_BYTES // max(info(running.dtype).itemsize, 4))
    carry = running.start(scope, 1)
    carry = function.builder(block).splat(carry) if block > 1 else carry
    start, end = nest.iterations(0, scope)
    running.hoist(scope, block)
    blocks = 1 if running.is_heavy() else lanes // block
    for count in (blocks, 1) if blocks > 1 else (1,):
        if block == 1:
            break
        mid = function.vectors_end(start, end, count * block)

        def body(i: str, total_of: Rule, own: Scalar, count: int = count) -> Scalar:
            return running.vectors(scope, i, total_of, own, count, block)

        carry = running.loop(start, mid, count * block, carry, block, body)
        start = mid

    def last(i: str, total_of: Rule, own: Scalar) -> Scalar:
        return running.step(scope.along(running.axis, running.iteration(i), 1), total_of, own)

    running.loop(start, end, 1, function.builder(block).lane(carry, 0), 1, last)


class _CumulativeReduction:
    """A cumulative reduction: its operand, initial value, combination and stores. axis: the scanned loop."""

    def __init__(self, nest: LoopNest, kernel: Kernel, scope: Scope):
        self.nest, self.scope = nest, scope
        [self.reduce], [self.target], [loop] = kernel.reduces, kernel.inner, nest.schedule.inner
        assert kernel.cumulate is not None
        self.cumulate, self.axis, self.dtype = kernel.cumulate, loop[-1], self.reduce.dtype
        self.combine = rule_of(self.reduce.op)
        self.first = identity(self.reduce.op, self.dtype)

    def is_heavy(self) -> bool:
        """Whether the work per element is so large that an iteration should process one vector only."""
        return self.reduce.op is Combiner.LOGADDEXP or self.reduce.expr.cost > LIGHT or info(self.dtype).kind == "c"

    def hoist(self, scope: Scope, lanes: int) -> None:
        """Before a loop: compute loop-invariant values."""
        hoist(self.nest, [self.reduce.expr], [self.target], scope, self.nest.schedule.vector, lanes)

    def operand(self, scope: Scope, lanes: int) -> Scalar:
        """The operand's element at the scope's position."""
        return self.nest.vector(self.reduce.expr, scope, lanes)

    def put(self, x: Scalar, scope: Scope) -> None:
        """Store the running value as the result at the scope's position."""
        scope.known[self.cumulate.running] = x
        store(self.nest, self.target, scope)

    def iteration(self, i: str, width: int = 1) -> str:
        """The position of step i; for a vector, of its first lane in memory."""
        if not self.cumulate.reverse:
            return i
        b = self.nest.function.builder(1)
        lo, hi = self.nest.iterations(0, self.scope)
        last = hi if lo == "0" else b.emit(f"add i64 {lo}, {hi}")
        return b.emit(f"sub i64 {b.emit(f'sub i64 {last}, {width}')}, {i}")

    def start(self, scope: Scope, lanes: int) -> Scalar:
        """The running value before the first step."""
        if self.cumulate.before is None:
            return self.nest.function.builder(lanes).const(self.first, self.dtype)
        return self.nest.vector(self.cumulate.before, scope, lanes)

    def steps(self, scope: Scope) -> None:
        """All steps at one kept position, or a vector of them."""
        lanes = scope.lanes
        self.hoist(scope, lanes)

        def body(i: str, total_of: Rule, own: Scalar) -> Scalar:
            return self.step(scope.at(self.axis, self.iteration(i)), total_of, own)

        self.loop(*self.nest.iterations(0, scope), 1, self.start(scope, lanes), lanes, body)

    def turns(self, step: int) -> int:
        """Steps of a block that has running values of its own; 0 if there are no blocks."""
        return turns_of_block([self.reduce], self.nest.schedule.inner, step)

    def loop(self, lo: str, hi: str, step: int, start: Scalar, lanes: int, body: Callable) -> Scalar:
        """See `partial_sums.running`."""
        b = self.nest.function.builder(lanes)
        first = b.const(self.first, self.dtype) if self.turns(step) else None
        combine = partial(self.combine, b)
        return partial_sums.running(self.nest.function, lo, hi, step, start, first, combine, lanes, body)

    def step(self, at: Scope, total_of: Rule, own: Scalar) -> Scalar:
        """One step, at one position or at a vector of kept ones."""
        own = self.combine(self.nest.function.builder(at.lanes), own, self.operand(at, at.lanes))
        self.put(total_of(own), at)
        return own

    def vectors(self, scope: Scope, i: str, total_of: Rule, own: Scalar, count: int, block: int) -> Scalar:
        """`count` vectors from step i on. own: what the block carries before them, in all lanes; returns the next one.

        The vectors' totals are combined first, so only one combination per iteration depends on the previous iteration.
        """
        b, one = self.nest.function.builder(block), self.nest.function.builder(1)
        parts = []
        for k in range(count):
            at = i if k == 0 else one.emit(f"add i64 {i}, {k * block}")
            inner = scope.along(self.axis, self.iteration(at, block), block)
            parts.append((inner, self._prefixes(b, self.operand(inner, block))))
        final = 0 if self.cumulate.reverse else block - 1
        totals: list[Scalar] = []
        for _, x in parts:
            last = b.splat(b.lane(x, final))
            totals.append(self.combine(b, totals[-1], last) if totals else last)
        carry = total_of(own)
        for k, (inner, x) in enumerate(parts):
            before = carry if k == 0 else self.combine(b, carry, totals[k - 1])
            self.put(self.combine(b, before, x), inner)
        return self.combine(b, own, totals[-1])

    def _prefixes(self, b: Builder, x: Scalar) -> Scalar:
        """The prefix combinations of a vector's lanes."""
        unit = b.const(self.first, self.dtype)
        step = 1
        while step < b.lanes:
            x = self.combine(b, _shifted(b, x, unit, -step if self.cumulate.reverse else step), x)
            step *= 2
        return x


def _shifted(b: Builder, x: Scalar, fill: Scalar, by: int) -> Scalar:
    """Lanes moved up by `by` (down if negative); lanes of `fill` move in."""
    n = b.lanes
    mask = ", ".join(f"i32 {n + j - by if 0 <= j - by < n else j}" for j in range(n))
    t = b.type(x.dtype)
    ir = b.emit(f"shufflevector {t} {fill.ir}, {t} {x.ir}, <{n} x i32> <{mask}>")
    return Scalar(x.dtype, ir, None if x.imag is None else _shifted(b.with_lanes(n), x.imag, imag_part(fill), by))
