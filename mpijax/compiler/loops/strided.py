"""Finds kernels that only move elements: compiled functions of `cython_ext/strided.h` do their work, so LLVM need not.

Transposes, slices, reshapes, broadcasts, pads, concatenations and constants are a third of the kernels of partitioned
programs, and many of the operations outside of `jit`. LLVM takes some milliseconds for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from mpijax.compiler.fusion.kernel import Kernel, Store, collapsed
from mpijax.compiler.fusion.pieces import breaks, choices, split
from mpijax.compiler.graph.nodes import Value
from mpijax.core.index import Lin, LoopVar
from mpijax.core.lazy_dataclass import dataclass

# Bytes moved above which LLVM's code is worth its time: it has threads and streaming stores.
LARGEST = 1 << 16
# The same where elements are not next to each other for at least RUN bytes: LLVM's code transposes blocks.
LARGEST_SCATTERED, RUN = 1 << 11, 512
# Maximum moves of a kernel, and axes of a move.
MOST_MOVES, MOST_AXES = 8, 8
_WIDTHS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Move:
    """A copy between strided arrays, or of one element to a strided array.

    origin, target: the arrays, with the byte at which each begins; no origin: `element` is copied.
    axes: (size, step in the origin, step in the target) of each axis, in bytes, outermost first.
    """

    origin: tuple[Value, int] | None
    target: tuple[Value, int]
    element: bytes
    width: int
    axes: list[tuple[int, int, int]]


# The part of the loops in which the same alternatives hold: the first iteration and the end, by variable.
_Box = dict[LoopVar, tuple[int, int]]


def strided(kernel: Kernel) -> list[Move] | None:
    """What a kernel moves; None if it computes something, or LLVM's code is faster."""
    if kernel.axes or kernel.ordered or kernel.cumulate is not None or not all(map(_moves, kernel.stores)):
        return None
    moves: list[Move] = []
    for part, box in _boxes(kernel, {}):
        for store in part.stores:
            found = None if len(moves) == MOST_MOVES else _move(part, store, box)
            if found is None:
                return None
            moves.append(found)
    return moves


def arguments(moves: list[Move]) -> tuple[list[Value], list[int]]:
    """The arrays and the parameters with which `st_run` is called."""
    arrays: list[Value] = []
    params = [len(moves)]
    for move in moves:
        used = [end[0] for end in (move.origin, move.target) if end is not None]
        arrays += [v for v in used if v not in arrays]
        origin, begin = (-1, 0) if move.origin is None else (arrays.index(used[0]), move.origin[1])
        target, end = arrays.index(used[-1]), move.target[1]
        words = (int.from_bytes(move.element[i : i + 8], "little", signed=True) for i in (0, 8))
        axes = (n for axis in move.axes for n in axis)
        params += [origin, target, begin, end, *words, move.width, len(move.axes), *axes]
    return arrays, params


def _moves(store: Store) -> bool:
    """Whether a store may be a copy, judged without its alternatives: most kernels are not."""
    alternatives = store.expr.args if store.expr.op == "choose" else (store.expr,)
    plain = store.combine is None and store.guard is None and store.value.element.itemsize in _WIDTHS
    return plain and all(e.op in ("const", "load", "choose") for e in alternatives)


def _boxes(kernel: Kernel, box: _Box) -> Iterator[tuple[Kernel, _Box]]:
    """The parts of a kernel in which the same alternatives hold."""
    found = choices(kernel.roots)
    v = next((v for v in kernel.variables if any(breaks(e, v) for e in found)), None)
    if v is None:
        yield kernel, box
        return
    for part in split(kernel, v):
        yield from _boxes(part.kernel, {**box, v: (part.begin, part.end)})


def _move(kernel: Kernel, store: Store, box: _Box) -> Move | None:
    e, target, width = store.expr, store.position, store.value.element.itemsize
    if e.op not in ("const", "load") or e.dtype != store.value.element:
        return None
    origin = e.attr[1] if e.op == "load" else Lin(0)
    if not all(type(atom) is LoopVar for p in (origin, target) for atom, _ in p.terms):
        return None
    axes = []
    for loop in collapsed(kernel, kernel.variables, box.keys()):
        begin, end = box.get(loop[0], (0, loop[0].size))
        read, written = (_step(p, loop[-1]) * width for p in (origin, target))
        axes.append(((end - begin) * math.prod(v.size for v in loop[1:]), read, written))
    axes = sorted(axes, key=lambda axis: -abs(axis[2])) or [(1, 0, width)]
    size, read, written = axes[-1]
    together = written == width and read in (0, width) and size * width >= RUN
    total = math.prod(n for n, _, _ in axes) * width
    if len(axes) > MOST_AXES or total > (LARGEST if together else LARGEST_SCATTERED):
        return None
    first, result = (
        width * (p.offset + sum(_step(p, v) * begin for v, (begin, _) in box.items())) for p in (origin, target)
    )
    if e.op == "const":
        return Move(None, (store.value, result), e.attr.tobytes(), width, axes)
    return Move((e.attr[0], first), (store.value, result), b"", width, axes)


def _step(position: Lin, v: LoopVar) -> int:
    """Elements from one iteration of a loop to the next."""
    return next((c for atom, c in position.terms if atom is v), 0)
