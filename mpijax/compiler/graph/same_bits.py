"""Rewrites programs so that sums are bitwise equal on any number of ranks: the option `mpijax_same_bits`.

Each operation that adds floats is replaced by its rule `same_bits`, on whole arrays. All later stages, partitioning
included, then add numbers whose sums are exact.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mpijax.core.base import config
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Literal, Var, map_jaxprs
from mpijax.core.rules.lowering import Decompose, Partitioned
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.trace import named_axes
from mpijax.core.types.avals import NO_AXES, ShapedArray

# Names and sizes of the mesh axes in scope.
Axes = tuple[tuple[Any, int], ...]


def rewritten(closed: ClosedJaxpr) -> ClosedJaxpr | None:
    """The program with sums that do not depend on order; None if it has no sums of floats."""
    return _rewritten(closed, ())


@memo_on_jaxpr
def _rewritten(closed: ClosedJaxpr, axes: Axes) -> ClosedJaxpr | None:
    """The rewritten program; None if nothing changes."""
    work = _Rewriting(axes)
    eqns = [e for eqn in closed.eqns for e in work.of(eqn)]
    if not work.changed:
        return None
    jaxpr = closed.jaxpr
    constvars, consts = [*jaxpr.constvars, *work.constvars], [*closed.consts, *work.consts]
    outvars = [work.atom(v) for v in jaxpr.outvars]
    return ClosedJaxpr(jaxpr.replace(constvars=constvars, eqns=eqns, outvars=outvars), consts)


class _Rewriting:
    """The rewriting of one Jaxpr. atoms: the replacements of results of removed equations."""

    def __init__(self, axes: Axes):
        self.axes = axes
        self.changed = False
        self.constvars: list[Var] = []
        self.consts: list[Any] = []
        self.atoms: dict[Var, Any] = {}

    def atom(self, v: Any) -> Any:
        return v if type(v) is Literal else self.atoms.get(v, v)

    def of(self, eqn: Eqn) -> list[Eqn]:
        """The equations that replace an equation."""
        eqn = eqn.replace(invars=[self.atom(v) for v in eqn.invars])
        rule, lower = eqn.primitive.same_bits, eqn.primitive.lower
        found = None
        if rule is not None:
            with config.enable_x64(True):  # the rules round to float64 grids
                found = self._traced(eqn, rule)
        elif isinstance(lower, Decompose) and _is_numeric(eqn):
            parts = self._traced(eqn, lower.fun)
            found = None if parts is None else _rewritten(parts, self.axes)
        if found is not None:
            self.changed = True
            return self._spliced(eqn, found)
        axes = self.axes
        if isinstance(lower, Partitioned):
            axes = (*axes, *eqn.params["mesh"].shape.items())
        inner = partial(self._inner, axes)
        return [eqn.replace(params={name: map_jaxprs(x, inner) for name, x in eqn.params.items()})]

    def _inner(self, axes: Axes, closed: ClosedJaxpr) -> ClosedJaxpr:
        found = _rewritten(closed, axes)
        self.changed |= found is not None
        return found or closed

    def _traced(self, eqn: Eqn, fun: Any) -> ClosedJaxpr | None:
        """`fun` of the operands as a Jaxpr; None if it returns None."""
        kept = False

        def call(*args: Any) -> list[Any]:
            nonlocal kept
            out = fun(*args, **eqn.params)
            kept = out is None
            return [] if kept else list(out) if eqn.primitive.multiple_results else [out]

        avals = [v.aval.update(split=None, vma=NO_AXES) for v in eqn.invars]
        with named_axes(dict(self.axes)):
            closed = trace_to_closed_jaxpr(call, avals)
        return None if kept else closed

    def _spliced(self, eqn: Eqn, closed: ClosedJaxpr) -> list[Eqn]:
        """The equations of `closed`, applied to the operands of `eqn` and producing its results."""
        inner = closed.jaxpr
        known: dict[Var, Any] = dict(zip(inner.invars, eqn.invars, strict=True))
        for var, value in zip(inner.constvars, closed.consts, strict=True):
            known[var] = Var(var.aval)
            self.constvars.append(known[var])
            self.consts.append(value)
        given = {*inner.invars, *inner.constvars}
        for v, out in zip(inner.outvars, eqn.outvars, strict=True):
            assert (v.aval.shape, v.aval.dtype) == (out.aval.shape, out.aval.dtype), eqn
            if type(v) is Literal or v in given or v in known:
                self.atoms[out] = v if type(v) is Literal else known[v]
            else:
                known[v] = out

        def atom(v: Any) -> Any:
            return v if type(v) is Literal else known[v]

        eqns = []
        for e in inner.eqns:
            for v in e.outvars:
                known.setdefault(v, type(v)(v.aval))
            outvars = [known[v] for v in e.outvars]
            eqns.append(e.replace(invars=[atom(v) for v in e.invars], outvars=outvars, source=eqn.source))
        return eqns


def _is_numeric(eqn: Eqn) -> bool:
    """Whether an equation may add floats."""
    return any(isinstance(v.aval, ShapedArray) and v.aval.size > 1 for v in eqn.invars)

