"""Forward mode: pairs of values and tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpijax.core import dtypes
from mpijax.core.jaxpr import ClosedJaxpr, eval_jaxpr
from mpijax.core.memo import memo_on_jaxpr
from mpijax.core.trace import Trace, Tracer, state, trace_to_closed_jaxpr, typeof
from mpijax.transforms.zeros import Zero, instantiate


class JVPTracer(Tracer):
    """A value with its tangent."""

    __slots__ = ("primal", "tangent")

    def __init__(self, trace: Trace, primal: Any, tangent: Any):
        self._trace = trace
        self.primal = primal
        self.tangent = tangent

    aval = property(lambda self: typeof(self.primal))

    def concrete(self):
        primal = self.primal
        return primal.concrete() if isinstance(primal, Tracer) else primal

    def _origin_msg(self) -> str:
        return self.primal._origin_msg() if isinstance(self.primal, Tracer) else ""

    def _contents(self) -> str:
        return f"primal={self.primal}, tangent={self.tangent}"


class JVPTrace(Trace):
    """Runs every operation together with its derivative."""

    __slots__ = ()

    def pair(self, x: Any) -> tuple[Any, Any]:
        if type(x) is JVPTracer and x._trace is self:
            return x.primal, x.tangent
        return x, Zero.of_primal(x)

    def process_primitive(self, primitive, args, params):
        pairs = [self.pair(x) for x in args]
        primals = [p for p, _ in pairs]
        tangents = [t for _, t in pairs]
        saved = state.trace
        state.trace = self.parent
        try:
            if all(type(t) is Zero for t in tangents):
                return primitive.bind(*primals, **params)
            out, out_tangent = primitive.jvp(primals, tangents, **params)
        finally:
            state.trace = saved
        if primitive.multiple_results:
            return [self._wrap(p, t) for p, t in zip(out, out_tangent, strict=True)]
        return self._wrap(out, out_tangent)

    def _wrap(self, primal, tangent):
        return primal if type(tangent) is Zero else JVPTracer(self, primal, tangent)

    def _process_custom(self, call, args, run):
        pairs = [self.pair(x) for x in args]
        saved = state.trace
        state.trace = self.parent
        try:
            if all(type(t) is Zero for _, t in pairs):
                return call.bind(*[p for p, _ in pairs])
            outs, tangents = run([p for p, _ in pairs], [t for _, t in pairs])
        finally:
            state.trace = saved
        return [self._wrap(p, t) for p, t in zip(outs, tangents, strict=True)]

    def process_custom_jvp_call(self, call, args):
        return self._process_custom(call, args, call.run_jvp)

    def process_custom_vjp_call(self, call, args):
        return self._process_custom(call, args, call.run_tangent_map)


def jvp_flat(fun: Callable, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Evaluate `fun` of flat arguments with tangents; output tangents may be `Zero`."""
    parent = state.trace
    trace = JVPTrace(parent)
    args = [
        p if type(t) is Zero or typeof(t).dtype == dtypes.float0 else JVPTracer(trace, p, t)
        for p, t in zip(primals, tangents, strict=True)
    ]
    state.trace = trace
    try:
        outs = fun(*args)
    finally:
        state.trace = parent
    pairs = [trace.pair(o) for o in outs]
    return [p for p, _ in pairs], [t for _, t in pairs]


@memo_on_jaxpr
def jvp_jaxpr(closed: ClosedJaxpr, nonzero: tuple[bool, ...], wanted: bool | tuple[bool, ...]):
    """The Jaxpr of the derivative of a Jaxpr.

    It takes all primals, then the tangents of the arguments marked `nonzero`, and
    returns all primals, then the tangents that are not zero.
    Returns it with the list of which output tangents it has. `wanted` says which output
    tangents to instantiate even when they are zero.
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
