"""Solves small integer linear programs exactly: the simplex method on a tableau with a common denominator."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

INFEASIBLE, UNBOUNDED = "infeasible", "unbounded"


def minimum(costs: Sequence[int], rows: Sequence[Sequence[int]], totals: Sequence[int]) -> Fraction | str:
    """The minimum of ``costs @ x`` for ``x >= 0`` and ``rows @ x == totals``; INFEASIBLE or UNBOUNDED without one."""
    table = [[*row, total] for row, total in zip(rows, totals, strict=True)]
    table = [row if row[-1] >= 0 else [-v for v in row] for row in table]
    # Phase one minimizes the missing amount of all totals. A row without a basis column lacks its whole total.
    missing = [-sum(column) for column in zip(*table, strict=True)] or [0] * (len(costs) + 1)
    simplex = _Simplex([*table, missing, [*costs, 0]], len(table))
    simplex.run(simplex.size)
    if simplex.table[simplex.size][-1]:
        return INFEASIBLE
    simplex.settle()
    if not simplex.run(simplex.size + 1):
        return UNBOUNDED
    return Fraction(-simplex.table[simplex.size + 1][-1], simplex.scale)


class _Simplex:
    """A tableau with entries `table / scale`: constraints, then two objectives."""

    def __init__(self, table: list[list[int]], size: int):
        self.table, self.size, self.scale = table, size, 1
        self.basis: list[int] = [-1] * size  # -1: no basis column yet

    def run(self, objective: int) -> bool:
        """Pivot until an objective is minimal; False if it is unbounded."""
        while True:
            # The first column that helps and, among equal ratios, the first row: this never cycles (Bland's rule).
            column = next((j for j, v in enumerate(self.table[objective][:-1]) if v < 0), None)
            if column is None:
                return True
            rising = [i for i in range(self.size) if self.table[i][column] > 0]
            if not rising:
                return False
            ratios = {i: Fraction(self.table[i][-1], self.table[i][column]) for i in rising}
            self.pivot(min(rising, key=lambda i: (ratios[i], self.basis[i])), column)

    def pivot(self, at: int, column: int) -> None:
        pivot_row = self.table[at]
        p = pivot_row[column]
        for i, row in enumerate(self.table):
            if i != at:
                k = row[column]
                self.table[i] = [(p * v - k * w) // self.scale for v, w in zip(row, pivot_row, strict=True)]
        self.scale = p
        self.basis[at] = column

    def settle(self) -> None:
        """Give rows with total 0 a basis column too, if they have a nonzero entry."""
        for i in range(self.size):
            if self.basis[i] < 0:
                column = next((j for j, v in enumerate(self.table[i][:-1]) if v), None)
                if column is not None:
                    if self.table[i][column] < 0:
                        self.table[i] = [-v for v in self.table[i]]
                    self.pivot(i, column)
