"""Values made of parts: pads, concatenations, static updates.

`choose` is an expression with several alternatives; which one it is follows from comparing an index with constants. A
kernel is never asked at run time: loops are split where the answer changes, and each part runs a kernel in which
the alternatives are chosen (`split`), so that the inner loop of the large part has no condition in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax.compiler.fusion.depth import Rewriter
from mpijax.compiler.fusion.expr import Expr, ExprTable, dynamic_parts, position_of, reachable
from mpijax.core.index import Dynamic, Lin, LoopVar
from mpijax.core.lazy_dataclass import dataclass
from mpijax.core.registry import registry

if TYPE_CHECKING:
    from mpijax.compiler.fusion.kernel import Kernel

# Copies of a kernel's body, and expressions in all of them, that splitting its loops may make.
MAX_BODIES = 64
MAX_EXPRESSIONS = 1500
# Up to here every loop is split.
FEW_BODIES = 3
INT64 = np.dtype(np.int64)


def choice(table: ExprTable, form: Lin, cuts: tuple[int, ...], parts: tuple[Callable[[], Expr], ...]) -> Expr:
    """`parts[k]` where `cuts[k - 1] <= form < cuts[k]`; parts that no index reaches are not asked for."""
    cuts = tuple(c - form.offset for c in cuts)
    form = form - form.offset
    low, high = form.bounds()
    ends = (*cuts, high + 1)
    kept_cuts: list[int] = []
    kept: list[Expr] = []
    begin = low
    for end, part in zip(ends, parts, strict=True):
        end = min(end, high + 1)
        if end <= begin:
            continue
        e = part()
        if kept and kept[-1] is e:
            kept_cuts.pop()
        else:
            kept.append(e)
        kept_cuts.append(end)
        begin = end
    if len(kept) == 1:
        return kept[0]
    at = tuple(kept_cuts[:-1])
    return table.make("choose", tuple(kept), kept[0].dtype, (form, at), (form.key, at))


def choices(roots: Iterable[Expr]) -> list[Expr]:
    """All `choose` nodes of expressions, those in integers that positions are computed from too."""
    with_parts = [e for e in roots if e.has_parts]
    return [e for e in reachable(with_parts) if e.op == "choose"] if with_parts else []


def breaks(e: Expr, v: LoopVar) -> list[int]:
    """Where along a loop variable a `choose` node changes its alternative."""
    form, cuts = e.attr
    if len(form.terms) != 1 or form.terms[0][0] is not v:
        return []
    c, o = form.terms[0][1], form.offset
    points = [-((o - k) // c) if c > 0 else (o - k) // -c + 1 for k in cuts]
    return [p for p in points if 0 < p < v.size]


class _Rewriter(Rewriter):
    """Expressions with something else in the place of `choose` nodes; those of `made` are shared."""

    def __init__(self, made: dict[Any, Expr]):
        super().__init__()
        self.made = made

    def chosen(self, e: Expr) -> Expr | None:
        """What stands for a `choose` node, or None to leave it."""
        raise NotImplementedError

    def rewritten(self, e: Expr) -> Expr:
        if e.op == "choose":
            found = self.chosen(e)
            if found is not None:
                return found
        if not e.args:
            return e
        args = tuple(map(self, e.args))
        if e.op == "add_any":
            # Sums of cotangents, where what a part does not reach is zero.
            for a, b in (args, args[::-1]):
                if a.op == "const" and a.attr == 0:
                    return b
        if all(a is b for a, b in zip(args, e.args, strict=True)):
            return e
        key = (e, args)
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = Expr(e.op, args, e.dtype, e.attr)
            found.cost += e.cost - sum(a.cost for a in e.args)
        return found


class _Resolver(_Rewriter):
    """Expressions with the alternatives that hold at one value of a loop variable."""

    def __init__(self, made: dict[Any, Expr], v: LoopVar, at: int):
        super().__init__(made)
        self.v, self.at = v, at

    def chosen(self, e: Expr) -> Expr | None:
        form, cuts = e.attr
        if len(form.terms) != 1 or form.terms[0][0] is not self.v:
            return None
        return self(e.args[bisect_right(cuts, form.terms[0][1] * self.at + form.offset)])


class _Distances(_Rewriter):
    """Expressions with loads at distances computed once a row in the place of alternatives."""

    def __init__(self, made: dict[Any, Expr], rows: Set[LoopVar]):
        super().__init__(made)
        self.rows = rows
        self.table = ExprTable()

    def chosen(self, e: Expr) -> Expr | None:
        form, cuts = e.attr
        if not {atom for atom, _ in form.terms} <= self.rows:
            return None
        loads = [self(a) for a in e.args]
        if any(x.op != "load" or x.attr[0] is not loads[0].attr[0] for x in loads):
            return None
        positions = [x.attr[1] for x in loads]
        first = min(p.offset for p in positions)
        if len({(p - p.offset).key for p in positions}) > 1:
            return None
        at = self.table.index(form)
        distance = self._number(positions[-1].offset - first)
        for p, cut in zip(positions[-2::-1], cuts[::-1], strict=True):
            below = self.table.apply(registry["lt"], (at, self._number(cut)), np.dtype(np.bool_), {})
            near = self._number(p.offset - first)
            distance = self.table.apply(registry["select_n"], (below, distance, near), INT64, {})
        size = max(p.offset for p in positions) - first + 1
        moved = positions[0] + Lin(first - positions[0].offset, [(Dynamic(distance, size), 1)])
        return self.table.load(loads[0].attr[0], moved)

    def _number(self, n: int) -> Expr:
        return self.table.const(n, INT64)


@dataclass(frozen=True, eq=False)
class Part:
    """A kernel in which loop variable `v` runs over `[begin, end)` only."""

    begin: int
    end: int
    kernel: Kernel


def _ranges(v: LoopVar, roots: list[Expr], made: dict) -> list[tuple[int, int, _Resolver]]:
    """Where along a loop variable the same alternatives hold, with what chooses them."""
    points = sorted({p for e in choices(roots) for p in breaks(e, v)})
    found: list[tuple[int, int, _Resolver]] = []
    last: list[Expr] = []
    for begin, end in zip([0, *points], [*points, v.size], strict=True):
        resolve = _Resolver(made, v, begin)
        resolved = [resolve(e) for e in roots]
        if found and resolved == last:
            found[-1] = (found[-1][0], end, found[-1][2])
        else:
            found.append((begin, end, resolve))
        last = resolved
    return found


def split(kernel: Kernel, v: LoopVar) -> list[Part]:
    """The parts of a loop in which the same alternatives hold, with these chosen."""
    if not choices(kernel.roots):
        return [Part(0, v.size, kernel)]
    ranges = _ranges(v, kernel.roots, kernel.made)
    return [Part(begin, end, _chosen(kernel, resolve)) for begin, end, resolve in ranges]


def _chosen(kernel: Kernel, resolve: _Rewriter) -> Kernel:
    def store(s):
        return replace(s, expr=resolve(s.expr), guard=None if s.guard is None else resolve(s.guard))

    return replace(
        kernel,
        reduces=tuple(replace(r, expr=resolve(r.expr)) for r in kernel.reduces),
        inner=tuple(map(store, kernel.inner)),
        outer=tuple(map(store, kernel.outer)),
        computed={k: resolve(e) for k, e in kernel.computed.items()},
    )


def by_rows(kernel: Kernel, variables: Sequence[LoopVar]) -> Kernel:
    """The kernel with loops over rows left whole where splitting them would make many bodies.

    Alternatives that are elements of one array, a constant distance apart, as those of `roll` are, become one load
    whose distance is computed once a row. `variables` are those of the loops around the vectorized one.
    """
    if not choices(kernel.roots) or len(_code(kernel.variables, kernel.roots, {}, [])) <= FEW_BODIES:
        return kernel
    return _chosen(kernel, _Distances(kernel.made, set(variables)))


def largest(kernel: Kernel) -> Kernel:
    """The kernel of the part in which most elements lie."""
    for v in kernel.variables:
        kernel = max(split(kernel, v), key=lambda p: p.end - p.begin).kernel
    return kernel


def fits(variables: Sequence[LoopVar], roots: list[Expr]) -> bool:
    """Whether loops can be split for every choice, into not too much code."""
    found = choices(roots)
    if not found:
        return True
    for e in found:
        form = e.attr[0]
        if len(form.terms) != 1 or form.terms[0][0] not in variables:
            return False
    if _choices_in_positions(roots):
        return False
    if _is_little(_code(variables, roots, {}, [])):
        return True
    # Which loop is vectorized is not known yet.
    for v in variables:
        distances = _Distances({}, {w for w in variables if w is not v})
        if not _is_little(_code(variables, [distances(e) for e in roots], {}, [])):
            return False
    return True


def _is_little(code: list[int]) -> bool:
    return len(code) <= MAX_BODIES and sum(code) <= MAX_EXPRESSIONS


def _choices_in_positions(roots: list[Expr]) -> bool:
    """Whether an integer that a position is computed from depends on a choice."""
    positions = (position_of(e) for e in reachable(roots))
    return any(choices(dynamic_parts(p)) for p in positions if p is not None)


def _code(variables: Sequence[LoopVar], roots: list[Expr], made: dict, sizes: list[int]) -> list[int]:
    """The number of expressions in each body that splitting makes; stops when there are too many bodies."""
    if len(sizes) > MAX_BODIES:
        return sizes
    if not variables or not choices(roots):
        sizes.append(count(roots))
        return sizes
    for _, _, resolve in _ranges(variables[0], roots, made):
        _code(variables[1:], [resolve(e) for e in roots], made, sizes)
    return sizes


def count(roots: list[Expr]) -> int:
    """How many expressions there are."""
    return sum(1 for _ in reachable(roots))


def split_variables(kernel: Kernel) -> set[LoopVar]:
    """Loop variables along which parts lie."""
    return {atom for e in choices(kernel.roots) for atom, _ in e.attr[0].terms}
