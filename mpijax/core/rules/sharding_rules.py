"""Sharding rules: how ranks compute an operation on sharded arrays.

A primitive has one rule (its slot `sharding`). The rule receives the global shapes and the cuts of the operands. It
returns a `Plan`: the cuts the operands must have, the cuts of the results, and the operation each rank runs on its
parts. The partitioner then moves the operands, halos included. An operation without a rule needs whole operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import Combiner, Cumulative, Elementwise, Library, OverRanks, Reduction
from mpijax.core.sharding.cuts import (
    Cut,
    Cuts,
    Span,
    count,
    dropped,
    even_cut,
    mesh_axes,
    middle,
    part_number,
    uncut,
    without,
)

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
# The primitives that combine elements of one rank in the same way.
ON_ONE_RANK = {OverRanks.SUM: "reduce_sum", OverRanks.MAX: "reduce_max", OverRanks.MIN: "reduce_min"}


@dataclass(frozen=True)
class Operation:
    """The operation that a rule receives.

    shapes, results: global shapes of operands and results. cuts: how each operand is cut.
    sizes: the number of ranks along each mesh axis. place: this rank's coordinate along each.
    origins: for an operand that is a slice of an array, the cuts of that array (else None).
    numeric: whether ranks can add elements of the operands; False for PRNG keys.
    """

    params: Mapping[str, Any]
    shapes: Sequence[tuple[int, ...]]
    results: Sequence[tuple[int, ...]]
    cuts: Sequence[Cuts]
    sizes: Mapping[Any, int]
    place: Mapping[Any, int]
    origins: Sequence[Cuts | None] = ()
    numeric: bool = True

    def span(self, cut: Cut) -> Span:
        """This rank's part of a cut."""
        return cut.part(part_number(cut.axes, self.sizes, self.place))

    def local(self, shape: Sequence[int], cuts: Cuts) -> tuple[int, ...]:
        """The shape of this rank's part."""
        spans = [(0, n) if c is None else self.span(c) for n, c in zip(shape, cuts, strict=True)]
        return tuple(high - low for low, high in spans)

    def even(self, size: int, axes: tuple[Any, ...]) -> Cut:
        return even_cut(size, axes, count(axes, self.sizes))


@dataclass(frozen=True)
class Plan:
    """The result of a rule.

    operands: the cuts that operands must have; their spans may overlap. results: the cuts of the results.
    params: the parameters of this rank's operation. over: mesh axes over which `op` then reduces its result: a
    member of `OverRanks`, or its name in MPI.
    program: replaces the operation by a function of this rank's parts, which may communicate.
    whole: replaces all of the above by a function of whole arrays; each of its operations gets its own plan.
    plain: the plan that `program` replaces: it gathers an operand that the program never has as a whole.
    """

    operands: Sequence[Cuts]
    results: Sequence[Cuts]
    params: Mapping[str, Any]
    over: tuple[Any, ...] = ()
    op: OverRanks = OverRanks.SUM
    program: Callable[..., Any] | None = field(default=None, compare=False)
    whole: Callable[..., Any] | None = field(default=None, compare=False)
    plain: Plan | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if type(self.op) is not OverRanks:
            object.__setattr__(self, "op", OverRanks(self.op))


Rule = Callable[[Operation], Plan | None]


def rule_of(primitive: Any) -> Rule | None:
    """A primitive's own rule, or the rule that follows from its lowering."""
    if primitive.sharding is not None:
        return primitive.sharding
    lower = primitive.lower
    if isinstance(lower, Elementwise):
        return elementwise
    if isinstance(lower, Reduction):
        return finished_over_ranks(OVER_RANKS[lower.op])
    if isinstance(lower, Cumulative):
        return cumulative
    if isinstance(lower, Library):
        return dot_general
    return None


# ---------------------------------------------------------------- choosing cuts


