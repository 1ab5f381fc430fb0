"""Finds arrays of pairs: results with one axis from this rank's rows and one from the rows of all ranks.

The scores of attention are such an array: queries times keys, both split along the sequence. The rank that gathered the
keys would hold its rows of the scores as well. Here no rank holds either: `rounds.py` computes the array block by
block, while the blocks of the keys go round the ranks, as often as an operation reads it.

The walk through a Jaxpr starts at a large product. The sharding rules say what follows: rows are split over the ranks,
and columns over a mesh axis of rounds. An operation whose result has columns belongs to the array of pairs. A total is
a sum (or maximum) over columns, or a sum over rows; its result is small. If anything else reads an array of pairs, the
walk finds nothing, and the product gathers its operand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from mpijax.compiler.sharding.asked import operands_for
from mpijax.compiler.sharding.blocks import Blocks, place_in
from mpijax.core import effects as fx
from mpijax.core.jaxpr import Eqn, Jaxpr, Literal
from mpijax.core.lazy_dataclass import dataclass
from mpijax.core.lowering import Library
from mpijax.core.sharding.cuts import Cut, Cuts, even_cut, uncut
from mpijax.core.sharding.rules import Operation, Plan, rule_of
from mpijax.ops import dot_over_ranks
from mpijax.ops.creation import iota_p
from mpijax.ops.shapes import broadcast_in_dim_p

# The mesh axis of the rounds in which blocks of columns arrive.
ROUND = "round of columns"


@dataclass
class Pairs:
    """The operations on arrays of pairs that begin at one product.

    mesh: of all values. columns: how the ranks hold what becomes columns. made: cuts of arrays of pairs; columns are
    cut over `ROUND`. plans: what a rank does in one round, by the id of the equation. totals: by id, in order.
    producers: the equation that makes each variable of the Jaxpr. results: totals that are computed.
    later: the equations after the product. exchanged: totals that follow from others (`exchanged.py`).
    """

    jaxpr: Jaxpr
    mesh: Any
    columns: Cut
    made: dict[Any, Cuts] = field(default_factory=dict)
    plans: dict[int, Plan] = field(default_factory=dict)
    totals: dict[int, Eqn] = field(default_factory=dict)
    producers: dict[Any, Eqn] = field(default_factory=dict)
    results: dict[Any, Any] = field(default_factory=dict)
    later: list[Eqn] = field(default_factory=list)
    exchanged: dict[Any, Any] = field(default_factory=dict)

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

    def cut_of(self, shape: Sequence[int], axis: int) -> Cuts:
        """Cuts of columns along one axis; the other axes are whole."""
        return (*uncut(shape[:axis]), even_cut(shape[axis], (ROUND,), self.rounds), *uncut(shape[axis + 1 :]))

    def column_of(self, cuts: Cuts) -> int | None:
        """The array axis that is cut over the rounds."""
        return next((d for d, c in enumerate(cuts) if c is not None and c.axes == (ROUND,)), None)

    def held(self, cuts: Cuts, shape: Sequence[int]) -> Cuts:
        """The cuts with which ranks hold a value with columns: each has one block."""
        return tuple(
            even_cut(n, self.columns.axes, self.rounds) if c is not None and c.axes == (ROUND,) else c
            for n, c in zip(shape, cuts, strict=True)
        )

    def begins(self, eqn: Eqn, cuts: Sequence[Cuts]) -> bool:
        """Whether all that follows from the product, its operands cut so, is on arrays of pairs or a total."""
        eqns = self.jaxpr.eqns
        self.producers.update((v, e) for e in eqns for v in e.outvars)
        self.later = eqns[next(k for k, e in enumerate(eqns) if e is eqn) + 1 :]
        if not self._enters(eqn, cuts) or eqn.outvars[0] not in self.made:
            return False
        known = 0
        while known < len(self.made):  # later products join, and what reads them is checked again
            known = len(self.made)
            for later in self.later:
                reads = [None if type(v) is Literal else self.made.get(v) for v in later.invars]
                have = [c or uncut(v.aval.shape) for v, c in zip(later.invars, reads, strict=True)]
                if any(reads) and id(later) not in self.plans and not self._enters(later, have):
                    return False
        results = {v for v in self.jaxpr.outvars if type(v) is not Literal}
        return bool(self.totals) and results.isdisjoint(self.made)

    def remade(self, eqn: Eqn, cuts: Cuts) -> Plan | None:
        """The plan by which a rank computes its part of a result, cut so; None if no cuts of the operands give it."""
        if len(eqn.outvars) != 1 or fx.pins(eqn.effects):
            return None
        shape = eqn.outvars[0].aval.shape
        if eqn.primitive is iota_p:
            return Plan([], [cuts], {**eqn.params, "shape": self.operation(eqn, []).local(shape, cuts)})
        if eqn.primitive is broadcast_in_dim_p:
            dims, of = eqn.params["broadcast_dimensions"], eqn.invars[0].aval.shape
            read = tuple(cuts[d] if n == shape[d] else None for d, n in zip(dims, of, strict=True))
            return Plan([read], [cuts], {**eqn.params, "shape": self.operation(eqn, [read]).local(shape, cuts)})
        rule, whole = rule_of(eqn.primitive), [uncut(v.aval.shape) for v in eqn.invars]
        found = None if rule is None else operands_for(self.operation(eqn, whole), rule, cuts)
        if found is None and (any(cuts) or rule is None):
            return None
        want = [c or w for c, w in zip(found or whole, whole, strict=True)]
        plan = self.planned(eqn, want)
        return None if plan is None or plan.over or tuple(plan.results[0]) != cuts else plan

    def _joined(self, v: Any, cuts: Cuts) -> dict[Any, tuple[Eqn, Plan]]:
        """The later operations that make an operand, an array of pairs too; none if no product is among them."""
        eqn, rows = self.producers.get(v), self.columns.axes
        of_pairs = self.column_of(cuts) is not None and any(c is not None and c.axes == rows for c in cuts)
        if not of_pairs or v in self.made or not any(e is eqn for e in self.later):
            return {}
        assert eqn is not None
        plan = self.remade(eqn, cuts)
        if plan is None:
            return {}
        found: dict[Any, tuple[Eqn, Plan]] = {}
        for u, want in zip(eqn.invars, plan.operands, strict=True):
            if type(u) is not Literal:
                found.update(self._joined(u, tuple(want)))
        return {**found, v: (eqn, plan)} if found or isinstance(eqn.primitive.lower, Library) else {}

    def _enters(self, eqn: Eqn, cuts: Sequence[Cuts]) -> bool:
        """Adds an equation, as one of pairs or as a total; whether it can."""
        plan = self.planned(eqn, cuts)
        if plan is None or not all(isinstance(v.aval.dtype, np.dtype) for v in (*eqn.invars, *eqn.outvars)):
            return False
        over, rows = set(plan.over), set(self.columns.axes)
        columns = [self.column_of(c) is not None for c in plan.results]
        if over:
            of_columns, of_rows = over == {ROUND} and not any(columns), over == rows and all(columns)
            if not (of_columns and plan.op in ("sum", "max")) and not (of_rows and plan.op == "sum"):
                return False
            self.totals[id(eqn)] = eqn
        elif all(columns):
            self.made.update(zip(eqn.outvars, map(tuple, plan.results), strict=True))
        else:
            return False
        self.plans[id(eqn)] = plan
        for v, want in zip(eqn.invars, plan.operands, strict=True):
            for u, (producer, how) in self._joined(v, tuple(want)).items() if type(v) is not Literal else ():
                self.plans[id(producer)] = how
                self.made[u] = tuple(how.results[0])
        return True


def found_at(eqn: Eqn, jaxpr: Jaxpr, held: Sequence[Blocks | None]) -> Pairs | None:
    """The arrays of pairs that begin at a product; None if there are none, or if gathering an operand costs little.

    held: the blocks of the product's operands.
    """
    lower = eqn.primitive.lower
    if not isinstance(lower, Library) or lower.kind != "dot_general" or any(b is None for b in held):
        return None
    mesh = held[0].mesh  # type: ignore[union-attr]
    if held[1].mesh != mesh or mesh.is_explicit or mesh.holds_several:  # type: ignore[union-attr]
        return None
    for k in (1, 0):
        cut = _columns(eqn, held, k)
        if cut is not None:
            pairs = Pairs(jaxpr, mesh, cut)
            cuts = [b.cuts for b in held if b is not None]
            shape = eqn.invars[k].aval.shape
            cuts[k] = pairs.cut_of(shape, next(d for d, c in enumerate(cuts[k]) if c is cut))
            if _is_worth_it(pairs.operation(eqn, cuts), k) and pairs.begins(eqn, cuts):
                return pairs
    return None


def _columns(eqn: Eqn, held: Sequence[Any], k: int) -> Cut | None:
    """The cut of operand `k`, if its only cut is of a free axis, and the other operand's rows are cut over it too."""
    contract, batch = eqn.params["dimension_numbers"]
    mine, others = ([(d, c) for d, c in enumerate(held[i].cuts) if c is not None] for i in (k, 1 - k))
    if len(mine) != 1:
        return None
    [(dim, cut)] = mine
    rows = [c for d, c in others if c.axes == cut.axes and d not in (*contract[1 - k], *batch[1 - k])]
    free = dim not in (*contract[k], *batch[k])
    even = cut.is_even and cut == even_cut(held[k].shape[dim], cut.axes, cut.parts)
    return cut if free and even and rows else None


def _is_worth_it(s: Operation, k: int) -> bool:
    """Whether operand `k` is large, and a rank would hold more of the result than of the operand."""
    size, rows = math.prod(s.shapes[k]), math.prod(c.parts for c in s.cuts[1 - k] if c is not None)
    return size >= dot_over_ranks.LARGE and math.prod(s.results[0]) >= size * rows
