"""Factors: how the array axes of an operation's operands and results correspond.

`einsum` writes a matrix product as `ik,kj->ij`: `i` and `j` pass through, `k` is reduced. Each letter is a factor. A
`FactorRule` is the sharding rule of a primitive as a list of factors. Three readers share it:

- the partitioner, which turns cuts of operands into a `Plan` (`FactorRule.__call__`),
- the compiler, which asks with which cuts of operands a result gets a cut (`default_rules.operands_for`),
- the types of results over Explicit mesh axes (`sharding_types`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Any, Protocol

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import OverRanks
from mpijax.core.rules.sharding_rules import Operation, Plan, chosen
from mpijax.core.sharding.cuts import Cut

Axis = int | None


class FactorKind(Enum):
    """What an operation does along a factor."""

    FREE = "free"  # each position of a result needs the same position of the operands, or the ones that `axis_map` says
    REDUCED = "reduced"  # results combine all positions; ranks combine their parts by an MPI reduction
    WHOLE = "whole"  # each rank needs all positions


class AxisMap(Protocol):
    """Which positions of operands the positions of a result need, where they are not the same."""

    def cuts(self, s: Operation, factor: Factor, have: Sequence[Cut | None]) -> tuple[Sequence[Cut | None], Cut | None]:
        """The cut that each operand must have, and the cut of the results.

        have: the cut of each operand along the factor; None if it is whole, or if its mesh axes are already used.
        """


@dataclass(frozen=True)
class Factor:
    """One correspondence of axes.

    operands: its array axis in each operand; None if the operand does not have it. results: the same for results.
    axis_map: how positions correspond if they are not the same.
    explicit: the kind over Explicit mesh axes if it is another one. JAX refuses some splits that ranks could compute,
      and keeps some for which they must move data.
    """

    operands: tuple[Axis, ...]
    results: tuple[Axis, ...]
    kind: FactorKind = FactorKind.FREE
    axis_map: AxisMap | None = None
    explicit: FactorKind | None = None


def free(
    operands: Sequence[Axis],
    results: Sequence[Axis],
    axis_map: AxisMap | None = None,
    explicit: FactorKind | None = None,
) -> Factor:
    return Factor(tuple(operands), tuple(results), FactorKind.FREE, axis_map, explicit)


def reduced(operands: Sequence[Axis], results: int = 1, explicit: FactorKind | None = None) -> Factor:
    return Factor(tuple(operands), (None,) * results, FactorKind.REDUCED, explicit=explicit)


def whole(operands: Sequence[Axis], results: Sequence[Axis], explicit: FactorKind | None = None) -> Factor:
    return Factor(tuple(operands), tuple(results), FactorKind.WHOLE, explicit=explicit)


def planned(s: Operation, factors: Sequence[Factor], op: OverRanks = OverRanks.SUM) -> Plan:
    """The plan that cuts along the factors in their order: an earlier factor takes the mesh axes that two want.

    op: combines the results of parts of reduced factors. Array axes without a factor are whole.
    """
    operands: list[list[Cut | None]] = [[None] * len(x) for x in s.shapes]
    results: list[list[Cut | None]] = [[None] * len(x) for x in s.results]
    used: set[Any] = set()
    over: tuple[Any, ...] = ()
    for f in factors:
        if f.kind is FactorKind.WHOLE:
            continue
        needed, made = _along(s, f, used)
        for cuts, at, cut in zip(operands, f.operands, needed, strict=True):
            if at is not None:
                cuts[at] = cut
        for cuts, at in zip(results, f.results, strict=True):
            if at is not None:
                cuts[at] = made
        if f.kind is FactorKind.REDUCED:
            over += next((cut.axes for cut in needed if cut is not None), ())
    return Plan([*map(tuple, operands)], [*map(tuple, results)], s.params, over, op)


def _along(s: Operation, f: Factor, used: set[Any]) -> tuple[Sequence[Cut | None], Cut | None]:
    """The cuts along one factor. Adds its mesh axes to `used`."""
    have = [None if at is None else cuts[at] for at, cuts in zip(f.operands, s.cuts, strict=True)]
    if f.axis_map is None:
        cut = chosen((have[i] for i in s.decisive), used)
        return [cut] * len(have), cut
    have = [None if cut is None or used & set(cut.axes) else cut for cut in have]
    needed, made = f.axis_map.cuts(s, f, have)
    used.update(a for cut in (*needed, made) if cut is not None for a in cut.axes)
    return needed, made


def _unchanged(s: Operation, plan: Plan) -> Mapping[str, Any]:
    return s.params


@dataclass(frozen=True)
class FactorRule:
    """A sharding rule by factors.

    factors: `(Operation) -> factors`, most important first; None if the operation has no rule. It depends on shapes and
      parameters, not on cuts.
    local: `(Operation, Plan) -> parameters of this rank's operation`; by default the operation's own.
    op: combines the results of parts of reduced factors.
    choose: `(Operation, factors) -> Plan or None`; by default the factors decide in their order.
    better: `(Operation) -> Plan or None`, a plan that sends or holds less than the one by factors.
    alike: whether Explicit operands must be split alike: a whole operand does not go with a split one.
    called: the name in errors of types; by default the primitive's.
    refusal: `(TypedOperation, Factor) -> str`, the error for Explicit operands whose split does not fit a factor.
    in_place: whether the result is the first operand, changed in places.
    """

    factors: Callable[[Operation], Sequence[Factor] | None]
    local: Callable[[Operation, Plan], Mapping[str, Any]] = _unchanged
    op: OverRanks = OverRanks.SUM
    choose: Callable[[Operation, Sequence[Factor]], Plan | None] | None = None
    better: Callable[[Operation], Plan | None] | None = None
    alike: bool = False
    called: str | None = None
    refusal: Callable[[Any, Factor], str] | None = field(default=None, compare=False)
    in_place: bool = False

    def __call__(self, s: Operation) -> Plan | None:
        """The plan for operands with these cuts."""
        found = None if self.better is None else self.better(s)
        return self.plain(s) if found is None else found

    def plain(self, s: Operation) -> Plan | None:
        """The plan by factors alone."""
        factors = self.factors(s)
        if factors is None:
            return None
        plan = planned(s, factors, self.op) if self.choose is None else self.choose(s, factors)
        return plan if plan is None or self.local is _unchanged else replace(plan, params=self.local(s, plan))

    def named(self, s: Operation) -> Plan | None:
        """The plan that names shardings of results over devices of one process, where no data moves.

        As in XLA, an axis that must be whole keeps its name if the result has the same axis.
        """
        factors = self.factors(s)
        if factors is None:
            return None
        kept = [_kept(s, f) for f in factors] + (_unlisted(s, factors) if self.in_place else [])
        return planned(s, kept, self.op) if self.choose in (None, _with_examples) else self.choose(s, kept)

    def but(self, **changes: Any) -> FactorRule:
        """The same rule with other fields."""
        return replace(self, **changes)


def _kept(s: Operation, f: Factor) -> Factor:
    """A factor of a whole axis as one of an axis that operands and results share, if they do."""
    if f.kind is not FactorKind.WHOLE or all(at is None for at in f.operands):
        return f
    at, size = next((at, x[at]) for at, x in zip(f.operands, s.shapes, strict=True) if at is not None)
    results = [d if d is not None and x[d] == size else None for d, x in zip(f.results, s.results, strict=True)]
    if None in results:
        return f
    operands = [d if d is not None and x[d] == size else None for d, x in zip(f.operands, s.shapes, strict=True)]
    return free(operands, results)


def _unlisted(s: Operation, factors: Sequence[Factor]) -> list[Factor]:
    """Factors for the axes of the first operand that have none."""
    listed = {f.operands[0] for f in factors}
    return [free((d, *(None,) * (len(s.shapes) - 1)), (d,)) for d in range(len(s.shapes[0])) if d not in listed]


# ---------------------------------------------------------------- factors that many operations have


def same_axes(s: Operation, but: Sequence[int] = ()) -> list[Factor]:
    """Operands and results of one number of axes. The axes `but` are whole."""
    n, m = len(s.shapes), len(s.results)
    return [(whole if d in but else free)((d,) * n, (d,) * m) for d in range(len(s.shapes[0]))]


def _elementwise(s: Operation) -> list[Factor] | None:
    shape = s.results[0]
    if any(o != shape for o in s.results) or any(len(x) not in (0, len(shape)) for x in s.shapes):
        return None
    return [
        free([d if x and x[d] == n else None for x in s.shapes], (d,) * len(s.results)) for d, n in enumerate(shape)
    ]


# Operands are scalars, or have the shape of the results.
elementwise = FactorRule(_elementwise)


def finished_over_ranks(op: OverRanks | str) -> FactorRule:
    """Each rank reduces its part; an MPI reduction combines the partial results over the mesh axes that split them.

    op: a member of `OverRanks`, or its name in MPI.
    """
    return FactorRule(_reduction, op=OverRanks(op))


def _reduction(s: Operation) -> list[Factor]:
    gone = set(s.params["axes"])
    left = iter(range(len(s.results[0])))
    return [reduced((d,)) if d in gone else free((d,), (next(left),)) for d in range(len(s.shapes[0]))]


def whole_along(
    param: str, what: str | None = None, better: Callable[[Operation], Plan | None] | None = None
) -> FactorRule:
    """Operands and results of one shape; the array axis that a parameter names must be whole.

    what: the start of the error for an Explicit operand that is split along it. better: see `FactorRule`.
    """

    def factors(s: Operation) -> list[Factor]:
        return same_axes(s, [s.params[param] % len(s.shapes[0])])

    def refusal(s: Any, f: Factor) -> str:
        if f.kind is FactorKind.WHOLE:
            aval = next(a for i, a in enumerate(s.types) if s.axes(i)[f.operands[i]])
            start = what or f"{s.name} needs an operand that is not split along the axis"
            return (
                f"{start}. Got input type={aval} and axis={s.params[param]}. Unshard that axis first, with "
                "jax.sharding.reshard."
            )
        given = " ".join(str(s.entries(i)) for i in range(len(s.types)))
        return f"Arguments to {s.name} must have equal shardings, got: {given}"

    return FactorRule(factors, alike=True, refusal=refusal, better=better)


def batched(
    ranks: Sequence[int] | Callable[[Mapping[str, Any]], Sequence[int]],
    better: Callable[[Operation], Plan | None] | None = None,
    in_place: bool = False,
) -> FactorRule:
    """Operations on the last axes of arrays, which must be whole. The axes before them are batch axes, cut alike.

    ranks: for each operand, the number of its last axes; or a function of the parameters. better: see `FactorRule`.
    in_place: whether the results have these axes, too, in the same places.
    """

    def factors(s: Operation) -> list[Factor]:
        counts = ranks(s.params) if callable(ranks) else ranks
        n, m = len(s.shapes), len(s.results)
        examples = [len(x) - r for x, r in zip(s.shapes, counts, strict=True)]
        lead = [free((d,) * n, (d,) * m) for d in range(min(examples))]
        rest = [(i, d) for i, x in enumerate(s.shapes) for d in range(examples[i], len(x))]
        kept = (lambda d: (d,) * m) if in_place else lambda _: (None,) * m
        return lead + [whole([d if k == i else None for k in range(n)], kept(d)) for i, d in rest]

    return FactorRule(factors, choose=_with_examples, better=better, alike=True, refusal=not_batched)


def _with_examples(s: Operation, factors: Sequence[Factor]) -> Plan | None:
    """None without batch axes, or if they differ in length."""
    lead = [f for f in factors if f.kind is FactorKind.FREE]
    sizes = [x[: len(lead)] for x in (*s.shapes, *s.results)]
    return planned(s, factors) if lead and all(x == sizes[0] for x in sizes) else None


def not_batched(s: Any, f: Factor) -> str:
    if FactorKind.WHOLE in (f.kind, f.explicit):
        i = next(i for i, at in enumerate(f.operands) if at is not None)
        return (
            f"Input {i} to {s.name} must be unsharded on non-batch dimensions, but got {s.entries(i)}. Use "
            "jax.sharding.reshard first."
        )
    given = [s.entries(i)[: len(s.results[0].shape)] for i in range(len(s.types))]
    return f"All inputs to {s.name} must have the same batch sharding, but got {given}."
