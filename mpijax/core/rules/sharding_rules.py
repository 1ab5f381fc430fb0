"""Sharding rules: how ranks compute an operation on sharded arrays.

A primitive has one rule (its slot `sharding`), mostly a `core.rules.factors.FactorRule`. The rule receives the global
shapes and the cuts of the operands. It returns a `Plan`: the cuts the operands must have, the cuts of the results, and
the operation each rank runs on its parts. The partitioner then moves the operands, halos included. An operation without
a rule needs whole operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import OverRanks
from mpijax.core.sharding.cuts import Cut, Cuts, Span, WindowCut, count, even_cut, middle, part_number


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

    @property
    def decisive(self) -> list[int]:
        """The operands by how much their cuts count: computed values decide, slices adapt to them by halos."""
        if not any(self.origins):
            return [*range(len(self.cuts))]
        return sorted(range(len(self.cuts)), key=lambda i: self.origins[i] is not None)

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
    if isinstance(cut, WindowCut) or size < 2 * cut.parts or cut.widest <= 1.25 * -(-size // cut.parts) + 1:
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


# ---------------------------------------------------------------- what a plan sends


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
