"""Solves triangular systems whose matrix is sharded over ranks.

Every system is brought to the form M X = B, where M is lower or upper triangular and its rows or columns are split in
blocks. Blocks of X are computed one after the other, first to last if M is lower triangular.

- Few right-hand sides, rows of M split: the owner of a block of X broadcasts it, and each rank subtracts its products
  from its own rows of B.
- Few right-hand sides, columns of M split: a rank adds its products to the sums from the previous rank, and passes
  them on.
- Many right-hand sides: each rank owns some of them, and receives the blocks of M. Only the triangle is sent.

No rank stores more of M than its part and one block.
"""

from __future__ import annotations

from typing import Any

from mpijax.core.base import config
from mpijax.core.rules import sharding_rules as rules
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.cuts import Cut, Span, part_number
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.permutations import pbroadcast, ppermute
from mpijax.ops.indexing.slicing import concatenate, slice_in_dim
from mpijax.ops.linalg.lu_over_ranks import MOST_BLOCKS
from mpijax.ops.linalg.matrices import exact_product, transposed
from mpijax.ops.shapes.creation import full


def plan(s: rules.Operation) -> rules.Plan | None:
    """The plan of `triangular_solve` for a single matrix that is split; None for all other cases."""
    (a, b), (a_cuts, b_cuts), left = s.shapes, s.cuts, s.params["left_side"]
    cut = a_cuts[0] if a_cuts[0] is not None else a_cuts[1]
    if config.values.mpijax_same_bits or len(a) > 2 or cut is None:
        return None
    if not 1 < cut.parts <= min(MOST_BLOCKS, a[0]):
        return None
    blocks = s.even(a[0], cut.axes)
    free = 1 if left else 0
    many = b[free] >= cut.parts and 2 * b[free] > a[0]
    sides = b_cuts[free]
    if many:
        sides = sides if sides is not None and set(cut.axes) <= set(sides.axes) else s.even(b[free], cut.axes)
    elif sides is not None and set(sides.axes) & set(cut.axes):
        sides = None
    along = None if many else blocks
    of_b = (along, sides) if left else (sides, along)
    by_rows = a_cuts[0] is not None
    system = _System(blocks, part_number(cut.axes, s.sizes, s.place), by_rows, s.params)
    program = system.many if many else system.few
    return rules.Plan([(blocks, None) if by_rows else (None, blocks), of_b], [of_b], s.params, program=program)


