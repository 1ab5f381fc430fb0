"""Columns of short rows: whole rows are read and turned in registers.

Where rows are too short to be vectorized along, as the scores of ten classes are, lanes stand for rows, and what a turn
of the loop over a row needs is a column. Its elements lie a row apart: one load each. Where that loop is written out, a
square of rows and columns is read along its rows instead, and turned by shuffles into as many columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.loops.addresses import pointer
from mpijax.compiler.loops.crossing import LANES, transpose_registers
from mpijax.compiler.loops.function import Function
from mpijax.compiler.loops.schedule import turns_of
from mpijax.compiler.loops.scope import Scope
from mpijax.core.index import Lin, LoopVar
from mpijax.scalar.types import Scalar, info

if TYPE_CHECKING:
    from mpijax.compiler.loops.nest import Nest


def turned_load(nest: Nest, value: Value, position: Lin, step: int, scope: Scope) -> Scalar | None:
    """A load of elements `step` apart as part of a square; None where there is none to be read."""
    column = _column(nest, position, scope)
    side = LANES.get(value.element.itemsize, 0)
    if column is None or info(value.element).kind == "c" or nest.schedule.split or nest.kernel.ordered:
        return None
    var, at, length = column
    # Rows but the last one may be read beyond their end, into the next, and the last one before its beginning.
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


def _column(nest: Nest, position: Lin, scope: Scope) -> tuple[LoopVar, int, int] | None:
    """The variable of a written-out loop along rows, its value, and the length of rows."""
    for atom, c in nest.needs.terms(position):
        if type(atom) is not LoopVar:
            return None
        at = scope.variable(atom)
        if c == 1 and at.isdigit():
            return atom, int(at), turns_of(nest.needs.loop_of[atom])
    return None


def _square(
    function: Function, dtype, corner: str, step: int, length: int, lanes: int, side: int
) -> list[Scalar]:
    """The columns from `corner` on, in all lanes: `side` of them, or all there are."""
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
    """`side` elements from `row` on, of which the last `missing` are not read."""
    one, t = function.builder(1), f"<{side} x i{8 * itemsize}>"
    if not missing:
        return one.emit(f"load {t}, ptr {row}, align {itemsize}")
    before = one.emit(f"getelementptr i{8 * itemsize}, ptr {row}, i64 {-missing}")
    loaded = one.emit(f"load {t}, ptr {before}, align {itemsize}")
    mask = ", ".join(f"i32 {k + missing}" if k + missing < side else "i32 poison" for k in range(side))
    return one.emit(f"shufflevector {t} {loaded}, {t} poison, <{side} x i32> <{mask}>")
