"""The strategy `blocked`: a map that reads operands across their rows, in tiles.

Reading a row-major array column by column loads a cache line per element. Here a tile of 16 by 16 elements is read
along its rows and transposed with vector shuffles into a small array on the stack. It is then read in the order of the
other operands and the result. Each line of a tile of a large array is on a page of its own, which hardware does not
prefetch, so the code prefetches the next tile.
"""

from __future__ import annotations

from mpijax.compiler.fusion.expr import Load
from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.loops.across import reduce_and_store
from mpijax.compiler.loops.addresses import pointer
from mpijax.compiler.loops.crossing import LANES, TILE, transpose_registers
from mpijax.compiler.loops.evaluate import hoist
from mpijax.compiler.loops.nest import LoopNest
from mpijax.compiler.loops.scope import Scope
from mpijax.compiler.loops.stores import LINE, fetch
from mpijax.core.shapes.index import LoopVar

# The number of rows in a band of tiles: going down a band first reads neighbouring cache lines at once.
BAND = 128
# Arrays of more bytes than this, which exceed the L2 cache, are prefetched one tile ahead.
PREFETCH_TILES_ABOVE = 4 << 20


def blocked(nest: LoopNest, kernel: Kernel, scope: Scope, outermost: bool) -> None:
    """Whole tiles with staged operands, then the edges without staging."""
    function, schedule = nest.function, nest.schedule
    rows, columns = schedule.tile_loop, schedule.vector_loop
    assert rows is not None and columns is not None
    (lo, hi), end = nest.range(rows, outermost), nest.extent(columns)
    row_mid, column_mid = function.vectors_end(lo, hi, TILE), function.vectors_end("0", end, TILE)
    tiles = {e: function.array(e.value.element, TILE * TILE) for e in schedule.staged}
    hoist(nest, kernel.roots, kernel.stores, scope, columns[-1], schedule.lanes)

    def band(first: str, stop: str) -> None:
        def each(column: str) -> None:
            function.each(first, stop, TILE, lambda row: _tile(nest, kernel, tiles, scope, row, column))

        function.each("0", column_mid, TILE, each)

    def edge(column_from: str, i: str) -> None:
        row = scope.at(rows[-1], i)
        function.each(column_from, end, 1, lambda j: reduce_and_store(nest, kernel, row.at(columns[-1], j)))

    function.in_tiles(lo, row_mid, BAND, band)
    # The edges: columns beyond the last whole tile, then rows beyond it.
    function.each(lo, row_mid, 1, lambda i: edge(column_mid, i))
    function.each(row_mid, hi, 1, lambda i: edge("0", i))


def _tile(nest: LoopNest, kernel: Kernel, tiles: dict[Load, str], scope: Scope, row: str, column: str) -> None:
    """The tile at a row and a column: stages the operands that are read across their rows, then computes."""
    function, schedule = nest.function, nest.schedule
    assert schedule.tile_loop is not None and schedule.vector_loop is not None
    rows, columns = schedule.tile_loop[-1], schedule.vector_loop[-1]
    one, lanes = function.builder(1), min(schedule.lanes, TILE)
    corner = Scope(scope, {rows: row, columns: column})
    for e, array in tiles.items():
        value, position = e.value, e.position
        steps = dict(position.terms)
        first, step = pointer(nest, value, position, corner), function.param(steps[columns])
        _stage(nest, value, array, first, step, backwards=steps[rows] < 0)

    def line(i: str) -> None:
        base = one.emit(f"mul i64 {one.emit(f'sub i64 {i}, {row}')}, {TILE}")
        for part in range(0, TILE, lanes):
            j = column if part == 0 else one.emit(f"add i64 {column}, {part}")
            inner = scope.at(rows, i).along(columns, j, lanes)
            offset = base if part == 0 else one.emit(f"add i64 {base}, {part}")
            for e, array in tiles.items():
                dtype = e.value.element
                inner.known[e] = function.builder(lanes).load(function.element(array, dtype, offset), dtype)
            reduce_and_store(nest, kernel, inner)
        _fetch_line(nest, kernel, tiles, scope.at(rows, one.emit(f"add i64 {i}, {TILE}")).at(columns, column))

    function.each(row, one.emit(f"add i64 {row}, {TILE}"), 1, line)


def _fetch_line(nest: LoopNest, kernel: Kernel, tiles: dict[Load, str], scope: Scope) -> None:
    """Prefetch what a line of a tile reads and writes along its columns."""
    assert nest.schedule.tile_loop is not None
    rows = nest.schedule.tile_loop[-1]
    used = [(e.value, e.position, False) for e in kernel.expressions if isinstance(e, Load) and e not in tiles]
    used += [(s.value, s.position, True) for s in kernel.stores]
    for value, position, writes in used:
        known = all(type(atom) is LoopVar for atom, _ in position.terms) and rows in dict(position.terms)
        if known and value.nbytes > PREFETCH_TILES_ABOVE:
            _fetch_tile_line(nest, value, pointer(nest, value, position, scope), writes=writes)


def _fetch_tile_line(nest: LoopNest, value: Value, first: str, *, writes: bool = False) -> None:
    for at in range(0, TILE, LINE // value.element.itemsize):
        fetch(nest, nest.function.element(first, value.element, at) if at else first, writes=writes)


def _stage(nest: LoopNest, value: Value, tile: str, pointer: str, row_step: str, *, backwards: bool) -> None:
    """Copy a 16x16 tile of `value` into `tile`, transposed: row r of the operand becomes column r.

    Loops run over the register-sized squares: unrolling them runs no faster and costs LLVM time. pointer: the tile's
    first element. row_step: elements from one row of the operand to the next. backwards: whether the elements of a row
    have decreasing addresses.
    """
    function, itemsize = nest.function, value.element.itemsize
    one = function.builder(1)
    lanes, element = LANES[itemsize], f"i{8 * itemsize}"
    vector = f"<{lanes} x {element}>"

    def element_at(base: str, offset: str | int) -> str:
        return one.emit(f"getelementptr {element}, ptr {base}, i64 {offset}")

    def squares(r: str) -> None:
        row_pointers = [element_at(pointer, one.emit(f"mul i64 {r}, {row_step}"))]
        for _ in range(lanes - 1):
            row_pointers.append(element_at(row_pointers[-1], row_step))
        if value.nbytes > PREFETCH_TILES_ABOVE:
            for row in row_pointers:
                _fetch_tile_line(nest, value, element_at(row, 1 - 2 * TILE if backwards else TILE))

        def square(c: str) -> None:
            first = one.emit(f"sub i64 {1 - lanes}, {c}") if backwards else c
            rows = [one.emit(f"load {vector}, ptr {element_at(row, first)}, align 1") for row in row_pointers]
            corner = element_at(element_at(tile, one.emit(f"mul i64 {c}, {TILE}")), r)
            for k, column in enumerate(transpose_registers(one, rows, itemsize)):
                line = lanes - 1 - k if backwards else k
                one.effect(f"store {vector} {column}, ptr {element_at(corner, line * TILE)}, align 1")

        function.each("0", str(TILE), lanes, square)

    function.each("0", str(TILE), lanes, squares)
