"""Forward mode: propagates pairs of primals and tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.base.state import state
from mpijax.core.programs.jaxpr import ClosedJaxpr, eval_jaxpr
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.trace import Trace
from mpijax.core.types.typeof import typeof
from mpijax.transforms.dual import DualTrace, DualTracer
from mpijax.transforms.flat import FlatFun
from mpijax.transforms.zeros import Zero, as_array, instantiate


class JVPTracer(DualTracer):
    """A primal with its tangent.

    >>> mpijax.jvp(lambda x: print(isinstance(x, mpijax.interpreters.ad.JVPTracer)) or x, (1.0,), (1.0,))[1]
    True
    Array(1., dtype=float32, weak_type=True)
    """

    __slots__ = ()

    def _contents(self) -> str:
        return f"primal={self.primal!s}, tangent={self.tangent!s}"


class JVPTrace(DualTrace):
    """Runs every operation together with its derivative, both in the parent.

    >>> mpijax.jvp(lambda x: print(type(x._trace).__name__) or x, (1.0,), (1.0,))[1]
    JVPTrace
    Array(1., dtype=float32, weak_type=True)
    """

    __slots__ = ()
    tracer = JVPTracer

    def __init__(self, parent: Trace):
        super().__init__(parent, parent)


def jvp_flat(fun: Callable, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Evaluate `fun` of flat arguments with tangents; output tangents may be `Zero`."""
    parent = state.trace
    trace = JVPTrace(parent)
    # Fix the dtype of numbers now: `fun` may turn 64-bit types on.
    value = as_array if parent.recorder() is None else lambda p: p
    args = [
        p if type(t) is Zero or typeof(t).has_no_tangent else JVPTracer(trace, value(p), value(t))
        for p, t in zip(primals, tangents, strict=True)
    ]
    state.trace = trace
    try:
        outs = fun(*args)
    finally:
        state.trace = parent
    if isinstance(fun, FlatFun):
        fun.release_aux(trace.primal_of)
    pairs = [trace.pair(o) for o in outs]
    return [p for p, _ in pairs], [t for _, t in pairs]


@memo_on_jaxpr
def jvp_jaxpr(closed: ClosedJaxpr, nonzero: tuple[bool, ...], wanted: bool | tuple[bool, ...]):
    """The Jaxpr of the derivative of a Jaxpr, and which output tangents it returns.

    It takes all primals, then the tangents of the arguments marked `nonzero`. It returns all primals, then the nonzero
    tangents. `wanted` says which output tangents to return even if they are zero.
    """
    n = len(closed.in_avals)
    nonzero_out: list[bool] = []

    def fun(*args):
        primals, rest = args[:n], iter(args[n:])
        tangents = [
            next(rest) if nz else Zero(a.to_tangent_aval()) for nz, a in zip(nonzero, closed.in_avals, strict=True)
        ]
        outs, out_tangents = jvp_flat(lambda *xs: eval_jaxpr(closed.jaxpr, closed.consts, *xs), primals, tangents)
        force = [wanted] * len(outs) if isinstance(wanted, bool) else wanted
        nonzero_out.extend(f or type(t) is not Zero for f, t in zip(force, out_tangents, strict=True))
        return outs + [instantiate(t) for t, nz in zip(out_tangents, nonzero_out, strict=True) if nz]

    avals = [
        *closed.in_avals,
        *(a.to_tangent_aval() for a, nz in zip(closed.in_avals, nonzero, strict=True) if nz),
    ]
    return trace_to_closed_jaxpr(fun, avals, closed.jaxpr.debug_info), nonzero_out
