"""The strategy `rows`: products, and reductions of short rows, several rows at a time.

One row after the other would need a sum over lanes for each row, and then scalar code for each result. Instead, a block
of as many rows as there are lanes shares its loads of the other operand. Its sums end up in the lanes of one vector,
and the operations after the reduction are vectorized.
"""

from __future__ import annotations

from functools import partial

from mpijax.compiler.fusion.kernel import Kernel, Reduce
from mpijax.compiler.fusion.reductions import identity
from mpijax.compiler.loops.evaluate import accumulated, hoist, rule
from mpijax.compiler.loops.nest import LoopNest
from mpijax.compiler.loops.schedule import iterations_of
from mpijax.compiler.loops.scope import Scope
from mpijax.compiler.loops.stores import store
from mpijax.core.rules.lowering import Combiner
from mpijax.scalar.types import Scalar

# Reductions that may combine an element twice without changing the result.
IDEMPOTENT = frozenset([Combiner.MAX, Combiner.MIN, Combiner.AND, Combiner.OR])


def rows(nest: LoopNest, kernel: Kernel, scope: Scope, outermost: bool) -> None:
    """Reduce along a vectorized axis, for a block of rows at once."""
    loop, lanes = nest.schedule.vector_loop, nest.schedule.lanes
    assert loop is not None
    hoist(nest, kernel.roots, kernel.outer, scope, None, 1)

    def block(first: str, width: int) -> None:
        one = nest.function.builder(1)
        numbers = [first] + [one.emit(f"add i64 {first}, {r}") for r in range(1, width)]
        done = scope.along(loop[-1], first, width)
        for r in kernel.reduces:
            done.finish(r.member, _joined(nest, kernel, r, _of_rows(nest, kernel, r, numbers, scope)))
        done.phase = kernel.phases + 1
        for s in kernel.outer:
            store(nest, s, done)

    nest.function.in_widths(*nest.range(loop, outermost), (lanes, 1), block)


def _of_rows(
    nest: LoopNest, kernel: Kernel, r: Reduce, numbers: list[str], scope: Scope
) -> list[tuple[Scalar, Scalar | None]]:
    """For each row the partial results in lanes, and the result of the remaining elements, if any.

    Reductions run one after the other: two at once would need more registers than the CPU has.
    """
    function, schedule, lanes = nest.function, nest.schedule, nest.schedule.lanes
    [loop], across = schedule.inner, schedule.vector_loop
    assert across is not None
    size = iterations_of(loop)
    lo, hi = nest.iterations(0, scope)
    mid = function.vectors_end(lo, hi, lanes)

    def element(i: str, carried: list[Scalar], width: int) -> list[Scalar]:
        shared = scope.along(loop[-1], i, width)
        hoist(nest, [r.expr], (), shared, loop[-1], width)
        positions = [shared.at(across[-1], number) for number in numbers]
        return [accumulated(nest, kernel, r, acc, at, width) for acc, at in zip(carried, positions, strict=True)]

    def part(lo: str, hi: str, width: int) -> list[Scalar]:
        start = function.builder(width).const(identity(r.op, r.dtype), r.dtype)
        body = partial(element, width=width)
        return function.loop(lo, hi, width, [start] * len(numbers), [width] * len(numbers), body)

    vectors = part(lo, mid, lanes)
    if size % lanes and size > lanes and schedule.chunked is None:
        # The last whole vector of a row overlaps elements that are already reduced.
        wide, before = function.builder(lanes), vectors
        vectors = element(function.builder(1).emit(f"sub i64 {hi}, {lanes}"), vectors, lanes)
        if r.op not in IDEMPOTENT:
            vectors = [wide.select_last(size % lanes, x, y) for x, y in zip(vectors, before, strict=True)]
    elif size % lanes:
        return list(zip(vectors, part(mid, hi, 1), strict=True))
    return [(v, None) for v in vectors]


def _joined(nest: LoopNest, kernel: Kernel, r: Reduce, parts: list[tuple[Scalar, Scalar | None]]) -> Scalar:
    """The results of a block's rows, in the lanes of one vector."""
    combine = rule(nest, kernel, r)
    wide, one = nest.function.builder(nest.schedule.lanes), nest.function.builder(1)
    if len(parts) == 1:
        [(vector, rest)] = parts
        total = wide.reduce(combine, vector)
        return total if rest is None else combine(one, total, rest)
    vectors = [v for v, _ in parts]
    while len(vectors) > 1:
        # Combine neighbouring lanes; those of the first vector come first.
        vectors = [
            combine(wide, wide.every_second(a, b, 0), wide.every_second(a, b, 1))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    rests = [rest for _, rest in parts if rest is not None]
    return combine(wide, vectors[0], wide.gathered(rests)) if rests else vectors[0]
