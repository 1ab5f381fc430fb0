"""Columns of short rows: whole rows are read and turned in registers.

Where rows are too short to be vectorized along, as the scores of ten classes are, lanes stand for rows, and what a turn
of the loop over a row needs is a column. Its elements lie a row apart: one load each. Where that loop is written out, a
square of rows and columns is read along its rows instead, and turned by shuffles into as many columns.
"""

from __future__ import annotations

from typing import Any

from mpijax.compiler.loops.addresses import Addresses, Scope
from mpijax.compiler.loops.blocked import LANES, transpose_registers
from mpijax.core.index import Lin, LoopVar
from mpijax.scalar.types import Scalar, info


class Turned(Addresses):
    """Loads of columns, of which the neighbours are known after the first."""

    def turned_load(self, value: Any, position: Lin, step: int, scope: Scope) -> Scalar | None:
        """A load of elements `step` apart as part of a square; None where there is none to be read."""
        column = self._column(position, scope)
        side = LANES.get(value.element.itemsize, 0)
        if column is None or info(value.element).kind == "c" or self.schedule.split or self.kernel.ordered:
            return None
        var, at, length = column
        # Rows but the last one may be read beyond their end, into the next, and the last one before its beginning.
        if side == 0 or scope.lanes % side or step < length or (length < side and step + length < side):
            return None
        first = min(at - at % side, max(length - side, 0))
        around = self._around(id(var), scope)
        if not self._lin_deps(position) - {id(var)} <= around.available:
            return None
        key = ("turned", id(value), position.key, first)
        columns = around.lookup(key)
        if columns is None:
            terms = [(atom, c) for atom, c in position.terms if atom is not var]
            corner = self.pointer(value, Lin(position.offset + first, terms), around)
            columns = around.known[key] = self._square(value.element, corner, step, length, around.lanes, side)
        return columns[at - first]

    def _column(self, position: Lin, scope: Scope) -> tuple[LoopVar, int, int] | None:
        """The variable of a written-out loop along rows, its value, and the length of rows."""
        for atom, c in self._coefficients(position):
            if type(atom) is not LoopVar:
                return None
            at = scope.variable(self._var_key(atom))
            if c == 1 and at.isdigit():
                length = 1
                for v in self.loop_of[id(atom)][1]:
                    length *= v.size
                return atom, int(at), length
        return None

    def _around(self, var_id: int, scope: Scope) -> Scope:
        """The scope around that in which a variable is bound."""
        while var_id not in scope.bound:
            assert scope.parent is not None
            scope = scope.parent
        assert scope.parent is not None
        return scope.parent

    def _square(self, dtype, corner: str, step: int, length: int, lanes: int, side: int) -> list[Scalar]:
        """The columns from `corner` on, in all lanes: `side` of them, or all there are."""
        b, one = self.builder(lanes), self.builder(1)
        element, stride = b._element(dtype), self.param(step)
        row = corner
        blocks: list[list[str]] = []
        for lane in range(lanes):
            if lane:
                row = one.emit(f"getelementptr {element}, ptr {row}, i64 {stride}")
            if lane % side == 0:
                blocks.append([])
            missing = max(side - length, 0) if lane % side == side - 1 else 0
            blocks[-1].append(self._row(row, dtype.itemsize, side, missing))
        turned = [transpose_registers(one, rows, dtype.itemsize) for rows in blocks]
        return [b.of_bits(list(column), dtype) for column in list(zip(*turned, strict=True))[:length]]

    def _row(self, row: str, itemsize: int, side: int, missing: int) -> str:
        """`side` elements from `row` on, of which the last `missing` are not read."""
        one, t = self.builder(1), f"<{side} x i{8 * itemsize}>"
        if not missing:
            return one.emit(f"load {t}, ptr {row}, align {itemsize}")
        before = one.emit(f"getelementptr i{8 * itemsize}, ptr {row}, i64 {-missing}")
        loaded = one.emit(f"load {t}, ptr {before}, align {itemsize}")
        mask = ", ".join(f"i32 {k + missing}" if k + missing < side else "i32 poison" for k in range(side))
        return one.emit(f"shufflevector {t} {loaded}, {t} poison, <{side} x i32> <{mask}>")
