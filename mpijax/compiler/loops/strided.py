"""Finds kernels that only move elements: compiled functions of `cython_ext/strided.h` do their work, so LLVM need not.

Transposes, slices, reshapes, broadcasts, pads, concatenations and constants are a third of the kernels of partitioned
programs, and many of the operations outside of `jit`. LLVM takes some milliseconds for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from mpijax.compiler.fusion.expr import Choice, KnownNumber, Load
from mpijax.compiler.fusion.kernel import Kernel, KernelStore
from mpijax.compiler.fusion.pieces import breaks, choices, split
from mpijax.compiler.graph.nodes import Value
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.shapes.index import Lin, LoopVar

# Maximum moves of a kernel, and axes of a move.
MOST_MOVES, MOST_AXES = 32, 8
# Bytes that `st_run` may move element by element, and as a part of all bytes: LLVM's code for more is faster.
MOST_SCATTERED, SCATTERED_PART = 1 << 11, 1 / 64
# Bytes of the shorter side of a plane from which it is transposed in tiles, and of a row that one element fills fast.
TURNED, FILLED = 64, 64
# Bytes from which a thread is worth its start.
GRAIN = 1 << 17
# Parts at most, so that `st_run` can multiply them with sizes.
MOST_PARTS = 1 << 16
_WIDTHS = (1, 2, 4, 8, 16)

_Axis = tuple[int, int, int]


@dataclass(frozen=True)
class Move:
    """A copy between strided arrays, or of one element to a strided array.

    origin, target: the arrays, with the byte at which each begins; no origin: `element` is copied.
    axes: (size, step in the origin, step in the target) of each axis, in bytes, outermost first. The last two are a
    plane: elements of the last one are next to each other in the target, of the other in the origin, where possible.
    """

    origin: tuple[Value, int] | None
    target: tuple[Value, int]
    element: bytes
    width: int
    axes: list[_Axis]

    @property
    def nbytes(self) -> int:
        return self.width * math.prod(size for size, _, _ in self.axes)


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
    scattered = sum(move.nbytes for move in moves if not _in_chunks(move))
    return moves if scattered <= max(MOST_SCATTERED, SCATTERED_PART * sum(move.nbytes for move in moves)) else None


def arguments(moves: list[Move]) -> tuple[list[Value], list[int], int, int]:
    """The arrays, the parameters, the extent and the grain with which `st_run` is called.

    A part of the extent is the same part of each move, so that threads have the same work.
    """
    arrays: list[Value] = []
    extent = min(max(move.axes[0][0] for move in moves), MOST_PARTS)
    params = [extent, len(moves)]
    for move in moves:
        used = [end[0] for end in (move.origin, move.target) if end is not None]
        arrays += [v for v in used if v not in arrays]
        origin, begin = (-1, 0) if move.origin is None else (arrays.index(used[0]), move.origin[1])
        target, end = arrays.index(used[-1]), move.target[1]
        words = (int.from_bytes(move.element[i : i + 8], "little", signed=True) for i in (0, 8))
        axes = (n for axis in move.axes for n in axis)
        params += [origin, target, begin, end, *words, move.width, len(move.axes), *axes]
    return arrays, params, extent, max(1, extent * GRAIN // max(sum(move.nbytes for move in moves), 1))


def _moves(store: KernelStore) -> bool:
    """Whether a store may be a copy, judged without its alternatives: most kernels are not."""
    alternatives = store.expr.args if isinstance(store.expr, Choice) else (store.expr,)
    plain = store.combine is None and store.guard is None and store.value.element.itemsize in _WIDTHS
    return plain and all(isinstance(e, (KnownNumber, Load, Choice)) for e in alternatives)


def _boxes(kernel: Kernel, box: _Box) -> Iterator[tuple[Kernel, _Box]]:
    """The parts of a kernel in which the same alternatives hold."""
    found = choices(kernel.roots)
    v = next((v for v in kernel.variables if any(breaks(e, v) for e in found)), None)
    if v is None:
        yield kernel, box
        return
    for part in split(kernel, v):
        yield from _boxes(part.kernel, {**box, v: (part.begin, part.end)})


def _move(kernel: Kernel, store: KernelStore, box: _Box) -> Move | None:
    e, target, width = store.expr, store.position, store.value.element.itemsize
    if not isinstance(e, (KnownNumber, Load)) or e.dtype != store.value.element:
        return None
    origin = e.position if isinstance(e, Load) else Lin(0)
    if not all(type(atom) is LoopVar for p in (origin, target) for atom, _ in p.terms):
        return None
    axes = []
    for v in kernel.variables:
        begin, end = box.get(v, (0, v.size))
        axes.append((end - begin, _step(origin, v) * width, _step(target, v) * width))
    axes = _ordered(axes, width)
    if len(axes) > MOST_AXES:
        return None
    first, result = (
        width * (p.offset + sum(_step(p, v) * begin for v, (begin, _) in box.items())) for p in (origin, target)
    )
    if isinstance(e, KnownNumber):
        return Move(None, (store.value, result), e.scalar.tobytes(), width, axes)
    return Move((e.value, first), (store.value, result), b"", width, axes)


def _ordered(axes: list[_Axis], width: int) -> list[_Axis]:
    """Axes in the order of the target, merged where two are one in both arrays; the plane is last."""
    merged: list[_Axis] = []
    for size, read, written in sorted(axes, key=lambda axis: -abs(axis[2])):
        if merged and merged[-1][1:] == (read * size, written * size):
            merged[-1] = (merged[-1][0] * size, read, written)
        elif size != 1:
            merged.append((size, read, written))
    if not merged:
        return [(1, 0, width)]
    *outer, last = merged
    if abs(last[1]) != width:
        outer.sort(key=lambda axis: axis[1] == width)
    return [*outer, last]


def _in_chunks(move: Move) -> bool:
    """Whether `st_run` moves several elements of a plane at once."""
    width, *outer, (size, read, written) = move.width, *move.axes
    if written != width:
        return False
    turned = outer and outer[-1][1] == width and min(size, outer[-1][0]) * width >= TURNED
    return bool(turned) or read in (width, -width, 2 * width) or (read == 0 and size * width >= FILLED)


def _step(position: Lin, v: LoopVar) -> int:
    """Elements from one iteration of a loop to the next."""
    return next((c for atom, c in position.terms if atom is v), 0)
