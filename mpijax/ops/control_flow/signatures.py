"""Changes arguments and results of bodies: shared constants, unused results, forwarded arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import ClosedJaxpr, Literal, Var, without_dead_code
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.control_flow.common import chosen


def any_of(rows: Iterable[Sequence[bool]]) -> tuple[bool, ...]:
    """For each position, whether any row is true there."""
    return tuple(map(any, zip(*rows, strict=True)))


def forwarded(closed: ClosedJaxpr) -> list[int | None]:
    """For each result the argument it equals; None if it is computed."""
    position = {v: i for i, v in enumerate(closed.jaxpr.invars)}
    return [None if type(v) is Literal else position.get(v) for v in closed.jaxpr.outvars]


@memo_on_jaxpr
def with_outputs(closed: ClosedJaxpr, keep: tuple[bool, ...]) -> ClosedJaxpr:
    """Keeps only the results marked `keep`; removes no equations."""
    return closed.replace(jaxpr=closed.jaxpr.replace(outvars=chosen(closed.jaxpr.outvars, keep)))


@memo_on_jaxpr
def with_inputs(closed: ClosedJaxpr, keep: tuple[bool, ...]) -> ClosedJaxpr:
    """Removes the arguments not marked `keep`, which nothing reads."""
    return closed.replace(jaxpr=closed.jaxpr.replace(invars=chosen(closed.jaxpr.invars, keep)))


@memo_on_jaxpr
def inputs_first(closed: ClosedJaxpr, first: tuple[bool, ...]) -> ClosedJaxpr:
    """Moves the arguments marked `first` before the others."""
    invars = closed.jaxpr.invars
    return closed.replace(
        jaxpr=closed.jaxpr.replace(invars=chosen(invars, first) + chosen(invars, [not f for f in first]))
    )


@memo_on_jaxpr
def pruned(closed: ClosedJaxpr, used: tuple[bool, ...]) -> tuple[ClosedJaxpr, list[bool]]:
    """Keeps only equations that the results marked `used` need, and all arguments. Also flags the arguments read."""
    jaxpr, consts, reads = without_dead_code(closed.jaxpr, closed.consts, used)
    return ClosedJaxpr(jaxpr.replace(invars=closed.jaxpr.invars), consts), reads


def join_consts(bodies: Sequence[tuple[ClosedJaxpr, Sequence[Any]]]) -> tuple[list[ClosedJaxpr], list[Any]]:
    """Bodies that each take their own constants first, changed to take the same constants, each constant once."""
    place: dict[int, int] = {}
    consts: list[Any] = []
    for _, own in bodies:
        for c in own:
            if id(c) not in place:
                place[id(c)] = len(consts)
                consts.append(c)
    avals = tuple(typeof(c) for c in consts)
    places = [tuple(place[id(c)] for c in own) for _, own in bodies]
    as_they_are = tuple(range(len(consts)))
    return [
        closed if own == as_they_are else _take_consts(closed, own, avals)
        for (closed, _), own in zip(bodies, places, strict=True)
    ], consts


@memo_on_jaxpr
def _take_consts(closed: ClosedJaxpr, places: tuple[int, ...], avals: tuple[ShapedArray, ...]) -> ClosedJaxpr:
    """`closed`, whose constants are at `places`, changed to take values of all `avals` as constants."""
    count = len(places)
    invars = spread(closed.jaxpr.invars[:count], places, avals) + closed.jaxpr.invars[count:]
    return closed.replace(jaxpr=closed.jaxpr.replace(invars=invars))


def spread(variables: Sequence[Var], places: Sequence[int], avals: Sequence[ShapedArray]) -> list[Var]:
    """A variable for each of `avals`: the given variables at their places, new ones elsewhere."""
    row = [Var(a) for a in avals]
    for place, var in zip(places, variables, strict=True):
        row[place] = var
    return row
