"""Programs without types of libraries, made of programs with them: the compiler sees the values they consist of.

An interpreter evaluates the program with values put together of traced parts. An operation of a library computes with
the parts; an operation with a program inside (a loop, a call) becomes one with the lowered program inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from mpijax.core.jaxpr import ClosedJaxpr, eval_jaxpr, map_jaxprs, subjaxprs
from mpijax.core.memo import memo_on_jaxpr
from mpijax.core.trace import Trace, current_trace, state, trace_to_closed_jaxpr, typeof
from mpijax.experimental.hijax.calls import CALLS


class LowerTrace(Trace):
    """Computes with the parts of values, in the parent."""

    __slots__ = ()

    def records(self, args: Any) -> bool:
        return self.parent.records(args)  # type: ignore[union-attr]

    def process_primitive(self, primitive: Any, args: Any, params: dict[str, Any]) -> Any:
        if primitive.is_expanded:
            return primitive.to_lojax(*args, **params)
        if any(typeof(x).is_high for x in args) or any(j.is_high for j in subjaxprs(params)):
            return lowered_call(primitive, args, params)
        with current_trace(self.parent) as parent:  # type: ignore[arg-type]
            return parent.process_primitive(primitive, args, params)

    def process_custom_call(self, call: Any, args: Any) -> Any:
        return call.fun(*args)  # nobody differentiates or vectorizes what the compiler gets


def lower_values(avals: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The values that values of these types consist of."""
    return [part for aval, x in zip(avals, values, strict=True) for part in aval.lower_val(x)]


def raise_values(avals: Sequence[Any], parts: Sequence[Any]) -> list[Any]:
    """The values of these types that consist of `parts`."""
    rest = iter(parts)
    return [aval.raise_val(*islice(rest, len(aval.lo_ty()))) for aval in avals]


def lower_types(avals: Sequence[Any]) -> list[Any]:
    """The types of the values that values of these types consist of."""
    return [part for aval in avals for part in aval.lo_ty()]


@memo_on_jaxpr
def lower_jaxpr(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program on the values that arguments and results consist of."""

    def fun(*parts: Any) -> list[Any]:
        with current_trace(LowerTrace(state.trace)):
            outs = eval_jaxpr(closed.jaxpr, closed.consts, *raise_values(closed.in_avals, parts))
            return lower_values(closed.out_avals, outs)

    return trace_to_closed_jaxpr(fun, lower_types(closed.in_avals), closed.jaxpr.debug_info)


def lowered_call(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Apply an operation with programs inside, in the current trace, to the values that its operands consist of."""
    call = CALLS.get(primitive.key)
    if call is None:
        raise NotImplementedError(
            f"{primitive} with values of types that libraries define is not implemented. Take such values apart "
            "before it."
        )
    avals = [typeof(x) for x in args]
    lowered = {name: map_jaxprs(value, lower_jaxpr) for name, value in params.items()}
    changed = call.changed(params, [len(a.lo_ty()) for a in avals])
    outs = primitive.bind(*lower_values(avals, args), **{**lowered, **changed})
    return raise_values(call.results(params), outs)


def run_high(run: Callable, args: Sequence[Any], jaxpr: ClosedJaxpr, **params: Any) -> list[Any]:
    """`run(*args, jaxpr=jaxpr, ...)`, a call of a program, by the program without types of libraries."""
    changed = CALLS["jit"].changed(params, [len(a.lo_ty()) for a in jaxpr.in_avals])
    outs = run(*lower_values(jaxpr.in_avals, args), jaxpr=lower_jaxpr(jaxpr), **{**params, **changed})
    return raise_values(jaxpr.out_avals, outs)
