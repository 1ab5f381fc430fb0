"""Adds long sums of floats in blocks, so that rounding errors do not grow with their length.

A serial sum of n numbers rounds n times. Here BLOCK of them are added at a time, and each block's sum is added to the
total: BLOCK + n / BLOCK roundings for each element. The loops run as fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from mpijax.compiler.fusion.kernel import Reduce
from mpijax.compiler.loops.schedule import Loop, iterations_of
from mpijax.core.rules.lowering import Combiner
from mpijax.scalar.types import Scalar, info

if TYPE_CHECKING:
    from mpijax.compiler.loops.function import Function

# Numbers that are added one after the other.
BLOCK = 64

Accumulators = list[Scalar]


def turns_of_block(reduces: Iterable[Reduce], loops: Sequence[Loop], step: int = 1) -> int:
    """Turns of the outermost of these loops after which its accumulators begin anew; 0 if it is one block.

    A power of two, so that the same code serves loops of most sizes. loops: from the outermost to the innermost one,
    which takes `step` elements at a time.
    """
    if not any(r.op is Combiner.ADD and info(r.dtype).kind in "fc" for r in reduces):
        return 0
    inner = math.prod(map(iterations_of, loops[1:]))
    if iterations_of(loops[0]) * inner < 2 * BLOCK * step:
        return 0
    if len(loops) == 1:
        return BLOCK
    return 1 << max(0, (BLOCK * step // inner).bit_length() - 1)


def loop(
    function: Function,
    lo: str,
    hi: str,
    step: int,
    turns: int,
    carried: Accumulators,
    first: Callable[[], Accumulators],
    combine: Callable[[Accumulators, Accumulators], Accumulators],
    lanes_of: list[int],
    body: Callable[[str, Accumulators], Accumulators],
) -> Accumulators:
    """`Function.loop` over accumulators, which begin anew every `turns` turns; 0: never.

    first: accumulators before any element. combine: those of all blocks so far and of one more.
    """
    if not turns:
        return function.loop(lo, hi, step, carried, lanes_of, body)
    if turns == 1:
        return function.loop(lo, hi, step, carried, lanes_of, lambda i, total: combine(total, body(i, first())))

    size = step * turns

    def block(start: str, total: Accumulators) -> Accumulators:
        stop = function.tile_end(start, size, hi)
        return combine(total, function.loop(start, stop, step, first(), lanes_of, body))

    return function.loop(lo, hi, size, carried, lanes_of, block)


def running(
    function: Function,
    lo: str,
    hi: str,
    step: int,
    start: Scalar,
    first: Scalar | None,
    combine: Callable[[Scalar, Scalar], Scalar],
    lanes: int,
    body: Callable[[str, Callable[[Scalar], Scalar], Scalar], Scalar],
) -> Scalar:
    """The last of running values, which a body carries on: `(i, total of, carried) -> carried`.

    start: the value before the first turn. first: what a block of BLOCK turns carries before its first turn; None if
    there are no blocks. `total of` adds the total of all blocks before.
    """
    if first is None:
        [last] = function.loop(lo, hi, step, [start], [lanes], lambda i, c: [body(i, lambda x: x, c[0])])
        return last

    size = step * BLOCK

    def block(begin: str, before: Accumulators) -> Accumulators:
        def turn(i: str, carried: Accumulators) -> Accumulators:
            return [body(i, lambda x: combine(before[0], x), carried[0])]

        [own] = function.loop(begin, function.tile_end(begin, size, hi), step, [first], [lanes], turn)
        return [combine(before[0], own)]

    [last] = function.loop(lo, hi, size, [start], [lanes], block)
    return last
