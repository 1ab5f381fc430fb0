"""Computes totals of arrays of pairs (`pairs.py`) while blocks of columns go round the ranks.

In each round a rank has one block of columns. It computes its block of the array of pairs, adds it to its totals, and
drops it; meanwhile the next block arrives. Totals over rows belong to columns: they travel with their block. So a rank
sends each block once, as in an allgather, and holds two blocks. Rows go round instead if that sends fewer bytes: in the
gradient of attention, queries and their gradient are half of what keys, values and their gradients are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from enum import Enum, auto
from typing import Any

import numpy as np

from mpijax.compiler.graph.nodes import Value, ValueKind
from mpijax.compiler.graph.views import counted_axis, spread_axes
from mpijax.compiler.sharding import exchanged, messages, unreduced
from mpijax.compiler.sharding.blocks import Blocks
from mpijax.compiler.sharding.pairs import ROUND, Pairs, found_at
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.compiler.sharding.redistribute import recut
from mpijax.compiler.sharding.running import RunningSoftmax
from mpijax.core import dtypes
from mpijax.core.base.any_depth import any_depth
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.programs.jaxpr import Eqn, Literal
from mpijax.core.rules.lowering import OverRanks
from mpijax.core.rules.sharding_rules import Plan
from mpijax.core.sharding.cuts import Cuts, part_number
from mpijax.ops.collectives.permutations import ppermute
from mpijax.ops.elementwise import binary
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.products.over_ranks import part_at
from mpijax.ops.ranks.loops import fori_loop
from mpijax.ops.reductions.reduce import lowest
from mpijax.ops.rules import const_like
from mpijax.ops.shapes.creation import iota_p
from mpijax.ops.shapes.reshape import broadcast_in_dim, broadcast_in_dim_p


def done(p: Partitioner, eqn: Eqn, inputs: Sequence[Value], source: Any) -> list[Value] | None:
    """The results of an operation on an array of pairs; None for all other operations.

    Nothing but totals reads an array of pairs, so the value returned for one has no operation.
    """
    frame = p.graph.frame
    if frame is None or frame.at is not eqn or p.in_body:
        return None
    pairs = next((x for x in frame.pairs if id(eqn) in x.plans), None)
    if pairs is None:
        pairs = found_at(eqn, frame, [p.blocks_of(v) for v in inputs]) if len(inputs) == 2 else None
        if pairs is None:
            return None
        frame.pairs.append(pairs)
        found = {eqn.outvars[0]: exchanged.found(pairs, eqn) for eqn in pairs.totals.values()}
        pairs.exchanged.update((v, how) for v, how in found.items() if how is not None)
    if id(eqn) not in pairs.totals:
        return [Value(v.aval, ValueKind.PAIRS) for v in eqn.outvars]
    if eqn.outvars[0] not in pairs.results:
        for total in [x for x in pairs.totals.values() if x.outvars[0] in pairs.exchanged]:
            _RoundTotals(p, pairs, frame.values).exchanges(total, source)
    if eqn.outvars[0] not in pairs.results:
        ways = [_RoundTotals(p, way, frame.values) for way in (pairs, pairs.turned) if way is not None]
        for group in ways:
            group.collect(eqn)
        most = max(len(group.totals) for group in ways)
        min((group for group in ways if len(group.totals) == most), key=_RoundTotals.sent).run(source)
    return [pairs.results[v] for v in eqn.outvars]


# Operations before arrays of pairs that rounds do again, one after the other, instead of reading what they made.
DEEPEST = 16


class _Read(Enum):
    """How a round gets a value.

    WHOLE: each round reads the same. TRAVELS: it goes round the ranks in blocks. SLICE: the round takes its part of it.
    """

    WHOLE = auto()
    TRAVELS = auto()
    SLICE = auto()


class _NotComputedYet(Exception):
    """A total needs a value that the program computes later."""


@dataclass(frozen=True, eq=False)
class Work:
    """What a rank computes in a round, in order.

    reads: values that enter, each with its cuts. steps: equations with their plans, and the cuts of their results.
    """

    reads: dict[tuple[Any, Cuts], None] = field(default_factory=dict)
    steps: dict[tuple[Any, Cuts], tuple[Eqn, Plan]] = field(default_factory=dict)

    def add(self, other: Work) -> None:
        self.reads.update(other.reads)
        self.steps.update(other.steps)


class _RoundTotals:
    """The totals that are computed in the same rounds: the first one, and all whose operands are there by now.

    values: those of the Jaxpr's variables so far. known: what `needed` found; None where a value is missing.
    """

    def __init__(self, p: Partitioner, pairs: Pairs, values: dict[Any, Value]):
        self.p, self.pairs, self.values = p, pairs, values
        self.running: RunningSoftmax | None = None
        self.known: dict[Any, Work | None] = {}
        self.work = Work()
        self.totals: list[Eqn] = []

    def exchanges(self, eqn: Eqn, source: Any) -> None:
        """Computes a total from another one, without rounds, if the values for that are there."""
        [v] = eqn.outvars
        how = self.pairs.exchanged[v]
        try:
            for u, want in how.reads:
                self.work.add(self.needed(u, want))
        except _NotComputedYet:
            return
        del self.pairs.exchanged[v]
        reads = list(self.work.reads)
        operands = [self._operand(u, want, _Read.WHOLE, source) for u, want in reads]

        def program(*args: Any) -> Any:
            return how.value(_RoundValues(self, np.int32(0), dict(zip(reads, args, strict=True))), v.aval.dtype)

        outs = messages.computed_together(self.p, self.pairs.mesh, program, operands, eqn.primitive.name, source)
        self._keep([eqn], outs, source)
        self.values[v] = self.pairs.results[v]

    def collect(self, first: Eqn) -> None:
        """Finds the totals that are computed together with the first one."""
        pairs = self.pairs
        self.running = RunningSoftmax.found(pairs, first)
        for eqn in pairs.totals.values():
            computed = eqn.outvars[0] in pairs.results or (eqn.outvars[0] in pairs.exchanged and eqn is not first)
            if not computed and pairs.sums(eqn) and (self.running is None or self.running.takes(eqn)):
                self._joins(eqn)
        if len(self.totals) == 1:
            self.running = None

    def _joins(self, eqn: Eqn) -> None:
        work = Work()
        try:
            for v, cuts in zip(eqn.invars, self.pairs.plans[id(eqn)].operands, strict=True):
                work.add(self.needed(v, tuple(cuts)))
            if self.running is not None and (divisor := self.running.divisor(eqn)) is not None:
                work.add(self.needed(*divisor, after=True))
        except _NotComputedYet:
            return
        self.work.add(work)
        self.totals.append(eqn)

    def sent(self) -> int:
        """Bytes that go round: blocks of what travels, and totals that travel with them."""
        read = [v for v, cuts in self.work.reads if self._kind(v, cuts) is _Read.TRAVELS]
        made = [eqn.outvars[0] for eqn in self.totals if self.pairs.plans[id(eqn)].over != (ROUND,)]
        return sum(v.aval.nbytes for v in (*read, *made))

    # ------------------------------------------------------------ what a round computes

    @any_depth
    def needed(self, v: Any, cuts: Cuts, after: bool = False, depth: int = 0) -> Work:
        """The work to have a value, cut so, in a round, or after the last one. Raises _NotComputedYet.

        depth: the number of operations before arrays of pairs that would be done again for it.
        """
        if self.running is not None:
            v = self.running.same.get(v, v)
        if type(v) is Literal or (self.running is not None and self.running.gives(v, after)):
            return Work()
        key = v, cuts, after
        if key not in self.known:
            try:
                self.known[key] = self._found(v, cuts, after, depth)
            except _NotComputedYet:
                self.known[key] = None
        found = self.known[key]
        if found is None:
            raise _NotComputedYet
        return found

    def _found(self, v: Any, cuts: Cuts, after: bool, depth: int) -> Work:
        eqn = self.pairs.producers.get(v)
        if v in self.pairs.made:
            assert eqn is not None
            return self._step(eqn, v, cuts, self.pairs.plans[id(eqn)], after, 0)
        made, small = None, v in self.values and v.aval.size <= self.pairs.size
        if not small and eqn is not None and id(eqn) not in self.pairs.totals and depth < DEEPEST:
            made = self._remade(eqn, v, cuts, after, depth + 1)
        if v not in self.values:
            if made is None:
                raise _NotComputedYet
            return made
        if made is not None and self._bytes(made) < v.aval.nbytes:
            return made
        return Work({(v, cuts): None})

    def _bytes(self, work: Work) -> int:
        """Bytes of the values that are read block by block."""
        return sum(v.aval.nbytes for v, cuts in work.reads if self.pairs.column_of(cuts) is not None)

    def _step(self, eqn: Eqn, v: Any, cuts: Cuts, plan: Plan, after: bool, depth: int) -> Work:
        work = Work()
        for u, want in zip(eqn.invars, plan.operands, strict=True):
            work.add(self.needed(u, tuple(want), after, depth))
        work.steps[v, cuts] = eqn, plan
        return work

    def _remade(self, eqn: Eqn, v: Any, cuts: Cuts, after: bool, depth: int) -> Work | None:
        """The work to compute the part of a value in the round; None if its operands cannot be cut for that."""
        if self.pairs.column_of(cuts) is None and v in self.values:
            return None
        plan = self.pairs.remade(eqn, cuts)
        try:
            return None if plan is None else self._step(eqn, v, cuts, plan, after, depth)
        except _NotComputedYet:
            return None

    # ------------------------------------------------------------ the rounds

    def run(self, source: Any) -> None:
        """Adds the loop to the graph, and records the totals."""
        pairs, p = self.pairs, self.p
        kinds = {read: self._kind(*read) for read in self.work.reads}
        operands = [self._operand(v, cuts, kinds[v, cuts], source) for v, cuts in self.work.reads]
        program = _program(self, [(*read, kind) for read, kind in kinds.items()])
        name = self.totals[0].primitive.name
        outs = messages.computed_together(p, pairs.mesh, program, operands, name, source)
        self._keep(self.totals, outs, source)

    def _keep(self, totals: Sequence[Eqn], outs: Sequence[Value], source: Any) -> None:
        pairs = self.pairs
        for eqn, out in zip(totals, outs, strict=True):
            [v], [cuts] = eqn.outvars, pairs.plans[id(eqn)].results
            blocks = Blocks(pairs.mesh, v.aval.shape, pairs.held(tuple(cuts), v.aval.shape))
            pairs.results[v] = self.p.held_as(out, blocks, blocks.sharding, True, source)

    def _kind(self, v: Any, cuts: Cuts) -> _Read:
        """How a round gets a value."""
        axis = self.pairs.column_of(cuts)
        if axis is None:
            return _Read.WHOLE
        held = self.p.blocks_of(self.values[v])
        return _Read.TRAVELS if held is not None and held.cuts[axis] == self.pairs.columns else _Read.SLICE

    def _operand(self, v: Any, cuts: Cuts, kind: _Read, source: Any) -> Value:
        """This rank's part of a value, as the rounds start with it."""
        value = self.values[v]
        waiting = self.p.known.unreduced.get(value)
        if waiting is not None:
            value = unreduced.finished(self.p, value, waiting, None, source)
        if kind is _Read.SLICE:
            axis = self.pairs.column_of(cuts)
            cuts = tuple(None if d == axis else c for d, c in enumerate(cuts))
        held = self.pairs.held(cuts, v.aval.shape)
        return self.p.graph.local(recut(self.p, value, self.pairs.mesh, held, source))


