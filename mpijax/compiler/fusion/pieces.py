"""Piecewise values: pads, concatenations, static updates.

A `Choice` has several alternatives; comparing an index with constants selects one. Kernels never compare at
run time. Instead, loops are split where the selection changes, and each piece runs a kernel with the alternatives
already selected (`split`), so the inner loop of the large piece has no branch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax import lax
from mpijax.compiler.fusion.depth import Rewriter
from mpijax.compiler.fusion.expr import (
    Applied,
    Choice,
    Expr,
    ExprTable,
    KnownNumber,
    Load,
    dynamic_parts,
    reachable,
)
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import Meaning
from mpijax.core.shapes.index import Dynamic, Lin, LoopVar

if TYPE_CHECKING:
    from mpijax.compiler.fusion.kernel import Kernel

# Maximum number of kernel bodies, and of expressions in all of them, that splitting its loops may make.
MAX_BODIES = 64
MAX_EXPRESSIONS = 1500
# With at most this many bodies, every loop is split.
FEW_BODIES = 3
INT64 = np.dtype(np.int64)


def choice(table: ExprTable, form: Lin, cuts: tuple[int, ...], parts: tuple[Callable[[], Expr], ...]) -> Expr:
    """`parts[k]` where `cuts[k - 1] <= form < cuts[k]`; parts that no index selects are not built."""
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
    return table.choice(form, at, tuple(kept))


def choices(roots: Iterable[Expr]) -> list[Choice]:
    """All choices in expressions, including those in run-time integers of positions."""
    with_parts = [e for e in roots if e.has_parts]
    return [e for e in reachable(with_parts) if isinstance(e, Choice)] if with_parts else []


def breaks(e: Choice, v: LoopVar) -> list[int]:
    """The values of a loop variable at which a choice changes."""
    form, cuts = e.position, e.cuts
    if len(form.terms) != 1 or form.terms[0][0] is not v:
        return []
    c, o = form.terms[0][1], form.offset
    points = [-((o - k) // c) if c > 0 else (o - k) // -c + 1 for k in cuts]
    return [p for p in points if 0 < p < v.size]


class _ChoiceRewriter(Rewriter):
    """Replaces choices in expressions. made: cache of the resulting expressions, shared between rewriters."""

    def __init__(self, made: dict[Any, Expr]):
        super().__init__()
        self.made = made

    def chosen(self, e: Choice) -> Expr | None:
        """The replacement of a choice; None to keep it."""
        raise NotImplementedError

    def rewritten(self, e: Expr) -> Expr:
        if isinstance(e, Choice):
            found = self.chosen(e)
            if found is not None:
                return found
        if not e.args:
            return e
        args = tuple(map(self, e.args))
        if isinstance(e, Applied) and e.meaning is Meaning.COTANGENT_SUM:
            # In a sum of cotangents, an operand is zero outside of its piece.
            for a, b in (args, args[::-1]):
                if isinstance(a, KnownNumber) and a.scalar == 0:
                    return b
        if all(a is b for a, b in zip(args, e.args, strict=True)):
            return e
        key = (e, args)
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = e.with_args(args)
        return found


class _Resolver(_ChoiceRewriter):
    """Selects the alternatives that hold at one value of a loop variable."""

    def __init__(self, made: dict[Any, Expr], v: LoopVar, at: int):
        super().__init__(made)
        self.v, self.at = v, at

    def chosen(self, e: Choice) -> Expr | None:
        form, cuts = e.position, e.cuts
        if len(form.terms) != 1 or form.terms[0][0] is not self.v:
            return None
        return self(e.args[bisect_right(cuts, form.terms[0][1] * self.at + form.offset)])


class _Distances(_ChoiceRewriter):
    """Replaces alternatives by one load at a distance that is computed once per row."""

    def __init__(self, made: dict[Any, Expr], rows: Set[LoopVar]):
        super().__init__(made)
        self.rows = rows
        self.table = ExprTable()

    def chosen(self, e: Choice) -> Expr | None:
        form, cuts = e.position, e.cuts
        if not {atom for atom, _ in form.terms} <= self.rows:
            return None
        args = [self(a) for a in e.args]
        loads = [x for x in args if isinstance(x, Load)]
        if len(loads) < len(args) or any(x.value is not loads[0].value for x in loads):
            return None
        positions = [x.position for x in loads]
        first = min(p.offset for p in positions)
        if len({(p - p.offset).key for p in positions}) > 1:
            return None
        at = self.table.index(form)
        distance = self._number(positions[-1].offset - first)
        for p, cut in zip(positions[-2::-1], cuts[::-1], strict=True):
            below = self.table.apply(lax.lt_p, (at, self._number(cut)), np.dtype(np.bool_), {})
            near = self._number(p.offset - first)
            distance = self.table.apply(lax.select_n_p, (below, distance, near), INT64, {})
        size = max(p.offset for p in positions) - first + 1
        moved = positions[0] + Lin(first - positions[0].offset, [(Dynamic(distance, size), 1)])
        return self.table.load(loads[0].value, moved)

    def _number(self, n: int) -> Expr:
        return self.table.const(n, INT64)


@dataclass(frozen=True, eq=False)
class KernelPiece:
    """A kernel in which loop variable `v` runs over `[begin, end)` only."""

    begin: int
    end: int
    kernel: Kernel


def _ranges(v: LoopVar, roots: list[Expr], made: dict) -> list[tuple[int, int, _Resolver]]:
    """The ranges of a loop variable in which the same alternatives hold, each with the rewriter that selects them."""
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


def split(kernel: Kernel, v: LoopVar) -> list[KernelPiece]:
    """The kernel split along `v` into ranges with the same alternatives, which are selected."""
    if not choices(kernel.roots):
        return [KernelPiece(0, v.size, kernel)]
    ranges = _ranges(v, kernel.roots, kernel.made)
    return [KernelPiece(begin, end, _chosen(kernel, resolve)) for begin, end, resolve in ranges]


def _chosen(kernel: Kernel, resolve: _ChoiceRewriter) -> Kernel:
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
    """The kernel without splits of row loops, if those would make many bodies.

    If the alternatives are elements of one array at constant distances, as in `roll`, they become one load whose
    distance is computed once per row. variables: the loops around the vectorized one.
    """
    if not choices(kernel.roots) or len(_code(kernel.variables, kernel.roots, {}, [])) <= FEW_BODIES:
        return kernel
    return _chosen(kernel, _Distances(kernel.made, set(variables)))


def largest(kernel: Kernel) -> Kernel:
    """The kernel of the piece with the most elements."""
    for v in kernel.variables:
        kernel = max(split(kernel, v), key=lambda p: p.end - p.begin).kernel
    return kernel


def fits(variables: Sequence[LoopVar], roots: list[Expr]) -> bool:
    """Whether the loops can be split at every choice without too much code."""
    found = choices(roots)
    if not found:
        return True
    for e in found:
        form = e.position
        if len(form.terms) != 1 or form.terms[0][0] not in variables:
            return False
    if _choices_in_positions(roots):
        return False
    if _is_little(_code(variables, roots, {}, [])):
        return True
    # The vectorized loop is chosen later, so check each candidate.
    for v in variables:
        distances = _Distances({}, {w for w in variables if w is not v})
        if not _is_little(_code(variables, [distances(e) for e in roots], {}, [])):
            return False
    return True


def _is_little(code: list[int]) -> bool:
    return len(code) <= MAX_BODIES and sum(code) <= MAX_EXPRESSIONS


def _choices_in_positions(roots: list[Expr]) -> bool:
    """Whether a run-time integer in a position depends on a choice."""
    positions = (e.position for e in reachable(roots))
    return any(choices(dynamic_parts(p)) for p in positions if p is not None)


def _code(variables: Sequence[LoopVar], roots: list[Expr], made: dict, sizes: list[int]) -> list[int]:
    """The number of expressions in each body that splitting makes; stops early at too many bodies."""
    if len(sizes) > MAX_BODIES:
        return sizes
    if not variables or not choices(roots):
        sizes.append(count(roots))
        return sizes
    for _, _, resolve in _ranges(variables[0], roots, made):
        _code(variables[1:], [resolve(e) for e in roots], made, sizes)
    return sizes


def count(roots: list[Expr]) -> int:
    """The number of distinct expressions."""
    return sum(1 for _ in reachable(roots))


def split_variables(kernel: Kernel) -> set[LoopVar]:
    """The loop variables at which pieces begin and end."""
    return {atom for e in choices(kernel.roots) for atom, _ in e.position.terms}
