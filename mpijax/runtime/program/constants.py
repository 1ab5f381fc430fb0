"""Constants of programs: what a jitted function may close over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpijax._ext.array import ArrayBase
from mpijax.core.jaxpr import ClosedJaxpr, Jaxpr, subjaxprs, without_dead_code
from mpijax.core.trace import typeof


def check_constants(closed: ClosedJaxpr) -> None:
    """Raise RuntimeError if a program reads an array that it closes over and whose shards other processes have.

    JAX refuses it too: a constant is a part of the program, and such an array is an argument.
    """
    if next(_spread(closed), None) is None:
        return
    jaxpr, consts, _ = without_dead_code(closed.jaxpr, closed.consts, (True,) * len(closed.jaxpr.outvars))
    found = next(_spread(ClosedJaxpr(jaxpr, consts)), None)
    if found is not None:
        raise RuntimeError(
            "Closing over jax.Array that spans non-addressable (non process local) devices is not allowed. Please pass "
            f"such arrays as arguments to the function. Got jax.Array: {typeof(found).str_short(False)} laid out as "
            f"{found.sharding}"
        )


def _spread(closed: ClosedJaxpr) -> Iterator[Any]:
    """Constants, also of inner Jaxprs, of which this process does not have the whole."""
    yield from (c for c in closed.consts if isinstance(c, ArrayBase) and not c._is_whole)
    yield from _spread_inside(closed.jaxpr)


def _spread_inside(jaxpr: Jaxpr) -> Iterator[Any]:
    for eqn in jaxpr.eqns:
        for inner in subjaxprs(eqn.params, closed=True):
            yield from _spread(inner) if isinstance(inner, ClosedJaxpr) else _spread_inside(inner)
