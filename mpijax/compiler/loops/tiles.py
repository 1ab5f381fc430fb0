"""Kernels that go through their elements in tiles.

- `tiled`: a kept axis is vectorized, with long reductions; partial results of a tile of it stay in a small array.
- `blocked`: a map that reads an operand across its rows (see `compiler.loops.blocked`).
"""

from __future__ import annotations

from functools import partial

from mpijax.compiler.fusion.expr import Expr, children
from mpijax.compiler.fusion.reductions import identity, rule_of
from mpijax.compiler.loops.addresses import Scope
from mpijax.compiler.loops.blocked import TILE as TILE_EDGE
from mpijax.compiler.loops.blocked import stage_tile
from mpijax.compiler.loops.rows import Rows
from mpijax.core.index import LoopVar
from mpijax.scalar.types import Scalar

TILE = 1024
# Rows that tiles across other rows go through together: of these, neighbouring cache lines are then read at once.
BAND = 128
# Rows that are added to the partial results of a tile at a time, if their bodies have at most so many expressions.
ROWS = 4
ROWS_EXPRESSIONS = 24


class Tiles(Rows):
    """Kernels in tiles of one axis or of two."""

    # ------------------------------------------------------------ strategy: tiled

    def _tiled(self, scope: Scope, outermost: bool) -> None:
        """A kept axis in tiles; the partial results of a tile stay in an array on the stack."""
        loop = self.schedule.vector_loop
        assert loop is not None
        lo, hi = self._range(loop, outermost)
        for start, end, _ in self.parts(loop, lo, hi):
            self._tiled_part(loop, start, end, scope)

    def _tiled_part(self, loop: list[LoopVar], lo: str, hi: str, scope: Scope) -> None:
        key = id(loop[-1])
        kernel = self.kernel
        one = self.builder(1)

        def array_of(dtype) -> str:
            name = self.text.fresh()
            self.entry.append(f"  {name} = alloca {one._element(dtype)}, i64 {TILE}, align 64")
            return name

        arrays = {id(r.member): array_of(r.dtype) for r in kernel.reduces}
        self.hoist(kernel.roots(), kernel.inner + kernel.outer, scope, key, self.schedule.lanes)

        def tile(start: str, _):
            stop = one.emit(f"add i64 {start}, {TILE}")
            low = one.emit(f"icmp slt i64 {stop}, {hi}")
            stop = one.emit(f"select i1 {low}, i64 {stop}, i64 {hi}")
            tile_scope = Scope(scope, {})

            def column_pointer(array: str, dtype, scope: Scope) -> str:
                b = self.builder(1)
                at = b.emit(f"sub i64 {scope.variable(key)}, {start}")
                return b.emit(f"getelementptr {b._element(dtype)}, ptr {array}, i64 {at}")

            def read_column(array: str, dtype, scope: Scope) -> Scalar:
                return self.builder(scope.lanes).load(column_pointer(array, dtype, scope), dtype)

            def acc_pointer(member, scope: Scope) -> str:
                return column_pointer(arrays[id(member)], member.value.element, scope)

            def sweep(scopes: list[Scope], body) -> None:
                at = start
                for width in self.schedule.widths:
                    end = stop if width == 1 else self.vector_bounds(at, stop, width)

                    def turn(i, _, width=width):
                        body(*(Scope(scope, {key: i}, key, width) for scope in scopes))
                        return []

                    self.loop(at, end, width, [], [], turn)
                    at = end

            for phase in range(kernel.phases):
                self.phase = phase
                reduces, _ = self.of_phase()

                def clear(scope, reduces=reduces):
                    for r in reduces:
                        b = self.builder(scope.lanes)
                        b.store(acc_pointer(r.member, scope), b.const(identity(r.op, r.dtype), r.dtype))

                if reduces:
                    sweep([tile_scope], clear)

                def combine(*scopes):
                    reduces, stores = self.of_phase()
                    for r in reduces:
                        b = self.builder(scopes[0].lanes)
                        ptr = acc_pointer(r.member, scopes[0])
                        acc = b.load(ptr, r.dtype)
                        for scope in scopes:
                            acc = rule_of(r.op)(b, acc, self.vector(r.expr, scope, scope.lanes))
                        b.store(ptr, acc)
                    for scope in scopes:
                        for s in stores:
                            self.store(s, scope)

                def through(scopes: list[Scope]) -> None:
                    reduces, stores = self.of_phase()
                    for scope in scopes:
                        self.hoist([r.expr for r in reduces], stores, scope, key, self.schedule.lanes)
                    sweep(scopes, combine)

                def nest(depth: int, scopes: list[Scope]) -> None:
                    if depth == len(self.schedule.inner):
                        through(scopes)
                        return
                    [scope] = scopes
                    inner = self.schedule.inner[depth]
                    last = depth == len(self.schedule.inner) - 1

                    def body(i, _, turns):
                        at = [i] + [one.emit(f"add i64 {i}, {k}") for k in range(1, turns)]
                        nest(depth + 1, [Scope(scope, {id(inner[-1]): k}) for k in at])
                        return []

                    for low, high, _ in self.parts(inner, *self.turns(depth)):
                        reduces, stores = self.of_phase()
                        self.hoist([r.expr for r in reduces], stores, scope, key, self.schedule.lanes)
                        few = ROWS * len(self.kernel.expressions()) <= ROWS_EXPRESSIONS
                        for turns in (ROWS, 1) if last and few else (1,):
                            end = high if turns == 1 else self.vector_bounds(low, high, turns)
                            self.loop(low, end, turns, [], [], partial(body, turns=turns))
                            low = end

                nest(0, [tile_scope])
                for r in reduces:
                    self.acc_values[id(r.member)] = partial(read_column, arrays[id(r.member)], r.dtype)
                    tile_scope.available |= {("acc", id(r.member))}
                self.phase = phase + 1
                made = [(e, array_of(e.dtype)) for e in self._of_columns()]

                def keep(scope, made=made):
                    for e, name in made:
                        b = self.builder(scope.lanes)
                        b.store(column_pointer(name, e.dtype, scope), self.vector(e, scope, scope.lanes))

                if made:
                    sweep([tile_scope], keep)
                self.columns |= {id(e): partial(read_column, name, e.dtype) for e, name in made}
            self.phase = kernel.phases + 1

            def finish(scope):
                for s in kernel.outer:
                    self.store(s, scope)

            sweep([tile_scope], finish)
            return []

        self.loop(lo, hi, TILE, [], [], tile)
        self.columns.clear()

    def _of_columns(self) -> list[Expr]:
        """What the passes from the present one on compute again for each element, though it is the column's alone."""
        inner = {id(loop[-1]) for loop in self.schedule.inner}
        known = {("acc", id(r.member)) for r in self.kernel.reduces if r.phase < self.phase}
        later = [r.expr for r in self.kernel.reduces if r.phase >= self.phase]
        later += [s.expr for s in self.kernel.inner if s.phase >= self.phase]
        found: list[Expr] = []
        seen = set(self.columns)
        while later:
            e = later.pop()
            if id(e) in seen:
                continue
            seen.add(id(e))
            needs = self.deps(e)
            reductions = {d for d in needs if isinstance(d, tuple)}
            if e.op != "acc" and reductions and reductions <= known and not needs & inner:
                found.append(e)
            else:
                later.extend(children(e))
        return found

    # ------------------------------------------------------------ strategy: blocked

    def _blocked(self, scope: Scope, outermost: bool) -> None:
        """Whole tiles with staged operands, then the edges without."""
        schedule, kernel = self.schedule, self.kernel
        rows, columns = schedule.tile_loop, schedule.vector_loop
        assert rows is not None and columns is not None
        row_key, column_key = id(rows[-1]), id(columns[-1])
        lo, hi = self._range(rows, outermost)
        end = self._extent(columns)
        row_mid, column_mid = self.vector_bounds(lo, hi, TILE_EDGE), self.vector_bounds("0", end, TILE_EDGE)
        one = self.builder(1)
        tiles = {}
        for e in schedule.staged:
            name = self.text.fresh()
            element = one._element(e.attr[0].element)
            self.entry.append(f"  {name} = alloca {element}, i64 {TILE_EDGE * TILE_EDGE}, align 64")
            tiles[id(e)] = name
        self.hoist(kernel.roots(), kernel.inner + kernel.outer, scope, column_key, schedule.lanes)
        lanes = min(schedule.lanes, TILE_EDGE)

        def tile(row: str, column: str) -> None:
            corner = Scope(scope, {row_key: row, column_key: column})
            for e in schedule.staged:
                value, position = e.attr
                steps = {id(a): c for a, c in position.terms}
                first, step = self.pointer(value, position, corner), self.param(steps[column_key])
                stage_tile(self, e, tiles[id(e)], first, step, backwards=steps[row_key] < 0)
            row_end = one.emit(f"add i64 {row}, {TILE_EDGE}")

            def line(i: str, _):
                at = one.emit(f"sub i64 {i}, {row}")
                base = one.emit(f"mul i64 {at}, {TILE_EDGE}")
                for part in range(0, TILE_EDGE, lanes):
                    j = column if part == 0 else one.emit(f"add i64 {column}, {part}")
                    inner = Scope(Scope(scope, {row_key: i}), {column_key: j}, column_key, lanes)
                    offset = base if part == 0 else one.emit(f"add i64 {base}, {part}")
                    for e in schedule.staged:
                        b = self.builder(lanes)
                        dtype = e.attr[0].element
                        ptr = b.emit(f"getelementptr {b._element(dtype)}, ptr {tiles[id(e)]}, i64 {offset}")
                        inner.known[id(e)] = b.load(ptr, dtype)
                    self._reduce_and_store(inner)
                return []

            self.loop(row, row_end, 1, [], [], line)

        def band(first: str, _):
            stop = one.emit(f"add i64 {first}, {BAND}")
            low = one.emit(f"icmp slt i64 {stop}, {row_mid}")
            stop = one.emit(f"select i1 {low}, i64 {stop}, i64 {row_mid}")

            def each(column: str, _):
                def one_tile(row: str, _):
                    tile(row, column)
                    return []

                self.loop(first, stop, TILE_EDGE, [], [], one_tile)
                return []

            self.loop("0", column_mid, TILE_EDGE, [], [], each)
            return []

        self.loop(lo, row_mid, BAND, [], [], band)
        # The edges: columns that fill no tile, then rows that fill none.
        for row_from, row_to, column_from in ((lo, row_mid, column_mid), (row_mid, hi, "0")):

            def edge(i: str, _, column_from=column_from):
                row_scope = Scope(scope, {row_key: i})

                def cell(j: str, _):
                    self._reduce_and_store(Scope(row_scope, {column_key: j}))
                    return []

                self.loop(column_from, end, 1, [], [], cell)
                return []

            self.loop(row_from, row_to, 1, [], [], edge)
