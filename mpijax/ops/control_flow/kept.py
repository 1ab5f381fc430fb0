"""Keeps values inside loops and branches that a policy of `checkpoint` saves.

A Jaxpr under `checkpoint` is computed twice. Each equation with bodies then has two versions. The version of the first
pass also returns the values inside that the policy keeps. The recomputing version takes these values and omits the
equations that made them. A rule `keep_inside(eqn, keeps)` returns both versions and the variables passed between them,
or None if nothing inside is kept. `keeps(eqn)` tells whether the results of an equation without bodies are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Var
from mpijax.core.types import effects as fx
from mpijax.ops.control_flow.residuals import merge, return_all, take_all


class Twice(NamedTuple):
    """An equation in two versions: for the first pass, and for recomputation, which reads its `kept` results."""

    first: Eqn
    again: Eqn
    kept: list[Var]


class BodyVersions(NamedTuple):
    """A body in two versions: `first` also returns the `kept` values last, and `again` takes them first."""

    first: ClosedJaxpr
    again: ClosedJaxpr
    kept: list[Var]


def keep_in_body(closed: ClosedJaxpr, keeps: Callable[[Eqn], bool]) -> BodyVersions:
    """Split a body by its kept values, including those of bodies inside it."""
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
    return BodyVersions(
        ClosedJaxpr(jaxpr.replace(outvars=[*jaxpr.outvars, *kept], eqns=first), closed.consts),
        ClosedJaxpr(jaxpr.replace(invars=[*kept, *jaxpr.invars], eqns=_still_read(again, jaxpr, kept)), closed.consts),
        kept,
    )


def _still_read(eqns: list[Eqn], jaxpr: Jaxpr, kept: list[Var]) -> list[Eqn]:
    """Without equations of which only those that made kept values read something, also collectives over named axes:
    these are left out on all ranks alike. Exchanges with ranks that may run another program stay."""
    found = []
    wanted = {v for v in jaxpr.outvars if isinstance(v, Var)}.difference(kept)
    for eqn in reversed(eqns):
        happens = fx.exchange in eqn.effects or any(isinstance(e, fx.CallbackEffect) for e in eqn.effects)
        if happens or not wanted.isdisjoint(eqn.outvars):
            found.append(eqn)
            wanted.update(v for v in eqn.invars if isinstance(v, Var))
    return found[::-1]


def keep_in_scan(eqn: Eqn, keeps: Callable[[Eqn], bool]) -> Twice | None:
    """A loop that stacks the values kept in each iteration, and a loop that reads them."""
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
    """A `cond` that also returns the kept values of all branches, and a `cond` that passes each branch its own."""
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
