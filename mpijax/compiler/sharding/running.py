"""Finds softmax in operations on arrays of pairs, and computes it in one pass over the columns.

softmax subtracts the maximum of a row before `exp`, but the maximum is known only after the last round. Each round uses
the maximum so far, m. When it grows to m', the sums so far are multiplied by exp(m - m'). That is exact for totals that
are linear in exp(x - m). Totals of a quotient by such a total are divided after the last round. (Milakov and
Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from mpijax.compiler.sharding.pairs import Pairs
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.programs.jaxpr import Eqn, Literal
from mpijax.core.rules.lowering import Meaning, OverRanks, meaning_of
from mpijax.core.sharding.cuts import Cuts
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise import binary
from mpijax.ops.elementwise.compare import eq
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.elementwise.select import select
from mpijax.ops.elementwise.transcendental import exp
from mpijax.ops.reductions.reduce import lowest
from mpijax.ops.rules import full_like
from mpijax.ops.shapes.reshape import broadcast_in_dim, reshape, transpose


@dataclass
class RunningSoftmax:
    """A softmax over columns.

    peak: the maximum. shift: what is subtracted, a value of rows computed from the maximum, and its cuts.
    scaled: the arrays of pairs that are proportional to exp(-shift), each with its divisor (None without one).
    same: for a quotient, the dividend that rounds compute instead. totals: of scaled arrays, by id, each with its
    array. sums: those that may be a divisor.
    """

    pairs: Pairs
    peak: Eqn
    shift: tuple[Any, Cuts] | None = None
    scaled: dict[Any, tuple[Any, Cuts] | None] = field(default_factory=dict)
    same: dict[Any, Any] = field(default_factory=dict)
    totals: dict[int, Any] = field(default_factory=dict)
    sums: set[Any] = field(default_factory=set)

    @classmethod
    def found(cls, pairs: Pairs, first: Eqn) -> RunningSoftmax | None:
        """The softmax whose maximum is the total `first`; None if that is another total."""
        plan = pairs.plans[id(first)]
        if plan.op is not OverRanks.MAX or not plan.over:
            return None
        running, shifted = cls(pairs, first), set[Any]()
        of_peak, of_sums = {first.outvars[0]}, set[Any]()
        other: set[Any] = set()  # arrays of pairs that depend on the maximum in other ways
        eqns = pairs.jaxpr.eqns
        for eqn in eqns[next(k for k, e in enumerate(eqns) if e is first) + 1 :]:
            reads = [v for v in eqn.invars if type(v) is not Literal]
            if id(eqn) in pairs.totals:
                running._adds(eqn, reads)
                of_sums |= running.sums
            elif id(eqn) in pairs.plans:
                followed = running._follows(eqn, shifted, of_peak, of_sums, other)
                if not followed and any(
                    v in x for v in reads for x in (running.scaled, shifted, of_peak, of_sums, other)
                ):
                    other.update(eqn.outvars)
            else:
                for small in (of_peak, of_sums):
                    if any(v in small for v in reads):
                        small.update(eqn.outvars)
        return running if running.totals else None

    def _follows(self, eqn: Eqn, shifted: set[Any], of_peak: set[Any], of_sums: set[Any], other: set[Any]) -> bool:
        """Notes what an operation on pairs makes of the softmax; whether the running sums allow it."""
        [out], ins, plan = eqn.outvars, eqn.invars, self.pairs.plans[id(eqn)]
        bound, meaning = (self.scaled, shifted, of_peak, of_sums, other), meaning_of(eqn.primitive.lower)
        if meaning is Meaning.DIFFERENCE and ins[1] in of_peak and not any(ins[0] in x for x in bound):
            shift = ins[1], tuple(plan.operands[1])
            if self.shift in (None, shift) and self._is_of_rows(ins[1], out):
                self.shift = shift
                shifted.add(out)
                return True
        elif meaning is Meaning.EXPONENTIAL and ins[0] in shifted:
            self.scaled[out] = None
            return True
        elif meaning in (Meaning.CONVERSION, Meaning.NEGATION) and ins[0] in self.scaled:
            self.scaled[out] = self.scaled[ins[0]]
            return True
        elif meaning is Meaning.QUOTIENT and ins[0] in self.scaled and self.scaled[ins[0]] is None:
            if ins[1] in of_sums and self._is_of_rows(ins[1], out):
                self.scaled[out] = ins[1], tuple(plan.operands[1])
                self.same[out] = ins[0]
                return True
        elif meaning is Meaning.PRODUCT:
            of = [v for v in ins if v in self.scaled]
            if len(of) == 1 and sum(any(v in x for x in bound) for v in ins) == 1:
                self.scaled[out] = self.scaled[of[0]]
                return True
        return False

    def _is_of_rows(self, v: Any, pairs: Any) -> bool:
        """Whether a value has a number for each row of an array of pairs: its columns are an axis of size 1."""
        axis = self.pairs.column_of(self.pairs.made[pairs])
        shape = v.aval.shape
        return len(shape) == pairs.aval.ndim and axis is not None and shape[axis] == 1

    def _adds(self, eqn: Eqn, reads: Sequence[Any]) -> None:
        """Notes a total over the columns of a scaled array. The sum of each row may be a divisor."""
        of = [v for v in reads if v in self.scaled]
        if len(of) != 1 or self.pairs.plans[id(eqn)].op is not OverRanks.SUM or not self._only_columns(eqn, of[0]):
            return
        self.totals[id(eqn)] = of[0]
        if self.scaled[of[0]] is None and "axes" in eqn.params:
            self.sums.add(eqn.outvars[0])

    def _only_columns(self, eqn: Eqn, v: Any) -> bool:
        """Whether a total is over the columns of its operand and no other axis of it."""
        axis = self.pairs.column_of(self.pairs.made[v])
        if "axes" in eqn.params:
            return [int(d) for d in eqn.params["axes"]] == [axis]
        contract, _ = eqn.params["dimension_numbers"]
        return [int(d) for d in contract[eqn.invars.index(v)]] == [axis]

    # ------------------------------------------------------------ for the group

    def takes(self, eqn: Eqn) -> bool:
        return eqn is self.peak or id(eqn) in self.totals

    def gives(self, v: Any, after: bool) -> bool:
        """Whether a round has a value without computing it: the maximum so far; after the last round, the sums."""
        return v in self.sums if after else v is self.peak.outvars[0]

    def divisor(self, eqn: Eqn) -> tuple[Any, Cuts] | None:
        """What a total is divided by after the last round."""
        return None if eqn is self.peak else self.scaled[self.totals[id(eqn)]]

    # ------------------------------------------------------------ in the program

    def start(self) -> Any:
        """The value that is subtracted before the first round."""
        assert self.shift is not None
        v, cuts = self.shift
        dtype = np.dtype(v.aval.dtype)
        return broadcast_in_dim(
            np.asarray(lowest(dtype), dtype), self.pairs.operation(self.peak, []).local(v.aval.shape, cuts), ()
        )

    def step(self, here: Any, eqns: Sequence[Eqn], totals: Sequence[Any], before: Any) -> tuple[list[Any], Any]:
        """The totals and the subtracted value after a round."""
        assert self.shift is not None
        peak = binary.max(totals[0], here.total(self.peak))
        here.known[self.peak.outvars[0], None] = peak
        shift = here.value(*self.shift)
        # Where all columns so far are -inf, nothing is subtracted.
        none = eq(shift, full_like(shift, -np.inf))
        subtracted = select(none, full_like(shift, 0), shift)
        here.known[self.shift[0], None] = subtracted
        shrinks = exp(binary.sub(before, subtracted))
        out = [peak]
        for eqn, total in zip(eqns[1:], totals[1:], strict=True):
            part = here.total(eqn)
            out.append(binary.add(binary.mul(total, self._facing(eqn, shrinks, total)), part))
        return out, shift

    def finished(self, here: Any, eqns: Sequence[Eqn], totals: Sequence[Any]) -> list[Any]:
        """The totals after the last round."""
        for eqn, total in zip(eqns, totals, strict=True):
            here.known[eqn.outvars[0], None] = total
        out = []
        for eqn, total in zip(eqns, totals, strict=True):
            divisor = self.divisor(eqn)
            out.append(total if divisor is None else binary.div(total, self._facing(eqn, here.value(*divisor), total)))
        return out

    def _facing(self, eqn: Eqn, of_rows: Any, total: Any) -> Any:
        """A value of rows, in the shape of a total."""
        v = self.totals[id(eqn)]
        axis = self.pairs.column_of(self.pairs.made[v])
        of_rows = convert_element_type(of_rows, typeof(total).dtype)
        shape = typeof(of_rows).shape
        assert axis is not None
        of_rows = reshape(of_rows, (*shape[:axis], *shape[axis + 1 :]))
        if "axes" in eqn.params:
            return of_rows
        contract, batch = eqn.params["dimension_numbers"]
        k = eqn.invars.index(v)
        free = [[d for d in range(u.aval.ndim) if d not in (*contract[i], *batch[i])] for i, u in enumerate(eqn.invars)]
        order = [int(d) - (d > axis) for d in (*batch[k], *free[k])]
        first = len(batch[k]) + (len(free[0]) if k == 1 else 0)
        dims = (*range(len(batch[k])), *range(first, first + len(free[k])))
        return broadcast_in_dim(transpose(of_rows, order), typeof(total).shape, dims)
