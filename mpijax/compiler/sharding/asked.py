"""Propagates shardings from results back to operands: a sharding requested for a result splits the work before it.

A constraint (`with_sharding_constraint`, `out_shardings`) requests a cut of its operand. The walk back through a Jaxpr
turns the request for a result into requests for operands: the cuts with which the operation's own sharding rule yields
that result without messages. So one set of rules serves both directions. Operands that are whole on every rank are then
cut before the operation, which costs nothing, and each rank computes its part only. Operands that are already split
follow the forward rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any

from mpijax.compiler.sharding.blocks import place_in, split_of
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.programs.jaxpr import Jaxpr, Literal
from mpijax.core.rules.default_rules import operands_for, rule_of
from mpijax.core.rules.lowering import ControlFlow, Flow, Reshard, ReshardKind
from mpijax.core.rules.sharding_rules import Operation
from mpijax.core.sharding.cuts import Cuts, count, even_cut, uncut


@dataclass(frozen=True, eq=False)
class Asked:
    """The cuts requested for the operands of a Jaxpr's operations.

    operands: for an equation, by id, the cuts requested for its operands (None without a request).
    """

    mesh: Any
    operands: dict[int, list[Cuts | None]] = field(default_factory=dict)


def asked_of(jaxpr: Jaxpr, shardings: Iterable[Any], mesh_of: Callable[[Any], Any]) -> Asked | None:
    """The cuts that the constraints in a Jaxpr request of its operations; None if there are none.

    shardings: of its constraints. mesh_of: the multi-process mesh of a sharding, or None for a sharding
    that is not propagated.
    """
    mesh = next((m for sharding in shardings if (m := mesh_of(sharding)) is not None), None)
    if mesh is None:
        return None
    found = _Walk(mesh, mesh_of).back(jaxpr)
    return found if found.operands else None


def constraints_in(jaxpr: Jaxpr) -> Iterator[Any]:
    """The shardings of the constraints in a Jaxpr without calls."""
    for eqn in jaxpr.eqns:
        lower = eqn.primitive.lower
        if isinstance(lower, Reshard) and lower.kind is ReshardKind.CONSTRAINT:
            yield eqn.params[lower.param]


class _Walk:
    """Walks backwards through Jaxprs over one mesh."""

    def __init__(self, mesh: Any, mesh_of: Callable[[Any], Any]):
        self.mesh, self.mesh_of = mesh, mesh_of
        self.sizes, self.place = mesh.processes_along, place_in(mesh)

    def back(self, jaxpr: Jaxpr) -> Asked:
        asked = Asked(self.mesh)
        wishes: dict[Any, set[Cuts | None]] = {}

        def ask(v: Any, cuts: Cuts | None, needs_whole: bool) -> None:
            """Record the request of one reader of a variable; cuts is None if it needs the whole array."""
            if type(v) is not Literal and (needs_whole or cuts is not None):
                wishes.setdefault(v, set()).add(cuts)

        def wanted(v: Any) -> Cuts | None:
            """The cut that all readers of a variable request; None if they disagree or one needs the whole array."""
            found = wishes.get(v, set())
            return next(iter(found)) if len(found) == 1 else None

        for v in jaxpr.outvars:
            ask(v, None, True)
        for eqn in reversed(jaxpr.eqns):
            outs, lower = [wanted(v) for v in eqn.outvars], eqn.primitive.lower
            if isinstance(lower, Reshard) and lower.kind is ReshardKind.INSPECT:
                continue
            operands = self._operands(eqn, outs)
            if any(operands) and not isinstance(lower, Reshard):
                asked.operands[id(eqn)] = operands
            for v, cuts in zip(eqn.invars, operands, strict=True):
                ask(v, cuts, rule_of(eqn.primitive) is None or isinstance(lower, ControlFlow))
        return asked

    def _operands(self, eqn: Any, outs: list[Cuts | None]) -> list[Cuts | None]:
        lower = eqn.primitive.lower
        nothing: list[Cuts | None] = [None] * len(eqn.invars)
        if isinstance(lower, Reshard):
            return [self._of_constraint(eqn)] if lower.kind is ReshardKind.CONSTRAINT else nothing
        if isinstance(lower, ControlFlow):
            return _of_carries(eqn, outs)
        rule, wish = rule_of(eqn.primitive), outs[0] if outs else None
        if rule is None or wish is None or any(o != wish for o in outs):
            return nothing
        shapes, results = ([v.aval.shape for v in of] for of in (eqn.invars, eqn.outvars))
        whole = Operation(eqn.params, shapes, results, [uncut(x) for x in shapes], self.sizes, self.place)
        return operands_for(whole, rule, wish) or nothing

    def _of_constraint(self, eqn: Any) -> Cuts | None:
        sharding, shape = eqn.params[eqn.primitive.lower.param], eqn.invars[0].aval.shape
        if self.mesh_of(sharding) != self.mesh:
            return None
        return tuple(
            even_cut(n, axes, count(axes, self.sizes)) if axes and n % count(axes, self.sizes) == 0 else None
            for n, axes in zip(shape, split_of(sharding, len(shape)), strict=True)
        )


def _of_carries(eqn: Any, outs: list[Cuts | None]) -> list[Cuts | None]:
    """Requests for a loop: each carry's first value gets the cut of its last value."""
    kind, p = eqn.primitive.lower.kind, eqn.params
    first = {Flow.SCAN: lambda: p["num_consts"], Flow.WHILE: lambda: p["cond_nconsts"] + p["body_nconsts"]}.get(kind)
    found: list[Cuts | None] = [None] * len(eqn.invars)
    if first is not None:
        n = p["num_carry"] if kind is Flow.SCAN else len(outs)
        found[first() : first() + n] = outs[:n]
    return found
