"""Values inside of a loop or a branch that a policy of `checkpoint` keeps.

A Jaxpr under `checkpoint` is computed twice. Of an equation with bodies there are then two: the one of the first pass
also returns what the policy keeps inside, and the one that computes again takes these values and leaves out what made
them. A rule `keep_inside(eqn, keeps)` returns the two, and the variables that go from one to the other; None where
nothing inside is kept. `keeps(eqn)` tells of an equation without bodies whether its results are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mpijax.core.jaxpr import ClosedJaxpr, Eqn, Var
from mpijax.ops.control_flow.residuals import merge, return_all, take_all


class Twice(NamedTuple):
    """An equation as it is computed first and again; `kept` are results of the first that the other reads."""

    first: Eqn
    again: Eqn
    kept: list[Var]


class Body(NamedTuple):
    """A body in two versions: `first` also returns the `kept` values, last, and `again` takes them, first."""

    first: ClosedJaxpr
    again: ClosedJaxpr
    kept: list[Var]


def keep_in_body(closed: ClosedJaxpr, keeps: Callable[[Eqn], bool]) -> Body:
    """Split a body by what is kept of it, and of bodies inside of it."""
    jaxpr = closed.jaxpr
    first: list[Eqn] = []
    again: list[Eqn] = []
    kept: list[Var] = []
    for eqn in jaxpr.eqns:
        inner = eqn.primitive.keep_inside
        twice = inner(eqn, keeps) if inner is not None else None
        if twice is not None:
            first.append(twice.first)
            again.append(twice.again)
            kept += twice.kept
        elif keeps(eqn):
            first.append(eqn)
            kept += eqn.outvars
        else:
            first.append(eqn)
            again.append(eqn)
    return Body(
        ClosedJaxpr(jaxpr.replace(outvars=[*jaxpr.outvars, *kept], eqns=first), closed.consts),
        ClosedJaxpr(jaxpr.replace(invars=[*kept, *jaxpr.invars], eqns=again), closed.consts),
        kept,
    )


def keep_in_scan(eqn: Eqn, keeps: Callable[[Eqn], bool]) -> Twice | None:
    """A loop that stacks the values kept in each turn, and one that reads them."""
    params = eqn.params
    body = keep_in_body(params["jaxpr"], keeps)
    if not body.kept:
        return None
    n, length = len(body.kept), params["length"]
    new = [Var(v.aval.inc_rank(length, v.aval.leading_axis_spec())) for v in body.kept]
    jaxpr = body.again.jaxpr
    again = ClosedJaxpr(jaxpr.replace(invars=[*jaxpr.invars[n:], *jaxpr.invars[:n]]), body.again.consts)
    return Twice(
        eqn.replace(outvars=[*eqn.outvars, *new], params={**params, "jaxpr": body.first}),
        eqn.replace(invars=[*eqn.invars, *new], params={**params, "jaxpr": again}, effects=again.effects),
        new,
    )


def keep_in_cond(eqn: Eqn, keeps: Callable[[Eqn], bool]) -> Twice | None:
    """A choice that also returns what any branch keeps; the one made again gives each branch its own."""
    bodies = [keep_in_body(b, keeps) for b in eqn.params["branches"]]
    if not any(b.kept for b in bodies):
        return None
    avals, places = merge([[v.aval for v in b.kept] for b in bodies])
    first = tuple(return_all(b.first, p, avals) for b, p in zip(bodies, places, strict=True))
    again = tuple(take_all(b.again, p, avals) for b, p in zip(bodies, places, strict=True))
    new = [Var(a) for a in avals]
    effects = frozenset().union(*(b.effects for b in again))
    return Twice(
        eqn.replace(outvars=[*eqn.outvars, *new], params={**eqn.params, "branches": first}),
        eqn.replace(
            invars=[eqn.invars[0], *new, *eqn.invars[1:]], params={**eqn.params, "branches": again}, effects=effects
        ),
        new,
    )