class _RoundValues:
    """The values of one round, while its program is traced.

    owner: the rank that owns the columns; a tracer. known: values by variable and cuts.
    """

    def __init__(self, group: _RoundTotals, owner: Any, known: dict[Any, Any]):
        self.group, self.pairs, self.owner, self.known = group, group.pairs, owner, known

    @any_depth
    def value(self, v: Any, cuts: Cuts) -> Any:
        """This rank's part of a value in the round."""
        if type(v) is Literal:
            return np.asarray(v.val, v.aval.dtype)[()]
        if self.group.running is not None:
            v = self.group.running.same.get(v, v)
        if (v, None) in self.known:
            return self.known[v, None]
        if (v, cuts) not in self.known:
            eqn, plan = self.group.work.steps[v, cuts]
            self.known[v, cuts] = self.made(eqn, cuts, plan)
        return self.known[v, cuts]

    def made(self, eqn: Eqn, cuts: Cuts, plan: Plan) -> Any:
        """This rank's part of a result, cut so."""
        counted, axes = counted_axis(eqn), spread_axes(eqn)
        if counted is not None:
            return self.positions(eqn, cuts, counted)
        if axes is None:
            return self.apply(eqn, plan)
        [u], [read] = eqn.invars, plan.operands
        local = self.pairs.operation(eqn, [read]).local(eqn.outvars[0].aval.shape, cuts)
        return broadcast_in_dim_p.bind(
            self.value(u, tuple(read)), shape=local, broadcast_dimensions=axes, sharding=eqn.params.get("sharding")
        )

    def apply(self, eqn: Eqn, plan: Plan) -> Any:
        args = [self.value(u, tuple(want)) for u, want in zip(eqn.invars, plan.operands, strict=True)]
        out = eqn.primitive.bind(*args, **plan.params)
        return out[0] if isinstance(out, (list, tuple)) else out

    def total(self, eqn: Eqn) -> Any:
        """This round's part of a total, with the precision of its sum."""
        plan = self.pairs.plans[id(eqn)]
        wide = wide_of(eqn, plan)
        if "preferred_element_type" in plan.params:
            plan = Plan(plan.operands, plan.results, {**plan.params, "preferred_element_type": wide})
        return convert_element_type(self.apply(eqn, plan), wide)

    def positions(self, eqn: Eqn, cuts: Cuts, axis: int) -> Any:
        """This rank's part of positions along an axis."""
        aval, cut = eqn.outvars[0].aval, cuts[axis]
        dtype, local = aval.dtype, self.pairs.operation(eqn, []).local(aval.shape, cuts)
        here = iota_p.bind(dtype=dtype, shape=local, dimension=axis, sharding=eqn.params.get("sharding"))
        if cut is None:
            return here
        start = np.int32(self.pairs.operation(eqn, []).span(cut)[0])
        if cut.axes == (ROUND,):
            start = binary.mul(self.owner, const_like(self.owner, cut.widest))
        return binary.add(here, convert_element_type(start, dtype))


