"""The sharding rule of products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mpijax.core.rules.factors import Factor, FactorKind, FactorRule, free, planned, reduced
from mpijax.core.rules.sharding_rules import Operation, Plan, cost
from mpijax.core.sharding.cuts import Cuts, count, mesh_axes, without
from mpijax.core.sharding.split import entries

_BATCH, _CONTRACTED, _ROWS, _COLUMNS = range(4)
# The orders in which they get mesh axes.
_ORDERS = (
    (_BATCH, _CONTRACTED, _ROWS, _COLUMNS),
    (_BATCH, _ROWS, _CONTRACTED, _COLUMNS),
    (_BATCH, _COLUMNS, _CONTRACTED, _ROWS),
    (_BATCH, _ROWS, _COLUMNS, _CONTRACTED),
)


def _group(f: Factor) -> int:
    if f.kind is FactorKind.REDUCED:
        return _CONTRACTED
    left, right = f.operands
    return _ROWS if right is None else _COLUMNS if left is None else _BATCH


def _factors(s: Operation) -> list[Factor]:
    (lc, rc), (lb, rb) = s.params["dimension_numbers"]
    batch = [free(pair, (k,)) for k, pair in enumerate(zip(lb, rb, strict=True))]
    contracted = [reduced(pair) for pair in zip(lc, rc, strict=True)]
    left = [i for i in range(len(s.shapes[0])) if i not in (*lb, *lc)]
    right = [j for j in range(len(s.shapes[1])) if j not in (*rb, *rc)]
    rows = [free((i, None), (len(lb) + k,)) for k, i in enumerate(left)]
    columns = [free((None, j), (len(lb) + len(left) + k,)) for k, j in enumerate(right)]
    return [*batch, *contracted, *rows, *columns]


def _chosen(s: Operation, factors: Sequence[Factor]) -> Plan:
    """Batch axes stay split. Of contracted axes, rows and columns, the choice that sends the fewest bytes stays split.

    Partial products over split contracted axes are summed over ranks. If one operand is whole, its rows are split
    instead if that halves the bytes.
    """

    def ordered(order: Sequence[int], cuts: Sequence[Cuts]) -> Plan:
        return planned(replace(s, cuts=cuts), sorted(factors, key=lambda f: order.index(_group(f))))

    summed = min((ordered(order, s.cuts) for order in _ORDERS), key=lambda plan: cost(s, plan))
    others = (ordered(_ORDERS[1], cuts) for cuts in _not_contracted(s))
    return min((plan for plan in others if 2 * cost(s, plan) < cost(s, summed)), default=summed, key=partial(cost, s))


def _not_contracted(s: Operation) -> Iterator[Sequence[Cuts]]:
    """Cuts that split the longest row or column axis of a whole operand instead of the contracted axes."""
    contract, batch = s.params["dimension_numbers"]
    split = [c for cuts, dims in zip(s.cuts, contract, strict=True) for d in dims if (c := cuts[d]) is not None]
    if not split:
        return
    axes = tuple(dict.fromkeys(a for c in split for a in c.axes))
    rest = [without(cuts, dims) for cuts, dims in zip(s.cuts, contract, strict=True)]
    for k, shape in enumerate(s.shapes):
        free_axes = [] if any(s.cuts[k]) else [d for d in range(len(shape)) if d not in (*contract[k], *batch[k])]
        at = max(free_axes, key=lambda d: shape[d], default=None)
        taken = set(axes) & set(mesh_axes((*rest[0], *rest[1])))
        if at is not None and shape[at] >= count(axes, s.sizes) and not taken:
            moved = list(rest)
            moved[k] = (*rest[k][:at], s.even(shape[at], axes), *rest[k][at + 1 :])
            yield moved


def _refusal(s: Any, f: Factor) -> str:
    (lc, rc), (lb, rb) = s.params["dimension_numbers"]
    left, right = s.axes(0), s.axes(1)

    def shown(axes: Any, dims: Iterable[int]) -> tuple:
        return entries(tuple(axes[d] for d in dims))

    if f.kind is FactorKind.FREE:
        return (
            "dot_general requires lhs batch dimensions and rhs batch dimensions to have the consistent sharding, "
            f"got {shown(left, lb)} and {shown(right, rb)}."
        )
    if any(left[i] and right[j] and left[i] != right[j] for i, j in zip(lc, rc, strict=True)):
        return (
            "dot_general requires contracting dimensions to have consistent sharding, got "
            f"{shown(left, lc)} and {shown(right, rc)}."
        )
    return (
        "Contracting dimensions are sharded and it is ambiguous how the output should be sharded. Please "
        "specify the output sharding via the `out_sharding` parameter. Got "
        f"lhs_contracting_spec={shown(left, lc)} and rhs_contracting_spec={shown(right, rc)}"
    )


dot_general = FactorRule(_factors, choose=_chosen, refusal=_refusal)
