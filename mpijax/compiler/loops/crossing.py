"""Finds operands that a kernel reads across their rows, and transposes squares of them in registers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpijax.compiler.fusion.expr import Load
from mpijax.compiler.fusion.kernel import Kernel, collapsed
from mpijax.compiler.fusion.roots import TILE
from mpijax.core.shapes.index import Lin, LoopVar

MAX_STAGED = 4

# Elements per register in the transposition, by element size; they are moved as integers.
LANES = {1: 16, 2: 8, 4: 8, 8: 4}
# Shuffle masks of the in-register transposition: a list of rounds per element size. A round lists (first operand,
# second operand, mask) for each of its results. 32-byte registers have two halves, between which few elements should
# move. In 16-byte registers, each round interleaves rows that are half of all rows apart.
_LOW8, _HIGH8 = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)
_PAIR_LOW8, _PAIR_HIGH8 = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
_HALF_LOW8, _HALF_HIGH8 = (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)
_ROUNDS: dict[int, list[list[tuple[int, int, tuple[int, ...]]]]] = {
    4: [
        [(2 * (i // 2), 2 * (i // 2) + 1, _HIGH8 if i % 2 else _LOW8) for i in range(8)],
        [
            (4 * (i // 4) + (i % 4) // 2, 4 * (i // 4) + (i % 4) // 2 + 2, _PAIR_HIGH8 if i % 2 else _PAIR_LOW8)
            for i in range(8)
        ],
        [(i % 4, i % 4 + 4, _HALF_HIGH8 if i >= 4 else _HALF_LOW8) for i in range(8)],
    ],
    8: [
        [(2 * (i // 2), 2 * (i // 2) + 1, (1, 5, 3, 7) if i % 2 else (0, 4, 2, 6)) for i in range(4)],
        [(i % 2, i % 2 + 2, (2, 3, 6, 7) if i >= 2 else (0, 1, 4, 5)) for i in range(4)],
    ],
}  # fmt: skip
for _size in (1, 2):
    _n = LANES[_size]
    _pairs = [tuple(k // 2 + k % 2 * _n + half * _n // 2 for k in range(_n)) for half in (0, 1)]
    _ROUNDS[_size] = [[(i // 2, i // 2 + _n // 2, _pairs[i % 2]) for i in range(_n)]] * (_n.bit_length() - 1)


def stageable(dtype: np.dtype) -> bool:
    """Whether registers can transpose elements of this size."""
    return dtype.itemsize in LANES


def crossing_loads(kernel: Kernel, vector: LoopVar) -> tuple[LoopVar | None, list[Load]]:
    """The loop along which most loads are contiguous that jump along the vectorized loop, and those loads."""
    found: dict[LoopVar, list[Load]] = {}
    loops = collapsed(kernel, [v for v in kernel.variables if v is not vector])
    long = {loop[-1] for loop in loops if math.prod(v.size for v in loop) >= TILE}
    for e in kernel.expressions:
        if not isinstance(e, Load):
            continue
        terms = e.position.terms
        if any(type(a) is not LoopVar for a, _ in terms):
            continue
        if _step(e.position, vector) in (0, 1, -1) or not stageable(e.value.element):
            continue
        for a, c in terms:
            if c in (1, -1) and a in long:
                found.setdefault(a, []).append(e)
    if not found:
        return None, []
    best, loads = max(found.items(), key=lambda item: len(item[1]))
    return (best, loads) if len(loads) <= MAX_STAGED else (None, [])


def stages_all(kernel: Kernel, vector: LoopVar) -> bool:
    """Whether all stores have step one along a loop, and all loads across it can be transposed."""
    if vector.size < TILE or any(_step(s.position, vector) != 1 for s in kernel.stores):
        return False
    steps = [_step(e.position, vector) for e in kernel.expressions if isinstance(e, Load)]
    return len(crossing_loads(kernel, vector)[1]) == sum(step not in (0, 1, -1) for step in steps) > 0


def _step(position: Lin, v: LoopVar) -> int:
    return next((c for atom, c in position.terms if atom is v), 0)


def transpose_registers(builder: Any, rows: list[str], itemsize: int) -> list[str]:
    """n vectors of n integers of `itemsize` bytes, transposed."""
    n = len(rows)
    llvm_type = f"<{n} x i{8 * itemsize}>"
    for round_ in _ROUNDS[itemsize]:
        rows = [
            builder.emit(
                f"shufflevector {llvm_type} {rows[a]}, {llvm_type} {rows[b]}, <{n} x i32> "
                f"<{', '.join(f'i32 {i}' for i in mask)}>"
            )
            for a, b, mask in round_
        ]
    return rows