def chosen(candidates: Iterable[Cut | None], used: set[Any]) -> Cut | None:
    """One cut of an axis for operands read together, over the mesh axes of the first candidate whose axes are unused.

    Adds those mesh axes to `used`.
    """
    free = [c for c in candidates if c is not None and not used & set(c.axes)]
    if not free:
        return None
    used.update(free[0].axes)
    return balanced(middle([c for c in free if c.axes == free[0].axes]))


def balanced(cut: Cut) -> Cut:
    """The same cut, or a cut into equal blocks if some rank has much more than its share."""
    size = cut.size
    if size < 2 * cut.parts or cut.widest <= 1.25 * -(-size // cut.parts) + 1:
        return cut
    return even_cut(size, cut.axes, cut.parts)


def agreed(
    shapes: Sequence[Sequence[int]], cuts: Sequence[Cuts], out_shape: Sequence[int], origins: Sequence[Any] = ()
) -> Cuts:
    """One cut of each axis for operands that are read element by element.

    Computed values decide the cut. Slices adapt to it: they read the missing positions as a halo of their source array.
    """
    used: set[Any] = set()
    operands = list(zip(shapes, cuts, origins or (None,) * len(shapes), strict=True))
    operands.sort(key=lambda operand: operand[2] is not None)
    return tuple(
        chosen((c[d] for shape, c, _ in operands if len(shape) > d and shape[d] == n), used)
        for d, n in enumerate(out_shape)
    )


def moved_off(s: Operation, shape: Sequence[int], cuts: Cuts, dims: Iterable[int]) -> Cuts | None:
    """Cuts that leave the axes `dims` whole, and cut other axes instead. Each move costs one alltoall.

    None if no other axis has an element for each part.
    """
    whole, out = set(dims), list(cuts)
    for d in sorted(whole):
        cut, out[d] = out[d], None
        if cut is not None:
            target = _taking(s, shape, out, cut, whole)
            if target is None:
                return None
            own = out[target]
            out[target] = s.even(shape[target], (*(own.axes if own is not None else ()), *cut.axes))
    return tuple(out)


def _taking(s: Operation, shape: Sequence[int], cuts: Sequence[Cut | None], cut: Cut, whole: set[int]) -> int | None:
    """The array axis to cut instead of another. Prefers an axis that is whole so far and gives equal blocks."""
    found = []
    for d, (n, own) in enumerate(zip(shape, cuts, strict=True)):
        parts = cut.parts * (1 if own is None else own.parts)
        if d not in whole and n >= parts and (own is None or n % parts == 0):
            idle = -(-n // parts) * parts / n - 1
            found.append((idle > 0.25, own is not None, idle, -n, d))
    return min(found)[-1] if found else None


def same(s: Operation, cuts: Cuts) -> Plan:
    """The plan for operands and results of one shape, all cut alike."""
    return Plan([cuts] * len(s.shapes), [cuts] * len(s.results), s.params)


# ---------------------------------------------------------------- element by element, reductions


def elementwise(s: Operation) -> Plan | None:
    shape = s.results[0]
    if any(o != shape for o in s.results) or any(len(i) not in (0, len(shape)) for i in s.shapes):
        return None
    cuts = agreed(s.shapes, s.cuts, shape, s.origins)
    operands = [
        tuple(c if n == m else None for n, m, c in zip(i, shape, cuts, strict=True)) if i else () for i in s.shapes
    ]
    return Plan(operands, [cuts] * len(s.results), s.params)


def finished_over_ranks(op: str) -> Rule:
    """Each rank reduces its part; an MPI reduction combines the partial results over the mesh axes that split them.

    op: a member of `OverRanks`, or its name in MPI.
    """
    operation = OverRanks(op)

    def rule(s: Operation) -> Plan:
        [cuts], gone = s.cuts, set(s.params["axes"])
        over = tuple(a for d in sorted(gone) if cuts[d] is not None for a in cuts[d].axes)
        return Plan([cuts], [dropped(cuts, gone)], s.params, over, operation)

    return rule


def cumulative(s: Operation) -> Plan:
    return same(s, without(s.cuts[0], {s.params["axis"] % len(s.shapes[0])}))


# ---------------------------------------------------------------- products


def dot_general(s: Operation) -> Plan:
    """Batch axes stay split. Of contracted axes, rows and columns, the choice that sends the fewest bytes stays split.

    Partial products over split contracted axes are summed over ranks. If one operand is whole, its rows are split
    instead if that halves the bytes.
    """
    orders = ("contracted", "rows", "columns"), ("rows", "contracted", "columns"), ("columns", "contracted", "rows"), (
        "rows", "columns", "contracted"
    )  # fmt: skip
    summed = min((_product(s, order, *s.cuts) for order in orders), key=lambda plan: cost(s, plan))
    others = (_product(s, orders[1], *cuts) for cuts in _not_contracted(s))
    return min((plan for plan in others if 2 * cost(s, plan) < cost(s, summed)), default=summed, key=partial(cost, s))


def _not_contracted(s: Operation) -> Iterable[tuple[Cuts, Cuts]]:
    """Cuts that split the longest row or column axis of a whole operand instead of the contracted axes."""
    contract, batch = s.params["dimension_numbers"]
    split = [c for cuts, dims in zip(s.cuts, contract, strict=True) for d in dims if (c := cuts[d]) is not None]
    if not split:
        return
    axes = tuple(dict.fromkeys(a for c in split for a in c.axes))
    rest = [without(cuts, dims) for cuts, dims in zip(s.cuts, contract, strict=True)]
    for k, shape in enumerate(s.shapes):
        free = [] if any(s.cuts[k]) else [d for d in range(len(shape)) if d not in (*contract[k], *batch[k])]
        at = max(free, key=lambda d: shape[d], default=None)
        taken = set(axes) & set(mesh_axes((*rest[0], *rest[1])))
        if at is not None and shape[at] >= count(axes, s.sizes) and not taken:
            moved = list(rest)
            moved[k] = (*rest[k][:at], s.even(shape[at], axes), *rest[k][at + 1 :])
            yield moved[0], moved[1]


def _product(s: Operation, order: Sequence[str], left: Cuts, right: Cuts) -> Plan:
    """A plan that assigns mesh axes to kinds of array axes in this order."""
    (lc, rc), (lb, rb) = s.params["dimension_numbers"]
    used: set[Any] = set()
    batch = [chosen((left[i], right[j]), used) for i, j in zip(lb, rb, strict=True)]
    contracted: list[Cut | None] = [None] * len(lc)
    rows: list[Cut | None] = [None] * len(left)
    columns: list[Cut | None] = [None] * len(right)
    for kind in order:
        if kind == "contracted":
            contracted = [chosen((left[i], right[j]), used) for i, j in zip(lc, rc, strict=True)]
        elif kind == "rows":
            rows = [chosen((left[i],), used) if i not in (*lb, *lc) else None for i in range(len(left))]
        else:
            columns = [chosen((right[j],), used) if j not in (*rb, *rc) else None for j in range(len(right))]
    for i, cut in zip((*lb, *lc), (*batch, *contracted), strict=True):
        rows[i] = cut
    for j, cut in zip((*rb, *rc), (*batch, *contracted), strict=True):
        columns[j] = cut
    free = [rows[i] for i in range(len(left)) if i not in (*lb, *lc)]
    free += [columns[j] for j in range(len(right)) if j not in (*rb, *rc)]
    over = tuple(a for cut in contracted if cut is not None for a in cut.axes)
    return Plan([tuple(rows), tuple(columns)], [(*batch, *free)], s.params, over)


def cost(s: Operation, plan: Plan) -> float:
    """Estimates the elements a rank sends and computes; the same on all ranks. Work has a small weight."""
    sent = 0.0
    for shape, have, want in zip(s.shapes, s.cuts, plan.operands, strict=True):
        sent += _moved(shape, have, want, s.sizes)
    result = math.prod(s.results[0]) / _parts(plan.results[0], s.sizes)
    if plan.over:
        parts = count(plan.over, s.sizes)
        sent += 2 * result * (parts - 1) / parts
    work = math.prod(s.results[0]) / (_parts(plan.results[0], s.sizes) * count(plan.over, s.sizes))
    return sent + 1e-3 * work


def share(s: Operation, shape: Sequence[int], cuts: Cuts) -> float:
    """The average number of elements per rank. Unlike the size of a rank's part, it is the same on all ranks."""
    return math.prod(shape) / _parts(cuts, s.sizes)


def _parts(cuts: Cuts, sizes: Mapping[Any, int]) -> int:
    return math.prod(count(c.axes, sizes) for c in cuts if c is not None)


def _moved(shape: Sequence[int], have: Cuts, want: Cuts, sizes: Mapping[Any, int]) -> float:
    """Estimates the elements a rank sends to bring an operand from one cut to another."""
    if have == want:
        return 0.0
    held, wanted = ({a for c in cuts if c is not None for a in c.axes} for cuts in (have, want))
    size = float(math.prod(shape))
    kept = size / count(held & wanted, sizes)
    gathered = count(held - wanted, sizes)
    sent = kept * (gathered - 1) / gathered
    both = [(h, w) for h, w in zip(have, want, strict=True) if h is not None and w is not None and h != w]
    changes = {a for h, _ in both for a in h.axes}
    elsewhere = {
        a for h, w in zip(have, want, strict=True) if h is not None for a in h.axes if w is None or a not in w.axes
    } & wanted
    if elsewhere:
        sent += size / count(held, sizes) * (1 - 1 / count(elsewhere, sizes))
    return sent + (0.01 * size / count(held, sizes) if changes - elsewhere else 0.0)


# ---------------------------------------------------------------- operations with whole trailing or chosen axes


def batched(ranks: Sequence[int]) -> Rule:
    """Operations on the last axes of arrays, which must be whole. The axes before them are batch axes, cut alike.

    ranks: for each operand, the number of its last axes.
    """

    def rule(s: Operation) -> Plan | None:
        examples = len(s.shapes[0]) - ranks[0]
        lead = s.shapes[0][:examples]
        if examples < 1 or any(x[:examples] != lead for x in (*s.shapes, *s.results)):
            return None
        cuts = agreed([lead] * len(s.shapes), [c[:examples] for c in s.cuts], lead)
        operands = [(*cuts, *uncut(x[examples:])) for x in s.shapes]
        return Plan(operands, [(*cuts, *uncut(x[examples:])) for x in s.results], s.params)

    return rule


def whole_along(param: str) -> Rule:
    """Operands and results of one shape; the array axis that a parameter names must be whole."""

    def rule(s: Operation) -> Plan:
        shape = s.shapes[0]
        cuts = agreed(s.shapes, s.cuts, shape)
        return same(s, without(cuts, {s.params[param] % len(shape)}))

    return rule


# ---------------------------------------------------------------- rules read from results to operands


def operands_for(s: Operation, rule: Rule, wish: Cuts) -> list[Cuts | None] | None:
    """Operand cuts with which the rule yields the requested cut without messages; None if impossible. s: uncut."""
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
    """Whether cutting only axis `at` of operand `k` cuts axis `d` of the result."""
    cuts = [uncut(x) for x in s.shapes]
    cuts[k] = (*cuts[k][:at], even_cut(s.shapes[k][at], cut.axes, cut.parts), *cuts[k][at + 1 :])
    plan = rule(replace(s, cuts=cuts))
    if plan is None or plan.over or plan.program is not None or plan.whole is not None:
        return False
    made = plan.results[0][d]
    return made is not None and made.axes == cut.axes and plan.operands[k] == cuts[k]


def _sends_nothing(plan: Plan, cuts: list[Cuts]) -> bool:
    """Whether the plan keeps the cuts of cut operands and sums nothing over ranks."""
    stays = all(want == have or not any(have) for want, have in zip(plan.operands, cuts, strict=True))
    return stays and not plan.over and plan.program is None and plan.whole is None
