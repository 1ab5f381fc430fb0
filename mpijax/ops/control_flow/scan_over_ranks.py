"""Defines the sharding rule of `scan` along a split axis: each rank runs the iterations of its part, in turn.

A rank receives the carry from the rank before it, runs its iterations, and sends the carry on. The last rank broadcasts
the final carry. So carries are sent, not the scanned arrays, and stacked results are split. Without carries
(`lax.map`), nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import ClosedJaxpr, nested_jaxprs
from mpijax.core.rules.lowering import Partitioned, Reshard
from mpijax.core.rules.registry import registry
from mpijax.core.rules.sharding_rules import Operation, Plan
from mpijax.core.sharding.cuts import Cut, part_number, uncut
from mpijax.ops.collectives.permutations import pbroadcast, ppermute
from mpijax.ops.control_flow.common import split


def sharding(s: Operation) -> Plan | None:
    """The plan of a scan along a split axis; None for other scans.

    None, too, if the body would read a split array or divides its work by shardings: it would communicate in each
    iteration, and the ranks run different iterations at a time.
    """
    p = s.params
    fixed, xs = split(s.cuts, p["num_consts"] + p["num_carry"])
    cut = next((c for cuts in xs if (c := cuts[0]) is not None), None)
    if cut is None or any(map(any, fixed)) or any(any(cuts[1:]) for cuts in xs):
        return None
    if p["length"] == 1 or _names_shardings(p["jaxpr"]) or not s.results:
        return None
    results = [uncut(shape) if k < p["num_carry"] else (cut, *uncut(shape[1:])) for k, shape in enumerate(s.results)]
    operands = [*fixed, *((cut, *uncut(cuts[1:])) for cuts in xs)]
    low, high = s.span(cut)
    params = {**p, "length": high - low}
    program = None
    if p["num_carry"]:
        program = _in_turn(params, cut, part_number(cut.axes, s.sizes, s.place))
    return Plan(operands, results, params, program=program)


@memo_on_jaxpr
def _names_shardings(body: ClosedJaxpr) -> bool:
    return any(
        isinstance(eqn.primitive.lower, (Reshard, Partitioned)) for inner in nested_jaxprs(body) for eqn in inner.eqns
    )


def _in_turn(params: Mapping[str, Any], cut: Cut, me: int) -> Callable[..., list[Any]]:
    """The scan on this rank's part. Communicates, for each carry, a message to the next rank and one broadcast."""
    order = range(cut.parts)[::-1] if params["reverse"] else range(cut.parts)

    def program(*args: Any) -> list[Any]:
        consts, carry, xs = split(args, params["num_consts"], params["num_carry"])
        ys: list[Any] = []
        for place, rank in enumerate(order):
            if rank == me:
                carry, ys = split(registry["scan"].bind(*consts, *carry, *xs, **params), params["num_carry"])
            if place + 1 < cut.parts:
                following = order[place + 1]
                received = [ppermute(x, cut.axes, [(rank, following)]) for x in carry]
                carry = received if following == me else carry
        return [*(pbroadcast(x, cut.axes, order[-1]) for x in carry), *ys]

    return program
