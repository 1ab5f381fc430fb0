"""Control flow inside `shard_map`: what ranks decide differently, and what they may do then.

A predicate that varies over a mesh axis lets ranks go different ways. Whatever comes out varies over the
axis too, and nobody may communicate over it on the way: some ranks would wait for others that never come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mpijax.core import effects as fx
from mpijax.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr, eval_jaxpr, nested_jaxprs, subjaxprs
from mpijax.core.memo import memo_on_jaxpr
from mpijax.core.registry import registry
from mpijax.core.trace import trace_to_closed_jaxpr, typeof


def vary(x: Any, axes: frozenset) -> Any:
    """`x`, typed as varying over `axes` besides those over which it varies."""
    missing = axes - typeof(x).vma
    return registry["pvary"].bind(x, axes=tuple(sorted(missing, key=str))) if missing else x


def vary_jaxpr(closed: ClosedJaxpr, in_axes: Sequence[frozenset], out_axes: Sequence[frozenset]) -> ClosedJaxpr:
    """`closed` for arguments that vary over `in_axes` besides, with results that vary over `out_axes` besides."""
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
    """The first equation, also of inner Jaxprs, that exchanges data over one of `axes`; None if there is none."""
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
    """Raise ValueError if ranks that decide differently communicate in what they decide on.

    `decision` is what varies over `axes` (the predicate of cond ...), `part` what depends on it (a branch ...).
    """
    for closed in jaxprs:
        eqn = communicating(closed.jaxpr, axes)
        if eqn is None:
            continue
        over = sorted(str(e.name) for e in eqn.effects if isinstance(e, fx.NamedAxisEffect) and e.name in axes)
        names = ", ".join(map(repr, over))
        raise ValueError(
            f"{decision} varies over the mesh axis {names}, while {part} communicates over it "
            f"({eqn.primitive} at {eqn.source}): ranks that decide differently would wait for each other "
            f"forever. Let all ranks decide alike, by reducing the predicate over {names} "
            "(lax.pmax(predicate.astype(int), axis) > 0, say), or communicate before or after and choose "
            "between the results with jnp.where."
        )
