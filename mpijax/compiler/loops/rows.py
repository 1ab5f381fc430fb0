"""The strategy `rows`: products, and reductions of short rows, several rows at a time.

Rows read one after the other would each end in a sum over lanes, and what follows would be done for one result at
a time. A block of as many rows as there are lanes shares its loads of the other operand, and its sums end up in
the lanes of one vector, with which what follows is done.
"""

from __future__ import annotations

from functools import partial

from mpijax.compiler.fusion.kernel import Reduce
from mpijax.compiler.fusion.reductions import identity
from mpijax.compiler.loops.addresses import Scope
from mpijax.compiler.loops.nest import Loops
from mpijax.scalar.types import Scalar

# What combining an element twice does not change.
IDEMPOTENT = frozenset(["max", "min", "and", "or"])


class Rows(Loops):
    """Reductions along a vectorized axis, for a block of rows at once."""

    def _rows(self, scope: Scope, outermost: bool) -> None:
        loop, block = self.schedule.vector_loop, self.schedule.lanes
        assert loop is not None
        key = id(loop[-1])
        self.hoist(self.kernel.roots(), self.kernel.outer, scope, None, 1)
        start, hi = self._range(loop, outermost)
        for width in (block, 1):
            end = hi if width == 1 else self.vector_bounds(start, hi, width)

            def turn(i: str, _, width=width):
                self._row_block(i, width, key, scope)
                return []

            self.loop(start, end, width, [], [], turn)
            start = end

    def _row_block(self, first: str, width: int, key: int, scope: Scope) -> None:
        """`width` rows from `first` on: their reductions, then what is stored of them."""
        one = self.builder(1)
        rows = [first] + [one.emit(f"add i64 {first}, {r}") for r in range(1, width)]
        self.phase = 0
        done = Scope(scope, {key: first}, key, width)
        for r in self.kernel.reduces:
            self.acc_values[id(r.member)] = self._joined(r, self._of_rows(r, rows, key, scope))
            done.available |= {("acc", id(r.member))}
        self.phase = self.kernel.phases + 1
        for s in self.kernel.outer:
            self.store(s, done)

    def _of_rows(self, r: Reduce, rows: list[str], key: int, scope: Scope) -> list[tuple[Scalar, Scalar | None]]:
        """For each row the partial results in lanes, and that of the elements left over, if any.

        One reduction after the other: two at once would need more registers than there are.
        """
        lanes = self.schedule.lanes
        loop = self.schedule.inner[0]
        along = id(loop[-1])
        size = self.schedule.size(loop)
        lo, hi = self.turns(0)
        mid = self.vector_bounds(lo, hi, lanes)

        def element(i: str, carried: list[Scalar], width: int) -> list[Scalar]:
            shared = Scope(scope, {along: i}, along, width)
            self.hoist([r.expr], [], shared, along, width)
            turns = [Scope(shared, {key: row}) for row in rows]
            return [self._accumulated_with(r, acc, at, width) for acc, at in zip(carried, turns, strict=True)]

        def part(lo: str, hi: str, width: int) -> list[Scalar]:
            start = self.builder(width).const(identity(r.op, r.dtype), r.dtype)
            body = partial(element, width=width)
            return self.loop(lo, hi, width, [start] * len(rows), [width] * len(rows), body)

        vectors = part(lo, mid, lanes)
        if size % lanes and size > lanes and r.op in IDEMPOTENT and self.schedule.chunked is None:
            # The last whole vector of a row, some of which has been seen.
            vectors = element(self.builder(1).emit(f"sub i64 {hi}, {lanes}"), vectors, lanes)
        elif size % lanes:
            return list(zip(vectors, part(mid, hi, 1), strict=True))
        return [(v, None) for v in vectors]

    def _joined(self, r: Reduce, parts: list[tuple[Scalar, Scalar | None]]) -> Scalar:
        """The results of a block's rows in the lanes of one value."""
        rule = self._combining(r)
        lanes = self.schedule.lanes
        wide, one = self.builder(lanes), self.builder(1)
        if len(parts) == 1:
            [(vector, rest)] = parts
            total = wide.reduce(rule, vector)
            return total if rest is None else rule(one, total, rest)
        vectors = [v for v, _ in parts]
        while len(vectors) > 1:
            # Neighbouring lanes are combined; those of the first vector come first.
            vectors = [
                rule(wide, wide.every_second(a, b, 0), wide.every_second(a, b, 1))
                for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
        rests = [rest for _, rest in parts if rest is not None]
        return rule(wide, vectors[0], wide.gathered(rests)) if rests else vectors[0]
