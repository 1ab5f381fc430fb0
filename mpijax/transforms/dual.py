"""Shared parts of forward mode and linearization: tracers with a primal and a tangent, and their trace."""

from __future__ import annotations

from typing import Any

from mpijax.core.base.state import state
from mpijax.core.tracing.trace import Trace
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.types.effects import everywhere
from mpijax.core.types.typeof import typeof
from mpijax.transforms.zeros import Zero


class PrimalTracer(Tracer):
    """A tracer that wraps a primal together with other data, such as a tangent."""

    __slots__ = ("primal",)
    primal: Any

    aval = property(lambda self: typeof(self.primal))

    def concrete(self):
        primal = self.primal
        return primal.concrete() if isinstance(primal, Tracer) else primal

    def _origin_msg(self) -> str:
        return self.primal._origin_msg() if isinstance(self.primal, Tracer) else ""


class DualTracer(PrimalTracer):
    """A primal and its tangent."""

    __slots__ = ("tangent",)

    def __init__(self, trace: Trace, primal: Any, tangent: Any):
        self._trace = trace
        self.primal = primal
        self.tangent = tangent


class DualTrace(Trace):
    """Runs every operation together with its derivative, unless its tangents are zero on all ranks."""

    __slots__ = ("rule_trace",)
    tracer: type[DualTracer]

    def __init__(self, parent: Trace, rule_trace: Trace):
        super().__init__(parent)
        self.rule_trace = rule_trace

    def pair(self, x: Any) -> tuple[Any, Any]:
        """Primal and tangent of x; the tangent is a `Zero` if x is not a tracer of this trace."""
        if type(x) is self.tracer and x._trace is self:
            return x.primal, x.tangent
        if hasattr(type(x), "__jax_array__") and not typeof(x).is_high:
            return self.pair(x.__jax_array__())  # may be a tracer of this trace
        return x, Zero.of_primal(x)

    def primal_of(self, x: Any) -> Any:
        """The primal of x if x is a tracer of this trace; anything else unchanged."""
        return x.primal if type(x) is self.tracer and x._trace is self else x

    def wrap(self, primal: Any, tangent: Any) -> Any:
        return primal if type(tangent) is Zero else self.tracer(self, primal, tangent)

    def differentiate(self, primitive, primals, tangents, params) -> tuple[Any, Any]:
        """Result(s) and tangent(s) of one operation, computed in `rule_trace`."""
        return primitive.jvp(primals, tangents, **params)

    def process_primitive(self, primitive, args, params):
        pairs = [self.pair(x) for x in args]
        primals = [p for p, _ in pairs]
        tangents = [t for _, t in pairs]
        saved = state.trace
        try:
            if all(type(t) is Zero for t in tangents) and not everywhere(primitive, params):
                state.trace = self.parent
                return primitive.bind(*primals, **params)
            state.trace = self.rule_trace
            out, out_tangent = self.differentiate(primitive, primals, tangents, params)
        finally:
            state.trace = saved
        if primitive.multiple_results:
            return [self.wrap(p, t) for p, t in zip(out, out_tangent, strict=True)]
        return self.wrap(out, out_tangent)

    def without_derivative(self, value):
        return self.parent.without_derivative(self.primal_of(value))

    def write_ref(self, ref, value):
        primal, tangent = self.pair(value)
        if type(tangent) is not Zero and ref.aval.kind is None:
            raise ValueError(
                "performing a set/swap operation with a differentiated value on a non-differentiated array reference "
                f"of type {ref.aval}. Move the array reference into the differentiated function, or write "
                "jax.lax.stop_gradient(value)."
            )
        ref.write_in(self.parent, primal)

    def process_custom_call(self, call, args):
        """Runs the rule of a call with a user-defined derivative, instead of its operations."""
        pairs = [self.pair(x) for x in args]
        primals = [p for p, _ in pairs]
        tangents = [t for _, t in pairs]
        saved = state.trace
        try:
            if all(type(t) is Zero for t in tangents):
                state.trace = self.parent
                return call.bind(*primals)
            state.trace = self.rule_trace
            outs, out_tangents = call.differentiate(primals, tangents)
        finally:
            state.trace = saved
        return [self.wrap(p, t) for p, t in zip(outs, out_tangents, strict=True)]
