"""The strategy `tiled`: vectorizes a kept axis that has long reductions.

Small arrays on the stack hold the partial results of a tile of the axis while the loop runs over the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from mpijax.compiler.fusion.expr import Expr, ReducedValue, children, reachable
from mpijax.compiler.fusion.kernel import Kernel, Member
from mpijax.compiler.fusion.reductions import identity, rule_of
from mpijax.compiler.loops.evaluate import hoist
from mpijax.compiler.loops.function import Function
from mpijax.compiler.loops.partial_sums import turns_of_block
from mpijax.compiler.loops.schedule import Loop, iterations_of
from mpijax.compiler.loops.scope import Scope
from mpijax.compiler.loops.stores import may_overlap, store, store_lanes
from mpijax.compiler.loops.streaming import SHARE
from mpijax.scalar.types import Scalar

if TYPE_CHECKING:
    from mpijax.compiler.loops.nest import LoopNest

TILE = 1024
# Rows that are added to a tile's partial results at once, if their bodies have at most ROWS_EXPRESSIONS expressions.
ROWS = 4
ROWS_EXPRESSIONS = 24


def tiled(nest: LoopNest, kernel: Kernel, scope: Scope, outermost: bool) -> None:
    """Process a kept axis in tiles; an array on the stack holds the partial results of a tile."""
    loop = nest.schedule.vector_loop
    assert loop is not None
    for part, lo, hi, _ in nest.parts(kernel, loop, *nest.range(loop, outermost)):
        _tiled_part(nest, part, loop, lo, hi, scope)


def _tiled_part(nest: LoopNest, kernel: Kernel, loop: Loop, lo: str, hi: str, scope: Scope) -> None:
    arrays = {r.member: nest.function.array(r.dtype, TILE) for r in kernel.reduces}
    hoist(nest, kernel.roots, kernel.stores, scope, loop[-1], nest.schedule.lanes)

    rest = _rest(nest, kernel, loop)

    def tile(start: str, stop: str) -> None:
        columns = Columns(nest.function, loop, start, stop, nest.schedule.widths, rest)
        _Tile(nest, kernel, columns, arrays, Scope(scope, {})).write()

    nest.function.in_tiles(lo, hi, TILE, tile)


def _rest(nest: LoopNest, kernel: Kernel, loop: Loop) -> int:
    """The columns after the last whole vector if a vector that repeats others computes these; else 0.

    Threads take multiples of SHARE columns, so the last tile has at least as many as are over.
    """
    size, lanes = iterations_of(loop), nest.schedule.lanes
    over = size % SHARE
    if lanes == 1 or nest.schedule.split or over < lanes or not may_overlap(nest, kernel, kernel.stores, loop[-1]):
        return 0
    return over % lanes


class Columns:
    """The columns of one tile: those of a loop from `start` to `stop`. rest: see `_rest`."""

    def __init__(self, function: Function, loop: Loop, start: str, stop: str, widths: list[int], rest: int = 0):
        self.function, self.v, self.widths, self.rest = function, loop[-1], widths, rest
        self.start, self.stop = start, stop

    def sweep(self, scopes: list[Scope], body: Callable[..., None]) -> None:
        """A loop over the columns; passes the body each scope with a vector of columns bound in it."""

        def iteration(i: str, width: int, fresh: int = 0) -> None:
            body(*(scope.along(self.v, i, width, fresh) for scope in scopes))

        self.function.in_widths(self.start, self.stop, self.widths, iteration, self.rest)

    def pointer(self, array: str, dtype, scope: Scope) -> str:
        """The pointer to the array's elements for the scope's columns."""
        at = self.function.builder(1).emit(f"sub i64 {scope.variable(self.v)}, {self.start}")
        return self.function.element(array, dtype, at)

    def reader(self, array: str, dtype) -> Callable[[Scope], Scalar]:
        """A function that loads the array's elements for a scope's columns."""
        return lambda scope: self.function.builder(scope.lanes).load(self.pointer(array, dtype, scope), dtype)


class _Tile:
    """One tile: its passes over the reduced axes, then its stores.

    arrays: pointers to the partial results. kept: expressions stored in an array, one element per column.
    """

    def __init__(self, nest: LoopNest, kernel: Kernel, columns: Columns, arrays: dict[Member, str], scope: Scope):
        self.nest, self.kernel, self.columns, self.arrays, self.scope = nest, kernel, columns, arrays, scope
        self.kept: set[Expr] = set()

    def write(self) -> None:
        """Emit the tile."""
        for phase in range(self.kernel.phases):
            self.scope.phase = phase
            self._pass()
            self.scope.phase = phase + 1
            self._keep_columns()
        self.scope.phase = self.kernel.phases + 1

        def finish(scope: Scope) -> None:
            for s in self.kernel.outer:
                store(self.nest, s, scope)

        self.columns.sweep([self.scope], finish)

    def _pass(self) -> None:
        """One pass over the reduced axes."""
        reduces, _ = self.kernel.of_phase(self.scope.phase)
        if reduces:
            self.columns.sweep([self.scope], self._clear)
        self._loops(self.kernel, 0, [self.scope])
        for r in reduces:
            self.scope.finish(r.member, self.columns.reader(self.arrays[r.member], r.dtype))

    def _clear(self, scope: Scope) -> None:
        for r in self.kernel.of_phase(scope.phase)[0]:
            first = self.nest.function.builder(scope.lanes).const(identity(r.op, r.dtype), r.dtype)
            store_lanes(self.nest, self._partial(r.member, scope), first, scope)

    def _partial(self, member: Member, scope: Scope) -> str:
        """The pointer to partial results of the scope's columns."""
        return self.columns.pointer(self.arrays[member], member.value.element, scope)

    def _loops(self, kernel: Kernel, depth: int, scopes: list[Scope]) -> None:
        """The reduced loops from `depth` on; the innermost one processes several rows at a time, a scope each."""
        nest, inner = self.nest, self.nest.schedule.inner
        if depth == len(inner):
            for scope in scopes:
                self._hoist(kernel, scope)
            self.columns.sweep(scopes, lambda *at: self._combine(kernel, at))
            return
        [scope], loop = scopes, inner[depth]
        for part, lo, hi, _ in nest.parts(kernel, loop, *nest.iterations(depth, scope)):
            self._hoist(part, scope)
            few = depth == len(inner) - 1 and ROWS * len(part.expressions) <= ROWS_EXPRESSIONS

            def rows(i: str, iterations: int, part: Kernel = part) -> None:
                one = nest.function.builder(1)
                at = [i] + [one.emit(f"add i64 {i}, {k}") for k in range(1, iterations)]
                self._loops(part, depth + 1, [scope.at(loop[-1], k) for k in at])

            run = partial(nest.function.in_widths, widths=(ROWS, 1) if few else (1,), body=rows)
            turns = turns_of_block(part.of_phase(scope.phase)[0], inner[depth:])
            if turns:
                nest.function.in_tiles(lo, hi, turns, partial(self._block, part, run))
            else:
                run(lo, hi)

    def _block(self, kernel: Kernel, run: Callable[[str, str], None], lo: str, hi: str) -> None:
        """A block of rows with partial results of its own, which are then added to those of all rows."""
        total = self.arrays
        reduces, _ = kernel.of_phase(self.scope.phase)
        self.arrays = {**total, **{r.member: self.nest.function.array(r.dtype, TILE) for r in reduces}}
        self.columns.sweep([self.scope], self._clear)
        run(lo, hi)
        own, self.arrays = self.arrays, total

        def add(scope: Scope) -> None:
            b = self.nest.function.builder(scope.lanes)
            for r in reduces:
                to, of = (self.columns.pointer(x[r.member], r.member.value.element, scope) for x in (total, own))
                x = rule_of(r.op)(b, b.load(to, r.dtype), b.load(of, r.dtype))
                store_lanes(self.nest, to, x, scope)

        self.columns.sweep([self.scope], add)

    def _hoist(self, kernel: Kernel, scope: Scope) -> None:
        reduces, stores = kernel.of_phase(scope.phase)
        hoist(self.nest, [r.expr for r in reduces], stores, scope, self.columns.v, self.nest.schedule.lanes)

    def _combine(self, kernel: Kernel, scopes: tuple[Scope, ...]) -> None:
        """Add elements of several rows to the partial results of their columns; also the rows' own stores."""
        reduces, stores = kernel.of_phase(self.scope.phase)
        b = self.nest.function.builder(scopes[0].lanes)
        for r in reduces:
            ptr = self._partial(r.member, scopes[0])
            terms = [self.nest.vector(r.expr, scope, scope.lanes) for scope in scopes]
            while len(terms) > 1:
                terms = [rule_of(r.op)(b, x, y) for x, y in zip(terms[::2], terms[1::2], strict=True)]
            store_lanes(self.nest, ptr, rule_of(r.op)(b, b.load(ptr, r.dtype), terms[0]), scopes[0])
        for scope in scopes:
            for s in stores:
                store(self.nest, s, scope)

    # ------------------------------------------------------------ expressions per column

    def _keep_columns(self) -> None:
        """Compute expressions that depend only on the column once, for the later passes."""
        made = [(e, self.nest.function.array(e.dtype, TILE)) for e in self._of_columns()]

        def keep(scope: Scope) -> None:
            for e, array in made:
                ptr = self.columns.pointer(array, e.dtype, scope)
                store_lanes(self.nest, ptr, self.nest.vector(e, scope, scope.lanes), scope)

        if made:
            self.columns.sweep([self.scope], keep)
        for e, array in made:
            self.kept.add(e)
            self.scope.known[e] = self.columns.reader(array, e.dtype)

    def _of_columns(self) -> list[Expr]:
        """Expressions that later passes would recompute for each element although they depend only on the column."""
        phase = self.scope.phase
        inner = {loop[-1] for loop in self.nest.schedule.inner}
        known = {r.member for r in self.kernel.reduces if r.phase < phase}
        later = [r.expr for r in self.kernel.reduces if r.phase >= phase]
        later += [s.expr for s in self.kernel.inner if s.phase >= phase]

        def is_column(e: Expr) -> bool:
            needs = self.nest.needs.of(e)
            reductions = {d for d in needs if type(d) is Member}
            return bool(not isinstance(e, ReducedValue) and reductions and reductions <= known and not needs & inner)

        found = reachable(later, lambda e: () if e in self.kept or is_column(e) else children(e))
        return [e for e in found if e not in self.kept and is_column(e)]