class _System:
    """The distributed system, and this rank's part of it. cut: the blocks of M. me: the number of this part."""

    def __init__(self, cut: Cut, me: int, by_rows: bool, params: Any):
        self.cut, self.me, self.params = cut, me, params
        turned = params["transpose_a"] == params["left_side"]
        self.by_rows = by_rows != turned
        self.lower = params["lower"] != turned
        self.turned = turned
        filled = [k for k, (begin, end) in enumerate(cut.spans) if begin < end]
        self.order = filled if self.lower else filled[::-1]

    def _matrix(self, a: Any) -> Any:
        """This rank's part of M."""
        a = a.conj() if self.params["conjugate_a"] else a
        return transposed(a) if self.turned else a

    def _solved(self, block: Any, b: Any) -> Any:
        return registry["triangular_solve"].bind(
            block, b, left_side=True, lower=self.lower, transpose_a=False, conjugate_a=False,
            unit_diagonal=self.params["unit_diagonal"],
        )  # fmt: skip

    def _rest(self, k: int) -> Span:
        """The positions after block `k`."""
        begin, end = self.cut.part(k)
        return (end, self.cut.size) if self.lower else (0, begin)

    # ------------------------------------------------------------ few right-hand sides: B is split as M

    def few(self, a: Any, b: Any) -> Any:
        """This rank's part of X."""
        m, b = self._matrix(a), b if self.params["left_side"] else transposed(b)
        x = self._sent_to_all(m, b) if self.by_rows else self._passed_on(m, b)
        return x if self.params["left_side"] else transposed(x)

    def _sent_to_all(self, m: Any, b: Any) -> Any:
        mine = b
        for k in self.order:
            begin, end = self.cut.part(k)
            block = slice_in_dim(m, begin, end, axis=1)
            x = full((end - begin, typeof(b).shape[1]), 0, b.dtype)
            if self.me == k:
                x = mine = self._solved(block, b)
            if k == self.order[-1]:
                break
            x = pbroadcast(x, self.cut.axes, k)
            if self.me in self.order[self.order.index(k) + 1 :]:
                b = registry["sub"].bind(b, exact_product(block, x))
        return mine

    def _passed_on(self, m: Any, b: Any) -> Any:
        mine, sums = b, None
        for k, following in zip(self.order, [*self.order[1:], None], strict=True):
            (low, high), (begin, end) = self._rest(k), self.cut.part(k)
            passed = full((high - low, typeof(b).shape[1]), 0, b.dtype)
            if self.me == k:
                at = begin if self.lower else 0  # the first position of the received sums
                here = b if sums is None else registry["sub"].bind(b, slice_in_dim(sums, begin - at, end - at))
                mine = self._solved(slice_in_dim(m, begin, end), here)
                passed = exact_product(slice_in_dim(m, low, high), mine)
                if sums is not None:
                    passed = registry["add"].bind(passed, slice_in_dim(sums, low - at, high - at))
            if following is not None:
                sums = ppermute(passed, self.cut.axes, [(k, following)])
        return mine

    # ------------------------------------------------------------ many right-hand sides: of which each rank has some

    def many(self, a: Any, b: Any) -> Any:
        """X for this rank's right-hand sides."""
        m, b = self._matrix(a), b if self.params["left_side"] else transposed(b)
        found = self._by_rows(m, b) if self.by_rows else self._by_columns(m, b)
        x = self._joined(found)
        return x if self.params["left_side"] else transposed(x)

    def _by_rows(self, m: Any, b: Any) -> list[Any]:
        """Sends rows of M up to the diagonal, and multiplies them by the known blocks of X."""
        found: list[Any] = []
        for k in self.order:
            diagonal, others = self._strip(m, k, 1)
            here = slice_in_dim(b, *self.cut.part(k))
            if found:
                here = registry["sub"].bind(here, exact_product(others, self._joined(found)))
            found.append(self._solved(diagonal, here))
        return found

    def _by_columns(self, m: Any, b: Any) -> list[Any]:
        """Sends columns of M from the diagonal on, and subtracts their products from the rest of B."""
        found: list[Any] = []
        for k in self.order:
            diagonal, others = self._strip(m, k, 0)
            begin, end = self.cut.part(k)
            here, rest = (begin, end), self._rest(k)
            if self.lower:  # b starts with the block
                here, rest = (0, end - begin), (end - begin, typeof(b).shape[0])
            x = self._solved(diagonal, slice_in_dim(b, *here))
            found.append(x)
            if k != self.order[-1]:
                b = registry["sub"].bind(slice_in_dim(b, *rest), exact_product(others, x))
        return found

    def _strip(self, m: Any, k: int, axis: int) -> tuple[Any, Any]:
        """Broadcasts from rank k block `k` of the diagonal of M, and the rest of its strip in the triangle."""
        begin, end = self.cut.part(k)
        at_end = self.lower == (axis == 1)
        low, high = (0, end) if at_end else (begin, self.cut.size)
        shape = (end - begin, high - low) if axis == 1 else (high - low, end - begin)
        mine = slice_in_dim(m, low, high, axis=axis) if self.me == k else full(shape, 0, m.dtype)
        strip = pbroadcast(mine, self.cut.axes, k)
        parts = (begin, end, 0, begin) if at_end else (0, end - begin, end - begin, high - begin)
        return slice_in_dim(strip, *parts[:2], axis=axis), slice_in_dim(strip, *parts[2:], axis=axis)

    def _joined(self, found: list[Any]) -> Any:
        """The blocks, given in the order of computation, as rows."""
        return concatenate(found if self.lower else found[::-1], 0)
