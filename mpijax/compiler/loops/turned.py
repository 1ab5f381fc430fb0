"""Loads columns of short rows by reading whole rows and transposing them in registers.

If rows are too short to vectorize along them (scores of ten classes, for example), each lane processes one row, and a
iteration of the loop over a row needs a column. Its elements are a row apart, so each would be a separate load. If that
loop is unrolled, a square of rows and columns is loaded along its rows instead, and shuffles transpose it into columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.loops.addresses import pointer
from mpijax.compiler.loops.crossing import LANES, transpose_registers
from mpijax.compiler.loops.function import Function
from mpijax.compiler.loops.schedule import iterations_of
from mpijax.compiler.loops.scope import Scope
from mpijax.core.shapes.index import Lin, LoopVar
from mpijax.scalar.types import Scalar, info

if TYPE_CHECKING:
    from mpijax.compiler.loops.nest import LoopNest


def turned_load(nest: LoopNest, value: Value, position: Lin, step: int, scope: Scope) -> Scalar | None:
    """A load of elements `step` apart, taken from a transposed square; None if that is not possible."""
    column = _column(nest, position, scope)
    side = LANES.get(value.element.itemsize, 0)
    if column is None or info(value.element).kind == "c" or nest.schedule.split or nest.kernel.ordered:
        return None
    var, at, length = column
    # A load may run past the end of a row into the next one; for the last row, it starts before the row.
    if side == 0 or scope.lanes % side or step < length or (length < side and step + length < side):
        return None
    first = min(at - at % side, max(length - side, 0))
    around = scope.binding(var).parent
    assert around is not None
    others = [nest.needs.of_atom(atom) for atom, _ in nest.needs.terms(position) if atom is not var]
    if not frozenset().union(*others) <= around.available:
        return None
    key = ("turned", value, position.key, first)
    columns = around.lookup(key)
    if columns is None:
        terms = [(atom, c) for atom, c in position.terms if atom is not var]
        corner = pointer(nest, value, Lin(position.offset + first, terms), around)
        columns = _square(nest.function, value.element, corner, step, length, around.lanes, side)
        around.known[key] = columns
    return columns[at - first]


def _column(nest: LoopNest, position: Lin, scope: Scope) -> tuple[LoopVar, int, int] | None:
    """The variable of an unrolled loop along rows, its value, and the length of rows."""
    for atom, c in nest.needs.terms(position):
        if type(atom) is not LoopVar:
            return None
        at = scope.variable(atom)
        if c == 1 and at.isdigit():
            return atom, int(at), iterations_of(nest.needs.loop_of[atom])
    return None


def _square(
    function: Function, dtype, corner: str, step: int, length: int, lanes: int, side: int
) -> list[Scalar]:
    """The columns from `corner` on, as vectors: `side` of them, or fewer if rows are shorter."""
    row, stride = corner, function.param(step)
    blocks: list[list[str]] = []
    for lane in range(lanes):
        if lane:
            row = function.element(row, dtype, stride)
        if lane % side == 0:
            blocks.append([])
        missing = max(side - length, 0) if lane % side == side - 1 else 0
        blocks[-1].append(_row(function, row, dtype.itemsize, side, missing))
    turned = [transpose_registers(function.builder(1), rows, dtype.itemsize) for rows in blocks]
    b = function.builder(lanes)
    return [b.of_bits(list(column), dtype) for column in list(zip(*turned, strict=True))[:length]]


def _row(function: Function, row: str, itemsize: int, side: int, missing: int) -> str:
    """`side` elements from `row` on, without reading the last `missing` ones."""
    one, t = function.builder(1), f"<{side} x i{8 * itemsize}>"
    if not missing:
        return one.emit(f"load {t}, ptr {row}, align {itemsize}")
    before = one.emit(f"getelementptr i{8 * itemsize}, ptr {row}, i64 {-missing}")
    loaded = one.emit(f"load {t}, ptr {before}, align {itemsize}")
    mask = ", ".join(f"i32 {k + missing}" if k + missing < side else "i32 poison" for k in range(side))
    return one.emit(f"shufflevector {t} {loaded}, {t} poison, <{side} x i32> <{mask}>")
