"""Builds loops and branches: a node with a region for each body.

`FlowBuilder` describes parts of arrays (`Cuts`) in general, but its arrays are whole. `compiler.sharding.carries`
extends it for arrays that are split over ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.compiler.graph.regions import OpenRegion, opened
from mpijax.core.programs.jaxpr import ClosedJaxpr
from mpijax.core.rules.lowering import Flow
from mpijax.core.sharding.cuts import Cuts, uncut
from mpijax.ops.shapes.reshape import reshape_p


class FlowBuilder:
    """A loop or branch of whole arrays."""

    def __init__(self, builder, eqn, source):
        self.builder, self.eqn, self.source = builder, eqn, source

    def cuts(self, v) -> Cuts:
        """The cuts of an operand."""
        return uncut(v.aval.shape)

    def parts(self, avals, cuts: Sequence[Cuts]) -> list[Any]:
        """The parts of values with these whole types that this rank has; None each for whole arrays."""
        return [None] * len(avals)

    def recut(self, v, cuts: Cuts):
        """An operand with other cuts."""
        return v

    def opened(self, closed: ClosedJaxpr, args: Sequence[Any], leaves: bool = True) -> OpenRegion:
        return opened(self.builder, closed, args, self.source, leaves)

    def left(self, closed: ClosedJaxpr, body: OpenRegion) -> list[Cuts]:
        """The cuts of a body's results."""
        return [uncut(a.shape) for a in closed.out_avals]

    def carried(self, closed: ClosedJaxpr, consts, first, others=()) -> tuple[list[Cuts], list[Cuts], OpenRegion]:
        """The cuts of carries in every iteration, the cuts of all results of the body, and the body.

        others: types and parts of the arguments that change each iteration, such as slices.
        """
        avals = closed.in_avals[len(consts) : len(consts) + len(first)]
        body = self.opened(closed, [*consts, *((a, None) for a in avals), *others])
        return [uncut(a.shape) for a in avals], self.left(closed, body), body

    def results(self, operands, regions, position, avals, cuts: Sequence[Cuts]) -> list[Any]:
        """The results of the operation.

        position: for each result, its position among the results of the regions. avals: whole types.
        """
        places = [position.index(at) for at in range(len(regions[-1].graph.outputs))]
        made = self.builder.control(self.eqn, operands, regions, [avals[k] for k in places], self.source)
        return [made[at] for at in position]


def control_node(s: FlowBuilder, inputs: list[Any], avals) -> list[Any]:
    """The results of a loop or branch. Its inputs are the operands, then what its regions capture.

    A branch with a known index is inlined, as is the body of a scan of length 1.
    """
    return {Flow.COND: _cond, Flow.WHILE: _while, Flow.SCAN: _scan}[s.eqn.primitive.lower.kind](s, inputs, avals)


def _cond(s: FlowBuilder, inputs, avals) -> list[Any]:
    index, *operands = inputs
    branches = s.eqn.params["branches"]
    if index.scalar is not None:
        return s.builder.inline(branches[min(max(int(index.scalar), 0), len(branches) - 1)], operands, s.source)
    index = s.recut(index, ())
    bodies = [s.opened(b, operands, leaves=False) for b in branches]
    left = zip(*map(s.left, branches, bodies), strict=True)
    cuts = [next((c for c in each if any(c)), each[0]) for each in left]
    regions = [body.closed(s.parts(avals, cuts)) for body in bodies]
    return s.results([index], regions, range(len(avals)), avals, cuts)


def _while(s: FlowBuilder, inputs, avals) -> list[Any]:
    p = s.eqn.params
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    consts, first = inputs[nc : nc + nb], inputs[nc + nb :]
    cuts, _, body = s.carried(p["body_jaxpr"], consts, first)
    parts = s.parts(avals, cuts)
    cond = s.opened(p["cond_jaxpr"], [*inputs[:nc], *zip(avals, parts, strict=True)]).closed([None])
    region = body.closed(parts, carries=nb)
    first = [s.recut(v, c) for v, c in zip(first, cuts, strict=True)]
    return s.results(first, [cond, region], range(len(avals)), avals, cuts)


def _scan(s: FlowBuilder, inputs, avals) -> list[Any]:
    p = s.eqn.params
    n, m = p["num_consts"], p["num_carry"]
    consts, first, xs = inputs[:n], inputs[n : n + m], inputs[n + m :]
    slices = p["jaxpr"].in_avals[n + m :]
    if p["length"] == 1:
        return _one_iteration(s, [*consts, *first], xs, slices, avals)
    new = list(zip(slices, s.parts(slices, [s.cuts(v)[1:] for v in xs]), strict=True))
    cuts, outs, body = s.carried(p["jaxpr"], consts, first, new)
    cuts = [*cuts, *outs[m:]]
    region = body.closed(s.parts(p["jaxpr"].out_avals, cuts), carries=n, merge_from=m)
    rest = [s.recut(v, c) for v, c in zip(first, cuts, strict=False)]
    rest += [s.recut(v, (None, *s.cuts(v)[1:])) for v in xs]
    return s.results(rest, [region], region.position, avals, [*cuts[:m], *((None, *c) for c in cuts[m:])])


def _one_iteration(s: FlowBuilder, before, xs, slices, avals) -> list[Any]:
    """The results of a scan of length 1: the body is inlined."""

    def reshaped(v, aval):
        params = {"new_sizes": aval.shape, "dimensions": None, "sharding": None}
        return s.builder.pure(reshape_p, params, [s.builder.local(v)], [aval], s.source)[0]

    n = s.eqn.params["num_carry"]
    outs = s.builder.inline(s.eqn.params["jaxpr"], [*before, *map(reshaped, xs, slices)], s.source)
    return [*outs[:n], *map(reshaped, outs[n:], avals[n:])]
