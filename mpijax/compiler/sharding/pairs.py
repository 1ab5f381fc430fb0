"""Finds arrays of pairs: results with one axis from this rank's rows and one from the rows of all ranks.

The scores of attention are such an array: queries times keys, both split along the sequence. A rank that gathered the
keys would hold all scores of its queries. Here no rank holds either: `rounds.py` computes the array block by block,
while the blocks of the keys go round the ranks, as often as an operation reads it.

The walk through a Jaxpr starts at a large product, or an operation such as `x[:, None] - y[None]`. The sharding rules
say what follows: rows are cut over mesh axes, and columns over an axis of rounds. An operation whose result has columns
makes an array of pairs. A total is a sum or a maximum over columns, or over rows; its result is small. If anything else
reads an array of pairs, the walk finds nothing, and ranks gather an operand. The same with rows and columns exchanged
describes rounds in which rows go round.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax.compiler.graph.views import counted_axis, spread_axes
from mpijax.compiler.sharding.blocks import Blocks, place_in
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.programs.jaxpr import Eqn, Jaxpr, Literal
from mpijax.core.rules.default_rules import operands_for, rule_of
from mpijax.core.rules.lowering import Elementwise, Library, OverRanks
from mpijax.core.rules.sharding_rules import Operation, Plan
from mpijax.core.sharding.cuts import Cut, Cuts, even_cut, uncut
from mpijax.core.types import effects as fx
from mpijax.ops.products import over_ranks as dot_over_ranks

if TYPE_CHECKING:
    from mpijax.compiler.sharding.partitioner import JaxprFrame

# The mesh axis of the rounds in which blocks of columns arrive.
ROUND = "round"
# From this many times `dot_over_ranks.LARGE` elements on, a rank's part of an array of pairs is large.
TIMES = 16
# The number of operations that the walk looks at, to find that an operand is an array of pairs too.
MOST = 64


@dataclass(frozen=True, eq=False)
class Uses:
    """Where a Jaxpr makes and reads its variables.

    producers: the equation that makes a variable. readers: the positions of the equations that read it. place: the
    position of an equation, by its id.
    """

    producers: dict[Any, Eqn] = field(default_factory=dict)
    readers: dict[Any, list[int]] = field(default_factory=dict)
    place: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, jaxpr: Jaxpr) -> Uses:
        uses = cls()
        for at, eqn in enumerate(jaxpr.eqns):
            uses.place[id(eqn)] = at
            uses.producers.update((v, eqn) for v in eqn.outvars)
            for v in {v for v in eqn.invars if type(v) is not Literal}:
                uses.readers.setdefault(v, []).append(at)
        return uses


@dataclass
class Pairs:
    """The operations on arrays of pairs that begin at one of them.

    mesh: of all values. columns: how ranks hold the axis that goes round. size: the elements of the operand that goes
    round at the first operation. made: cuts of arrays of pairs; columns are cut over `ROUND`. plans: what a rank does
    in one round, by the id of the equation. totals: by id, in order. first: the position of the operation at which they
    begin. results: totals that are computed. exchanged: totals that follow from others (`exchanged.py`). turned: the
    same operations where rows go round instead of columns.
    """

    jaxpr: Jaxpr
    uses: Uses
    mesh: Any
    columns: Cut
    size: int
    made: dict[Any, Cuts] = field(default_factory=dict)
    plans: dict[int, Plan] = field(default_factory=dict)
    totals: dict[int, Eqn] = field(default_factory=dict)
    first: int = 0
    results: dict[Any, Any] = field(default_factory=dict)
    exchanged: dict[Any, Any] = field(default_factory=dict)
    turned: Pairs | None = None

    @property
    def producers(self) -> dict[Any, Eqn]:
        return self.uses.producers

    @property
    def rounds(self) -> int:
        return self.columns.parts

    @property
    def sizes(self) -> Mapping[Any, int]:
        return {**self.mesh.processes_along, ROUND: self.rounds}

    def operation(self, eqn: Eqn, cuts: Sequence[Cuts], at: int = 0) -> Operation:
        """An equation in the form that sharding rules take, in one of the rounds."""
        shapes, results = ([v.aval.shape for v in of] for of in (eqn.invars, eqn.outvars))
        return Operation(eqn.params, shapes, results, cuts, self.sizes, {**place_in(self.mesh), ROUND: at})

    def planned(self, eqn: Eqn, cuts: Sequence[Cuts]) -> Plan | None:
        """What a rank does in every round, on operands cut so; None if it cannot, or if rounds differ."""
        rule = rule_of(eqn.primitive)
        if rule is None or fx.pins(eqn.effects):
            return None
        plan, last = (rule(self.operation(eqn, cuts, at)) for at in (0, self.rounds - 1))
        if plan is None or last is None or plan.whole is not None or plan.program is not None:
            return None
        stays = all(not any(have) or tuple(want) == tuple(have) for have, want in zip(cuts, plan.operands, strict=True))
        return plan if stays and dict(plan.params) == dict(last.params) else None

    def column_of(self, cuts: Cuts) -> int | None:
        """The array axis that is cut over the rounds."""
        return next((d for d, c in enumerate(cuts) if c is not None and c.axes == (ROUND,)), None)

    def held(self, cuts: Cuts, shape: Sequence[int]) -> Cuts:
        """The cuts with which ranks hold a value with columns: each has one block."""
        return tuple(
            even_cut(n, self.columns.axes, self.rounds) if c is not None and c.axes == (ROUND,) else c
            for n, c in zip(shape, cuts, strict=True)
        )

    def sums(self, total: Eqn) -> bool:
        """Whether rounds can compute a total: of those that travel, only sums."""
        plan = self.plans[id(total)]
        return plan.over == (ROUND,) or plan.op is OverRanks.SUM

    def begins(self, eqn: Eqn, cuts: Sequence[Cuts]) -> bool:
        """Whether all that follows from an operation, its operands cut so, is on arrays of pairs or a total."""
        self.first = self.uses.place[id(eqn)]
        if not self._enters(eqn, cuts) or eqn.outvars[0] not in self.made:
            return False
        known: set[Any] = set()
        waiting: list[int] = []  # positions of operations that read arrays of pairs, the first one in front
        while True:
            new = [v for v in self.made if v not in known]  # what the last operation made, and what joined with it
            known.update(new)
            for at in {at for v in new for at in self.uses.readers.get(v, ())}:
                heapq.heappush(waiting, at)
            if not waiting:
                break
            later = self.jaxpr.eqns[heapq.heappop(waiting)]
            reads = [None if type(v) is Literal else self.made.get(v) for v in later.invars]
            have = [c or uncut(v.aval.shape) for v, c in zip(later.invars, reads, strict=True)]
            if id(later) not in self.plans and not self._enters(later, have):
                return False
        results = {v for v in self.jaxpr.outvars if type(v) is not Literal}
        return bool(self.totals) and results.isdisjoint(self.made)

    def remade(self, eqn: Eqn, cuts: Cuts) -> Plan | None:
        """The plan by which a rank computes its part of a result, cut so; None if no cuts of the operands give it."""
        if len(eqn.outvars) != 1 or fx.pins(eqn.effects):
            return None
        shape = eqn.outvars[0].aval.shape
        if counted_axis(eqn) is not None:
            return Plan([], [cuts], {})
        axes = spread_axes(eqn)
        if axes is not None:
            of = eqn.invars[0].aval.shape
            return Plan([tuple(cuts[d] if n == shape[d] else None for d, n in zip(axes, of, strict=True))], [cuts], {})
        rule, whole = rule_of(eqn.primitive), [uncut(v.aval.shape) for v in eqn.invars]
        found = None if rule is None else operands_for(self.operation(eqn, whole), rule, cuts)
        if found is None and (any(cuts) or rule is None):
            return None
        want = [c or w for c, w in zip(found or whole, whole, strict=True)]
        plan = self.planned(eqn, want)
        return None if plan is None or plan.over or tuple(plan.results[0]) != cuts else plan

    def _joined(self, v: Any, cuts: Cuts, known: dict[Any, Any]) -> dict[Any, tuple[Eqn, Plan]]:
        """The later operations that make an operand, an array of pairs too, of rows and columns; else none.

        known: what the walk has found for other variables.
        """
        eqn = self.producers.get(v)
        if v in known or not self._has_both(cuts) or v in self.made or eqn is None:
            return known.get(v, {})
        known[v] = {}
        plan = self.remade(eqn, cuts) if self.uses.place[id(eqn)] > self.first and len(known) <= MOST else None
        if plan is None:
            return {}
        found: dict[Any, tuple[Eqn, Plan]] = {}
        for u, want in zip(eqn.invars, plan.operands, strict=True):
            if type(u) is not Literal:
                found.update(self._joined(u, tuple(want), known))
        known[v] = {**found, v: (eqn, plan)} if found or self._begins_pairs(plan) else {}
        return known[v]

    def _has_rows(self, cuts: Cuts) -> bool:
        return any(c is not None and c.axes == self.columns.axes for c in cuts)

    def _has_both(self, cuts: Cuts) -> bool:
        """Whether cuts are those of an array of pairs."""
        return self._has_rows(cuts) and self.column_of(cuts) is not None

    def _begins_pairs(self, plan: Plan) -> bool:
        """Whether an operation makes an array of pairs of an operand with rows and one with columns."""
        columns = any(self.column_of(c) is not None for c in plan.operands)
        return columns and any(map(self._has_rows, plan.operands)) and not any(map(self._has_both, plan.operands))

    def reads(self, v: Any) -> bool:
        """Whether an operation on pairs reads a value that is not an array of pairs."""
        eqns = self.jaxpr.eqns
        return v not in self.made and any(id(eqns[at]) in self.plans for at in self.uses.readers.get(v, ()))

    def _enters(self, eqn: Eqn, cuts: Sequence[Cuts]) -> bool:
        """Adds an equation, as one of pairs or as a total; whether it can."""
        plan = self.planned(eqn, cuts)
        if plan is None or not all(isinstance(v.aval.dtype, np.dtype) for v in (*eqn.invars, *eqn.outvars)):
            return False
        over, rows = set(plan.over), set(self.columns.axes)
        columns = [self.column_of(c) is not None for c in plan.results]
        if over:
            of_columns, of_rows = over == {ROUND} and not any(columns), over == rows and all(columns)
            if not (of_columns or of_rows) or plan.op not in (OverRanks.SUM, OverRanks.MAX):
                return False
            self.totals[id(eqn)] = eqn
        elif all(columns):
            self.made.update(zip(eqn.outvars, map(tuple, plan.results), strict=True))
        else:
            return False
        self.plans[id(eqn)] = plan
        for v, want in zip(eqn.invars, plan.operands, strict=True):
            joined = {} if type(v) is Literal else self._joined(v, tuple(want), {})
            for u, (producer, how) in joined.items():
                self.plans[id(producer)] = how
                self.made[u] = tuple(how.results[0])
        return True


def found_at(eqn: Eqn, frame: JaxprFrame, held: Sequence[Blocks | None]) -> Pairs | None:
    """The arrays of pairs that begin at an operation; None if there are none, or if plain work costs little.

    A product begins one, or an operation of two operands whose axes are split over the same mesh axes and have size 1
    in the other operand. frame: the program, with the arrays of pairs that began before. held: the blocks of the two
    operands.
    """
    if held[0] is None or held[1] is None or held[0].mesh != held[1].mesh:
        return None
    mesh, others = held[0].mesh, frame.pairs
    if mesh.is_explicit or mesh.holds_several or any(x.reads(eqn.outvars[0]) for x in others):
        return None
    cuts = [b.cuts for b in held if b is not None]
    for k in (1, 0):
        dims = _columns(eqn, cuts, k)
        if dims is not None and _is_worth_it(eqn, cuts, k):
            going = (k, dims[0]), (1 - k, dims[1])
            columns, rows = (_round(eqn, frame, mesh, cuts, i, dim) for i, dim in going)
            if not columns[0].begins(eqn, columns[1]) or any(columns[0].plans.keys() & x.plans.keys() for x in others):
                continue
            if rows[0].begins(eqn, rows[1]) and rows[0].plans.keys() == columns[0].plans.keys():
                columns[0].turned = rows[0]
                rows[0].results = columns[0].results
            elif not all(map(columns[0].sums, columns[0].totals.values())):
                continue
            return columns[0]
    return None


def _round(eqn: Eqn, frame: JaxprFrame, mesh: Any, cuts: Sequence[Cuts], k: int, dim: int) -> tuple[Pairs, list[Cuts]]:
    """The arrays of pairs if operand `k` goes round, cut along `dim`, and the cuts of the operands in a round."""
    cut, whole = cuts[k][dim], eqn.invars[k].aval.shape
    assert cut is not None
    frame.uses = frame.uses or Uses.of(frame.jaxpr)
    pairs = Pairs(frame.jaxpr, frame.uses, mesh, cut, math.prod(whole))
    turning = tuple(even_cut(whole[d], (ROUND,), cut.parts) if d == dim else c for d, c in enumerate(cuts[k]))
    return pairs, [turning if i == k else c for i, c in enumerate(cuts)]


def _columns(eqn: Eqn, cuts: Sequence[Cuts], k: int) -> tuple[int, int] | None:
    """The free axis that is the only cut one of operand `k`, and the other operand's free axis with the same cut."""
    mine, free = [d for d, c in enumerate(cuts[k]) if c is not None], _free(eqn)
    if len(mine) != 1 or mine[0] not in free[k]:
        return None
    cut = cuts[k][mine[0]]
    assert cut is not None
    rows = [d for d, c in enumerate(cuts[1 - k]) if c is not None and c.axes == cut.axes and d in free[1 - k]]
    shapes = [eqn.invars[i].aval.shape for i in (0, 1)]
    even = [(cuts[k][mine[0]], shapes[k][mine[0]]), *((cuts[1 - k][d], shapes[1 - k][d]) for d in rows)]
    return (
        (mine[0], rows[0])
        if rows and all(c == even_cut(n, cut.axes, cut.parts) and c.is_even for c, n in even)
        else None
    )


def _free(eqn: Eqn) -> tuple[list[int], list[int]]:
    """The axes of each operand that the result has and the other operand has not."""
    lower, (one, other) = eqn.primitive.lower, (v.aval.shape for v in eqn.invars)
    if isinstance(lower, Library):
        contract, batch = eqn.params["dimension_numbers"]
        one_free, other_free = (
            [d for d in range(len(x)) if d not in (*contract[i], *batch[i])] for i, x in enumerate((one, other))
        )
        return one_free, other_free
    if not isinstance(lower, Elementwise) or len(one) != len(other):
        return [], []
    return [d for d, n in enumerate(other) if n == 1], [d for d, n in enumerate(one) if n == 1]


def _is_worth_it(eqn: Eqn, cuts: Sequence[Cuts], k: int) -> bool:
    """Whether a rank would hold more of the result than operand `k` has, and one of both is large."""
    size, rows = math.prod(eqn.invars[k].aval.shape), math.prod(c.parts for c in cuts[1 - k] if c is not None)
    result = math.prod(eqn.outvars[0].aval.shape) // rows
    return result >= size and (size >= dot_over_ranks.LARGE or result >= TIMES * dot_over_ranks.LARGE)
