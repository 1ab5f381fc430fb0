"""Propagation from results back to operands: what a program names at its end decides how it computes what is whole.

A constraint (`with_sharding_constraint`, `out_shardings`) asks for a cut of its operand. Walking back through a Jaxpr,
an operation whose result is asked for asks its operands for the cuts by which its own sharding rule yields that result
and sends nothing. So there is one set of rules, read in both directions. Each operand that is whole is then cut before
the operation, which costs nothing, and every rank computes its part only. What is split already goes by the forward
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from typing import Any

from mpijax.compiler.sharding.blocks import place_in, split_of
from mpijax.core.jaxpr import Jaxpr, Literal
from mpijax.core.lazy_dataclass import dataclass
from mpijax.core.lowering import ControlFlow, Flow, Layout
from mpijax.core.sharding.cuts import Cut, Cuts, count, even_cut, uncut
from mpijax.core.sharding.rules import Operation, Plan, Rule, rule_of


@dataclass
class Asked:
    """What operations of a Jaxpr are asked to do.

    operands: for an equation, by id, the cuts of its operands (None for those of which nothing is asked).
    """

    mesh: Any
    operands: dict[int, list[Cuts | None]] = field(default_factory=dict)


def asked_of(jaxpr: Jaxpr, layouts: Iterable[Any], mesh_of: Callable[[Any], Any]) -> Asked | None:
    """What the constraints in a Jaxpr ask of its operations; None where there are none.

    layouts: those of its constraints. mesh_of: the mesh of devices of several processes that a sharding is over, or
    None for one that is left alone.
    """
    mesh = next((m for layout in layouts if (m := mesh_of(layout)) is not None), None)
    if mesh is None:
        return None
    found = _Walk(mesh, mesh_of).back(jaxpr)
    return found if found.operands else None


def constraints_in(jaxpr: Jaxpr) -> Iterator[Any]:
    """The shardings of the constraints in a Jaxpr without calls."""
    for eqn in jaxpr.eqns:
        lower = eqn.primitive.lower
        if isinstance(lower, Layout) and lower.kind == "constraint":
            yield eqn.params[lower.param]


class _Walk:
    """Goes back through Jaxprs over one mesh."""

    def __init__(self, mesh: Any, mesh_of: Callable[[Any], Any]):
        self.mesh, self.mesh_of = mesh, mesh_of
        self.sizes, self.place = mesh.processes_along, place_in(mesh)

    def back(self, jaxpr: Jaxpr) -> Asked:
        asked = Asked(self.mesh)
        wishes: dict[Any, set[Cuts | None]] = {}

        def ask(v: Any, cuts: Cuts | None, needs_whole: bool) -> None:
            """Note what one reader of a variable asks for; None if it needs all of it."""
            if type(v) is not Literal and (needs_whole or cuts is not None):
                wishes.setdefault(v, set()).add(cuts)

        def wanted(v: Any) -> Cuts | None:
            """What those that read a variable ask for, if they agree, and if none needs all of it."""
            found = wishes.get(v, set())
            return next(iter(found)) if len(found) == 1 else None

        for v in jaxpr.outvars:
            ask(v, None, True)
        for eqn in reversed(jaxpr.eqns):
            outs, lower = [wanted(v) for v in eqn.outvars], eqn.primitive.lower
            if isinstance(lower, Layout) and lower.kind == "inspect":
                continue
            operands = self._operands(eqn, outs)
            if any(operands) and not isinstance(lower, Layout):
                asked.operands[id(eqn)] = operands
            for v, cuts in zip(eqn.invars, operands, strict=True):
                ask(v, cuts, rule_of(eqn.primitive) is None)
        return asked

    def _operands(self, eqn: Any, outs: list[Cuts | None]) -> list[Cuts | None]:
        lower = eqn.primitive.lower
        nothing: list[Cuts | None] = [None] * len(eqn.invars)
        if isinstance(lower, Layout):
            return [self._of_constraint(eqn)] if lower.kind == "constraint" else nothing
        if isinstance(lower, ControlFlow):
            return _of_carries(eqn, outs)
        rule, wish = rule_of(eqn.primitive), outs[0] if outs else None
        if rule is None or wish is None or any(o != wish for o in outs):
            return nothing
        shapes, results = ([v.aval.shape for v in of] for of in (eqn.invars, eqn.outvars))
        whole = Operation(eqn.params, shapes, results, [uncut(x) for x in shapes], self.sizes, self.place)
        return operands_for(whole, rule, wish) or nothing

    def _of_constraint(self, eqn: Any) -> Cuts | None:
        layout, shape = eqn.params[eqn.primitive.lower.param], eqn.invars[0].aval.shape
        if self.mesh_of(layout) != self.mesh:
            return None
        return tuple(
            even_cut(n, axes, count(axes, self.sizes)) if axes and n % count(axes, self.sizes) == 0 else None
            for n, axes in zip(shape, split_of(layout, len(shape)), strict=True)
        )


def operands_for(s: Operation, rule: Rule, wish: Cuts) -> list[Cuts | None] | None:
    """Cuts of operands by which the rule yields a result cut as wished, nothing being sent. s: with whole operands."""
    guess = [list(uncut(x)) for x in s.shapes]
    for d, cut in enumerate(wish):
        if cut is None:
            continue
        for k, shape in enumerate(s.shapes):
            for at, n in enumerate(shape):
                if n >= cut.parts and _yields(s, rule, k, at, cut, d):
                    guess[k][at] = even_cut(n, cut.axes, cut.parts)
                    break
    cuts = [tuple(c) for c in guess]
    plan = rule(replace(s, cuts=cuts))
    if plan is None or not _sends_nothing(plan, cuts) or tuple(plan.results[0]) != tuple(wish):
        return None
    return [c if any(c) else None for c in cuts]


def _yields(s: Operation, rule: Rule, k: int, at: int, cut: Cut, d: int) -> bool:
    """Whether cutting axis `at` of operand `k` alone cuts axis `d` of the result."""
    cuts = [uncut(x) for x in s.shapes]
    cuts[k] = (*cuts[k][:at], even_cut(s.shapes[k][at], cut.axes, cut.parts), *cuts[k][at + 1 :])
    plan = rule(replace(s, cuts=cuts))
    if plan is None or plan.over or plan.program is not None or plan.whole is not None:
        return False
    made = plan.results[0][d]
    return made is not None and made.axes == cut.axes and plan.operands[k] == cuts[k]


def _sends_nothing(plan: Plan, cuts: list[Cuts]) -> bool:
    """Whether operands that are cut stay as they are, and nothing is summed over ranks."""
    stays = all(want == have or not any(have) for want, have in zip(plan.operands, cuts, strict=True))
    return stays and not plan.over and plan.program is None and plan.whole is None


def _of_carries(eqn: Any, outs: list[Cuts | None]) -> list[Cuts | None]:
    """A loop carries what it returns: its first value is cut as its last one."""
    kind, p = eqn.primitive.lower.kind, eqn.params
    first = {Flow.SCAN: lambda: p["num_consts"], Flow.WHILE: lambda: p["cond_nconsts"] + p["body_nconsts"]}.get(kind)
    found: list[Cuts | None] = [None] * len(eqn.invars)
    if first is not None:
        n = p["num_carry"] if kind is Flow.SCAN else len(outs)
        found[first() : first() + n] = outs[:n]
    return found
