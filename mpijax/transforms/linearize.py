"""Linearization: evaluates a function once and records its derivative as a linear Jaxpr.

Primal operations run in the enclosing trace; operations on tangents are recorded. Primal values that the derivative
needs become constants (residuals) of the linear Jaxpr.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.base.source import inherited, transforming
from mpijax.core.base.state import state
from mpijax.core.programs.jaxpr import ClosedJaxpr, Jaxpr, eval_jaxpr, without_dead_code
from mpijax.core.tracing.checks import checked
from mpijax.core.tracing.jaxpr_trace import JaxprTrace, JitTracer
from mpijax.core.tracing.trace import Trace, current_trace
from mpijax.core.types.typeof import typeof
from mpijax.transforms.dual import DualTrace, DualTracer
from mpijax.transforms.flat import FlatFun
from mpijax.transforms.zeros import Zero, as_array, instantiate


class TangentTrace(Trace):
    """Records operations on tangents in `builder`; runs all other operations in the parent.

    A user's rule may pass primals and tangents to one call, whose results then depend on both. Such a call is split,
    unless `whole`: then the rule of the call itself binds its linear part.
    """

    __slots__ = ("builder", "whole")

    parent: Trace

    def __init__(self, parent: Trace, builder: JaxprTrace):
        super().__init__(parent)
        self.builder = builder
        self.whole = False

    def _is_linear(self, args) -> bool:
        builder = self.builder
        return any(type(x) is JitTracer and x._trace is builder for x in args)

    def records(self, args) -> bool:
        return self._is_linear(args) or self.parent.records(args)

    def process_primitive(self, primitive, args, params):
        if not self._is_linear(args):
            return self.parent.process_primitive(primitive, args, params)
        if primitive.linearize is None or self.whole or all(self._is_linear([x]) for x in args):
            return self.builder.process_primitive(primitive, args, params)
        return self._split(primitive, args, params)

    def _split(self, primitive, args, params):
        """Split a call f(x, t), linear in t, into f(x, 0), which does not depend on t, and its derivative there."""
        linear = [self._is_linear([x]) for x in args]
        zeros = [Zero(typeof(x).to_tangent_aval()) for x in args]
        primals = [instantiate(zero) if now else x for x, zero, now in zip(args, zeros, linear, strict=True)]
        tangents = [x if now else zero for x, zero, now in zip(args, zeros, linear, strict=True)]
        outs, out_tangents = LinearizeTrace(self.parent, self.builder).differentiate(
            primitive, primals, tangents, params
        )
        return [out if type(t) is Zero else t for out, t in zip(outs, out_tangents, strict=True)]

    def process_custom_call(self, call, args):
        if self._is_linear(args):
            return call.fun(*args)
        saved = state.trace
        state.trace = self.parent
        try:
            return self.parent.process_custom_call(call, args)
        finally:
            state.trace = saved


class GradTracer(DualTracer):
    """A primal with its tangent, which is a variable of the linear program."""

    __slots__ = ()

    def _contents(self) -> str:
        return f"primal={self.primal!s}, typeof(tangent)={typeof(self.tangent).str_short(True)}"


class LinearizeTrace(DualTrace):
    """Runs primal operations in the parent and records their derivatives.

    backward: whether these will be transposed, and need not be evaluated.
    """

    __slots__ = ("backward",)
    tracer = GradTracer
    rule_trace: TangentTrace

    def __init__(self, parent: Trace, builder: JaxprTrace, backward: bool = True):
        super().__init__(parent, TangentTrace(parent, builder))
        self.backward = backward

    def differentiate(self, primitive, primals, tangents, params):
        if primitive.linearize is not None:
            return self._linearize(primitive, primals, tangents, params)
        return primitive.jvp(primals, tangents, **params)

    def _linearize(self, primitive, primals, tangents, params):
        saved, state.trace = state.trace, self.rule_trace
        self.rule_trace.whole = True
        try:
            return primitive.linearize(self, primals, tangents, params)
        finally:
            self.rule_trace.whole = False
            state.trace = saved

    def bind_linear(self, primitive, args, params):
        """Record an operation of the linear program even if it reads no tangent: another rank may send it one."""
        with current_trace(self.rule_trace.builder):
            return primitive.bind(*args, **params)


class Linearized:
    """The derivative at a point: a linear Jaxpr of the nonzero tangents, with residuals as constants."""

    __slots__ = ("jaxpr", "residuals", "in_avals", "nonzero_out", "out_avals")

    def __init__(self, jaxpr: Jaxpr, residuals, in_avals, nonzero_out, out_avals):
        self.jaxpr = jaxpr
        self.residuals = residuals
        self.in_avals = in_avals
        self.nonzero_out: list[bool] = nonzero_out
        self.out_avals = out_avals

    def at(self, residuals: Sequence[Any]) -> Linearized:
        """The same linear map with other residuals."""
        return Linearized(self.jaxpr, residuals, self.in_avals, self.nonzero_out, self.out_avals)

    def __call__(self, *tangents: Any) -> list[Any]:
        """Output tangents, instantiated, for all input tangents."""
        live = [t for t, a in zip(tangents, self.in_avals, strict=True) if not a.has_no_tangent]
        outs = iter(eval_jaxpr(self.jaxpr, self.residuals, *live))
        return [
            next(outs) if nz else instantiate(Zero(a)) for nz, a in zip(self.nonzero_out, self.out_avals, strict=True)
        ]


def linearize_flat(fun: Callable, primals: Sequence[Any], backward: bool = True) -> tuple[list[Any], Linearized]:
    """Evaluate `fun` of flat arguments and record its derivative with respect to all inexact ones.

    backward: as of a `LinearizeTrace`.
    """
    parent = state.trace
    builder = JaxprTrace(parent)
    trace = LinearizeTrace(parent, builder, backward)
    in_avals = [typeof(p).to_tangent_aval() for p in primals]
    # Fix the dtype of numbers now, because `fun` may turn 64-bit types on. Returned Python numbers stay numbers.
    values = list(map(as_array, primals)) if parent.recorder() is None else primals
    of_numpy = (np.generic, np.ndarray)
    numbers = {id(v): p for v, p in zip(values, primals, strict=True) if v is not p and not isinstance(p, of_numpy)}
    args = [
        p if a.has_no_tangent else GradTracer(trace, v, builder.new_arg(a))
        for p, v, a in zip(primals, values, in_avals, strict=True)
    ]
    builder.outside = len(inherited.scope)
    state.trace = trace
    try:
        with transforming("jvp"):
            outs = fun(*args)
    finally:
        state.trace = parent
    if isinstance(fun, FlatFun):
        fun.release_aux(trace.primal_of)
    pairs = [trace.pair(o) for o in outs]
    nonzero = [type(t) is not Zero for _, t in pairs]
    jaxpr, residuals = _pruned(*builder.to_jaxpr([t for _, t in pairs if type(t) is not Zero]))
    out_avals = [typeof(p).to_tangent_aval() for p, _ in pairs]
    outs = [numbers.get(id(p), p) for p, _ in pairs]
    return outs, Linearized(jaxpr, residuals, in_avals, nonzero, out_avals)


class LinearizedJaxpr:
    """A Jaxpr split in two: `primal` returns results and residuals, `linear` maps tangents.

    `linear` takes the residuals, then the nonzero tangents. A residual that is an argument of the Jaxpr is not returned
    again: `forwarded[i]` is its position among the arguments.
    """

    __slots__ = ("primal", "linear", "forwarded", "nonzero_out")

    def __init__(self, primal: ClosedJaxpr, linear: ClosedJaxpr, forwarded, nonzero_out):
        self.primal = primal
        self.linear = linear
        self.forwarded: list[int | None] = forwarded
        self.nonzero_out: list[bool] = nonzero_out


@memo_on_jaxpr
def linearize_jaxpr(
    closed: ClosedJaxpr,
    nonzero: tuple[bool, ...],
    wanted: bool | tuple[bool, ...] = False,
    forwardable: bool | tuple[bool, ...] = True,
    backward: bool = True,
) -> LinearizedJaxpr:
    """Split a Jaxpr into its primal part and its derivative with respect to the arguments marked `nonzero`.

    `wanted` says which output tangents the linear part returns even when they are zero, `forwardable`
    which arguments it may take as residuals as they are. `backward`: as of a `LinearizeTrace`.
    """
    outer = JaxprTrace(state.trace, closed.jaxpr.debug_info)
    builder = JaxprTrace(outer, closed.jaxpr.debug_info)
    trace = LinearizeTrace(outer, builder, backward)
    args = [outer.new_arg(a) for a in closed.in_avals]
    allowed = [forwardable] * len(args) if isinstance(forwardable, bool) else forwardable
    position = {id(a): i for i, (a, allow) in enumerate(zip(args, allowed, strict=True)) if allow}
    wrapped = [
        GradTracer(trace, x, builder.new_arg(x.aval.to_tangent_aval())) if nz else x
        for x, nz in zip(args, nonzero, strict=True)
    ]
    saved = state.trace
    state.trace = trace
    try:
        outs = eval_jaxpr(closed.jaxpr, closed.consts, *wrapped)
        pairs = [trace.pair(o) for o in outs]
        force = [wanted] * len(pairs) if isinstance(wanted, bool) else wanted
        state.trace = builder
        pairs = [(p, instantiate(t) if f else t) for (p, t), f in zip(pairs, force, strict=True)]
    finally:
        state.trace = saved
    nonzero_out = [type(t) is not Zero for _, t in pairs]
    linear, residuals = _pruned(*builder.to_jaxpr([t for _, t in pairs if type(t) is not Zero]))
    # Residuals from outside (constants) stay constants of the linear part.
    traced = [isinstance(r, JitTracer) and r._trace is outer for r in residuals]
    forwarded = [position.get(id(r)) for r, t in zip(residuals, traced, strict=True) if t]
    returned = [r for r, t in zip(residuals, traced, strict=True) if t and id(r) not in position]
    constvars = [v for v, t in zip(linear.constvars, traced, strict=True) if not t]
    constvals = [r for r, t in zip(residuals, traced, strict=True) if not t]
    res_vars = [v for v, t in zip(linear.constvars, traced, strict=True) if t]
    linear_jaxpr = checked(linear.replace(constvars=constvars, invars=res_vars + linear.invars))
    outer.refuse_refs()
    primal_jaxpr, primal_consts = _pruned(*outer.to_jaxpr([p for p, _ in pairs] + returned))
    return LinearizedJaxpr(
        ClosedJaxpr(primal_jaxpr, primal_consts), ClosedJaxpr(linear_jaxpr, constvals), forwarded, nonzero_out
    )


def _pruned(jaxpr: Jaxpr, consts: Sequence[Any]) -> tuple[Jaxpr, list[Any]]:
    """Remove equations and constants that no result needs; all arguments stay."""
    kept, consts, _ = without_dead_code(jaxpr, consts)
    return checked(kept.replace(invars=jaxpr.invars)), consts