def wide_of(eqn: Eqn, plan: Plan) -> np.dtype:
    """The dtype of a total during the rounds: sums of narrow floats are rounded once."""
    dtype = np.dtype(eqn.outvars[0].aval.dtype)
    narrow = plan.op is OverRanks.SUM and dtypes.issubdtype(dtype, np.floating) and dtype.itemsize < 4
    return np.dtype(np.float32) if narrow else dtype


def _program(group: _RoundTotals, reads: Sequence[tuple[Any, Cuts, _Read]]) -> Callable[..., list[Any]]:
    """The rounds, as a function of this rank's parts of what they read."""
    pairs, running = group.pairs, group.running
    n, axes = pairs.rounds, pairs.columns.axes
    me = part_number(axes, pairs.sizes, pairs.operation(group.totals[0], []).place)
    neighbours = tuple(((r + 1) % n, r) for r in range(n))
    travels = [k for k, (_, _, kind) in enumerate(reads) if kind is _Read.TRAVELS]
    plans = [pairs.plans[id(eqn)] for eqn in group.totals]
    sent = [k for k, plan in enumerate(plans) if plan.over != (ROUND,)]

    def onward(xs: Iterable[Any]) -> list[Any]:
        return [ppermute(x, axes, neighbours) for x in xs]

    def program(*args: Any) -> list[Any]:
        def one(owner: Any, blocks: Sequence[Any], totals: Sequence[Any], state: Any) -> tuple[list[Any], Any]:
            known = {}
            at = dict(zip(travels, blocks, strict=True))
            for k, (v, cuts, kind) in enumerate(reads):
                x = at.get(k, args[k])
                known[v, cuts] = _sliced(x, pairs, cuts, owner) if kind is _Read.SLICE else x
            here = _RoundValues(group, owner, known)
            if running is not None:
                return running.step(here, group.totals, totals, state)
            parts = [here.total(eqn) for eqn in group.totals]
            joins = [binary.max if plan.op is OverRanks.MAX else binary.add for plan in plans]
            return [join(x, y) for join, x, y in zip(joins, totals, parts, strict=True)], state

        def step(k: Any, carry: Any) -> Any:
            blocks, totals, state = carry
            following = onward(blocks)
            owner = binary.rem(binary.add(k, const_like(k, me)), const_like(k, n))
            totals, state = one(owner, blocks, totals, state)
            return following, [onward([x])[0] if j in sent else x for j, x in enumerate(totals)], state

        zero = [_start(pairs, eqn, plan) for eqn, plan in zip(group.totals, plans, strict=True)]
        state = () if running is None else running.start()
        carry = [args[k] for k in travels], zero, state
        blocks, totals, state = fori_loop(0, n - 1, step, carry)
        totals, state = one(np.int32((me - 1) % n), blocks, totals, state)
        totals = [onward([x])[0] if j in sent else x for j, x in enumerate(totals)]
        if running is not None:
            known = {(v, cuts): x for (v, cuts, _), x in zip(reads, args, strict=True)}
            totals = running.finished(_RoundValues(group, np.int32(0), known), group.totals, totals)
        return [convert_element_type(x, eqn.outvars[0].aval.dtype) for x, eqn in zip(totals, group.totals, strict=True)]

    return program


def _start(pairs: Pairs, eqn: Eqn, plan: Plan) -> Any:
    """A total of nothing."""
    dtype, shape = wide_of(eqn, plan), pairs.operation(eqn, []).local(eqn.outvars[0].aval.shape, tuple(plan.results[0]))
    least = lowest(dtype) if plan.op is OverRanks.MAX else 0
    return broadcast_in_dim(np.asarray(least, dtype), shape, ())


def _sliced(x: Any, pairs: Pairs, cuts: Cuts, owner: Any) -> Any:
    """The round's columns of a value that the rank has whole along them."""
    axis = pairs.column_of(cuts)
    assert axis is not None
    cut = cuts[axis]
    assert cut is not None
    return part_at(x, binary.mul(owner, const_like(owner, cut.widest)), axis, cut.widest)
