"""The sharding rule of a primitive, and what it says read from results to operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from mpijax.core.rules.factors import FactorKind, FactorRule, elementwise, finished_over_ranks, whole_along
from mpijax.core.rules.lowering import Combiner, Cumulative, Elementwise, Library, OverRanks, Reduction
from mpijax.core.rules.product_rules import dot_general
from mpijax.core.rules.sharding_rules import Operation, Plan, Rule
from mpijax.core.sharding.cuts import Cut, Cuts, even_cut, uncut

# Reductions that an MPI reduction can finish.
OVER_RANKS = {
    Combiner.ADD: OverRanks.SUM,
    Combiner.MUL: OverRanks.PROD,
    Combiner.MAX: OverRanks.MAX,
    Combiner.MIN: OverRanks.MIN,
    Combiner.AND: OverRanks.BAND,
    Combiner.OR: OverRanks.BOR,
    Combiner.XOR: OverRanks.BXOR,
}
_REDUCTIONS = {op: finished_over_ranks(over_ranks) for op, over_ranks in OVER_RANKS.items()}
# Of an operation that accumulates along an axis.
cumulative = whole_along("axis", "Input should be unsharded over the axis being reduced")


def rule_of(primitive: Any) -> Rule | None:
    """A primitive's own rule, or the rule that follows from its lowering."""
    if primitive.sharding is not None:
        return primitive.sharding
    lower = primitive.lower
    if isinstance(lower, Elementwise):
        return elementwise
    if isinstance(lower, Reduction):
        return _REDUCTIONS[lower.op]
    if isinstance(lower, Cumulative):
        return cumulative
    if isinstance(lower, Library):
        return dot_general
    return None


def operands_for(s: Operation, rule: Rule, wish: Cuts) -> list[Cuts | None] | None:
    """Operand cuts with which the rule yields the requested cut without messages; None if impossible. s: uncut."""
    found = plan_for(s, rule, wish)
    return None if found is None else [c if any(c) else None for c in found[0]]


def plan_for(s: Operation, rule: Rule, wish: Cuts) -> tuple[list[Cuts], Plan] | None:
    """Those operand cuts, and the rule's plan for them."""
    guess = [list(uncut(x)) for x in s.shapes]
    for d, cut in enumerate(wish):
        if cut is not None:
            for k, at in _axes_for(s, rule, cut, d):
                n = s.shapes[k][at]
                guess[k][at] = cut if n == cut.size else even_cut(n, cut.axes, cut.parts)
    cuts = [tuple(c) for c in guess]
    plan = rule(replace(s, cuts=cuts))
    if plan is None or not _sends_nothing(plan, cuts) or tuple(plan.results[0]) != tuple(wish):
        return None
    return cuts, plan


def _axes_for(s: Operation, rule: Rule, cut: Cut, d: int) -> Iterator[tuple[int, int]]:
    """For each operand, its number and the axis that corresponds to axis `d` of the result, if it has one."""
    factors = rule.factors(s) if isinstance(rule, FactorRule) else None
    for k, shape in enumerate(s.shapes):
        if factors is not None:
            axes = [f.operands[k] for f in factors if f.kind is FactorKind.FREE and f.results[0] == d]
        else:
            axes = [at for at, n in enumerate(shape) if n >= cut.parts and _yields(s, rule, k, at, cut, d)]
        found = next((at for at in axes if at is not None and shape[at] >= cut.parts), None)
        if found is not None:
            yield k, found


def _yields(s: Operation, rule: Rule, k: int, at: int, cut: Cut, d: int) -> bool:
    """Whether cutting only axis `at` of operand `k` cuts axis `d` of the result."""
    cuts = [uncut(x) for x in s.shapes]
    cuts[k] = (*cuts[k][:at], even_cut(s.shapes[k][at], cut.axes, cut.parts), *cuts[k][at + 1 :])
    plan = rule(replace(s, cuts=cuts))
    if plan is None or plan.over or plan.program is not None or plan.whole is not None:
        return False
    made = plan.results[0][d]
    return made is not None and made.axes == cut.axes and plan.operands[k] == cuts[k]


def _sends_nothing(plan: Plan, cuts: Sequence[Cuts]) -> bool:
    """Whether the plan keeps the cuts of cut operands and sums nothing over ranks."""
    stays = all(want == have or not any(have) for want, have in zip(plan.operands, cuts, strict=True))
    return stays and not plan.over and plan.program is None and plan.whole is None
