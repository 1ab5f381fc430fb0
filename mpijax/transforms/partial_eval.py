"""Partial evaluation: computes what depends on known values only, and records the rest as a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpijax.core.base.state import state
from mpijax.core.programs.debug_info import DebugInfo
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Literal, eval_jaxpr, without_dead_code
from mpijax.core.rules.lowering import InlineJaxpr
from mpijax.core.tracing.jaxpr_trace import JaxprTrace, JitTracer
from mpijax.core.tracing.trace import Trace, current_trace
from mpijax.core.types import effects as fx
from mpijax.core.types.avals import ShapedArray


class PartialVal(tuple):
    """A known value, `(None, value)`, or an unknown value with a known type, `(type, None)`.

    >>> mpijax.interpreters.partial_eval.PartialVal((None, 3.0)).is_known()
    True
    """

    __slots__ = ()

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        return cls((None, const))

    @classmethod
    def unknown(cls, aval: ShapedArray) -> PartialVal:
        return cls((aval, None))

    def is_known(self) -> bool:
        return self[0] is None

    def get_known(self) -> Any:
        """The value; None if it is unknown."""
        return self[1]


class PartialTrace(JaxprTrace):
    """Passes operations on known values to its parent, and records the others."""

    __slots__ = ()

    parent: Trace

    def recorder(self) -> JaxprTrace | None:
        return self.parent.recorder()

    def is_unknown(self, x: Any) -> bool:
        return type(x) is JitTracer and x._trace is self

    def records(self, args) -> bool:
        return any(map(self.is_unknown, args))

    def process_primitive(self, primitive, args, params):
        if not self.records(args):
            with current_trace(self.parent):
                return primitive.bind(*args, **params)
        if isinstance(primitive.lower, InlineJaxpr):  # some results of a call may be known
            inner = params[primitive.lower.param]
            jaxpr, consts = (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())
            return eval_jaxpr(jaxpr, consts, *args)
        outs = super().process_primitive(primitive, args, params)
        return outs if primitive.dce is None else self._with_known_results(self.eqns[-1], args, outs)

    def _with_known_results(self, eqn: Eqn, args: Sequence[Any], outs: list[Any]) -> list[Any]:
        """The results of a recorded loop or branch, with the values of those that need no unknown operand.

        The equation stays as it is: dead code elimination drops what the program does not read.
        """
        if fx.pins(eqn.effects):
            return outs
        value_of = {v: x for v, x in zip(eqn.invars, args, strict=True) if not self.is_unknown(x)}

        def needing_only_known(wanted: list[bool]) -> Eqn | None:
            needed = eqn.primitive.dce(wanted, eqn)
            known = needed is not None and all(type(v) is Literal or v in value_of for v in needed.invars)
            return needed if known else None

        count = len(outs)
        known = [needing_only_known([i == k for i in range(count)]) is not None for k in range(count)]
        needed = needing_only_known(known) if any(known) else None
        if needed is None:
            return outs
        operands = [v.number if type(v) is Literal else value_of[v] for v in needed.invars]
        with current_trace(self.parent):
            values = dict(zip(needed.outvars, needed.primitive.bind(*operands, **needed.params), strict=True))
        return [values[v] if k else out for v, k, out in zip(eqn.outvars, known, outs, strict=True)]

    def process_custom_call(self, call, args):
        with current_trace(self if self.records(args) else self.parent) as trace:
            return call.fun(*args) if trace is self else trace.process_custom_call(call, args)


def partially_evaluate(
    fun: Callable, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool], debug: DebugInfo | None
) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """Run a function of flat arguments as far as they are known.

    instantiate: which known results the program returns nevertheless.

    Returns the program from the unknown arguments to the unknown results, the results, and the values of the program's
    constants.
    """
    trace = PartialTrace(state.trace, debug)
    args = [const if aval is None else trace.new_arg(aval) for aval, const in pvals]
    with current_trace(trace):
        outs = list(fun(*args))
    forced = [instantiate] * len(outs) if isinstance(instantiate, bool) else list(instantiate)
    outs = [trace.lift(o) if f else o for o, f in zip(outs, forced, strict=True)]
    unknown = [o for o in outs if trace.is_unknown(o)]
    jaxpr, consts, used = without_dead_code(*trace.to_jaxpr(unknown))
    del used
    results = [PartialVal.unknown(o.aval) if trace.is_unknown(o) else PartialVal.known(o) for o in outs]
    return jaxpr.replace(invars=trace.invars), results, consts
