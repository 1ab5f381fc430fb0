"""Checks control flow inside `shard_map` whose predicate differs between ranks.

If a predicate varies over a mesh axis, ranks take different paths. All results then vary over the axis
too. No communication over the axis is allowed on the paths: some ranks would wait for others forever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Jaxpr, eval_jaxpr, nested_jaxprs, subjaxprs
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.types import effects as fx
from mpijax.core.types.typeof import typeof


def vary(x: Any, axes: frozenset) -> Any:
    """`x`, typed as varying over `axes` as well."""
    missing = axes - typeof(x).vma
    return registry["pvary"].bind(x, axes=tuple(sorted(missing, key=str))) if missing else x


def vary_jaxpr(closed: ClosedJaxpr, in_axes: Sequence[frozenset], out_axes: Sequence[frozenset]) -> ClosedJaxpr:
    """`closed` with arguments that vary over `in_axes` as well, and results that vary over `out_axes` as well."""
    typed = zip((*closed.in_avals, *closed.out_avals), (*in_axes, *out_axes), strict=True)
    return closed if all(axes <= a.vma for a, axes in typed) else _vary_jaxpr(closed, tuple(in_axes), tuple(out_axes))


@memo_on_jaxpr
def _vary_jaxpr(closed: ClosedJaxpr, in_axes: tuple[frozenset, ...], out_axes: tuple[frozenset, ...]) -> ClosedJaxpr:
    def fun(*args):
        outs = eval_jaxpr(closed.jaxpr, closed.consts, *args)
        return [vary(x, axes) for x, axes in zip(outs, out_axes, strict=True)]

    avals = [a.update(vma=a.vma | axes) for a, axes in zip(closed.in_avals, in_axes, strict=True)]
    return trace_to_closed_jaxpr(fun, avals, closed.jaxpr.debug_info)


def decided_over(jaxpr: Jaxpr) -> frozenset:
    """The mesh axes over which a predicate of a `cond` varies, also in inner Jaxprs."""
    eqns = (eqn for inner in nested_jaxprs(jaxpr) for eqn in inner.eqns)
    return frozenset().union(*(e.invars[0].aval.vma for e in eqns if e.primitive is registry["cond"]))


def communicating(jaxpr: Jaxpr, axes: frozenset) -> Eqn | None:
    """The first equation, also in inner Jaxprs, that communicates over one of `axes`; None if there is none."""
    for eqn in jaxpr.eqns:
        inner = list(subjaxprs(eqn.params))
        found = next((e for e in (communicating(j, axes) for j in inner) if e is not None), None)
        if found is not None:
            return found
        named = any(isinstance(e, fx.NamedAxisEffect) and e.name in axes for e in eqn.effects)
        if not inner and named and fx.communication in eqn.effects:
            return eqn
    return None


def refuse_communication(decision: str, part: str, axes: frozenset, jaxprs: Iterable[ClosedJaxpr]) -> None:
    """Raise ValueError if a part that ranks may skip communicates over `axes`.

    `decision` is what varies over `axes` (the predicate of cond ...), `part` is what depends on it (a branch ...).
    """
    for closed in jaxprs:
        eqn = communicating(closed.jaxpr, axes)
        if eqn is None:
            continue
        over = sorted(str(e.name) for e in eqn.effects if isinstance(e, fx.NamedAxisEffect) and e.name in axes)
        names = ", ".join(map(repr, over))
        raise ValueError(
            f"{decision} varies over the mesh axis {names}, but {part} communicates over it ({eqn.primitive} at "
            f"{eqn.source}): ranks that decide differently would deadlock. Reduce the predicate over {names}, so that "
            "all ranks decide alike (for example lax.pmax(predicate.astype(int), axis) > 0). Or communicate outside, "
            "and choose between the results with jnp.where."
        )
