"""Time tiling: a loop over large arrays computes several iterations of a tile of rows while the tile is in cache.

A stencil's loop reads and writes all of its arrays in each iteration. Arrays larger than the cache then come from
memory in each iteration. Time tiling runs groups of `depth` iterations: the kernels of the first iteration compute a
tile of rows, those of the second iteration follow some rows behind, and so on; then all move on by a tile. The same
kernels compute the same elements from the same operands, so the results have the same bits as those of the plain loop.

How far a kernel stays behind follows from what kernels read and write. Let kernel j come before kernel i, let both use
one array, and let one of them write it. Kernel j uses the rows `[r + low_j, r + high_j]` when it computes row r, and
kernel i likewise. Before kernel i computes row r, kernel j must be done with all rows up to `r + high_i - low_j`. So

    above_i = max over j of above_j and above_j + high_i - low_j

and in the other direction `below_i` with `high_j - low_i`. The executor (`cython_ext/time_tiles.h`) uses both: threads
share the rows in ranges. Each range first computes what needs no neighbour: kernel i leaves out its last `above_i` and
its first `below_i` rows. Then the rows left out around each border between two ranges follow.

A first loop computes the small values of all iterations, such as their numbers, and stores them one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.loops.caches import cache_size
from mpijax.compiler.steps.arena import aligned
from mpijax.compiler.steps.instructions import (
    Advance,
    Copy,
    Input,
    KernelCall,
    Loop,
    Output,
    Place,
    Point,
    Pointer,
    Swap,
    Temp,
    TimeTiles,
    accesses,
)
from mpijax.compiler.steps.plan import PlanBuilder
from mpijax.compiler.steps.reach import Reach, RowWindow, reach_of
from mpijax.core.base import config
from mpijax.core.base.lazy_dataclass import dataclass

# Iterations of a group, and kernels of an iteration, at most.
DEPTH = 16
MOST_KERNELS = 24
# The part of a cache that tiles fill, for the second and the third level. Threads share the third one.
FILLED = {2: 0.6, 3: 0.25}
# Elements of a tile, at least: a kernel call costs as much as about a hundred.
LEAST_ELEMENTS = 1 << 13
# A loop is tiled only if its arrays have this many times the rows by which a group's last kernel stays behind.
SEVERAL = 4
# Bytes of the small values of one iteration, and of all iterations, at most.
SMALL = 1 << 12
SMALL_OF_ALL_TURNS = 1 << 20

# Identifies memory: equal keys, the same bytes.
Memory = tuple[str, int]


@dataclass(frozen=True)
class _LargeKernel:
    """A large kernel of the body. at: its place in the body. windows: by entry of the table of buffers."""

    at: int
    instruction: KernelCall
    reach: Reach
    windows: dict[int, RowWindow]


def in_time_tiles(
    loop: Loop,
    kernels: dict[int, Kernel],
    place: Callable[[Value], Place],
    plan: PlanBuilder,
    before: Sequence[Any],
) -> list[Any]:
    """The instructions `before` a loop and the loop, in tiles where that is faster.

    Instructions that depend on no large array become a loop of their own, which runs first. kernels: the kernels of the
    body, by position. place: the place of a kernel's array.
    """
    if not config.values.mpijax_time_tiles or loop.count < 2:
        return [*before, loop]
    body = _TiledBody(loop, kernels, place, plan, before)
    tiles = body.tiles()
    if tiles is None:
        return [*before, loop]
    copies = {x.target: x for x in before if isinstance(x, Copy) and not body.uses(x.origin)}
    starts = {x: copies[x.place] for x in before if isinstance(x, Point) and x.place in copies and body.only_reads(x)}
    tiles = replace(tiles, starts=tuple(Point(x.pointer, copy.origin) for x, copy in starts.items()))
    left = [x for x in before if x not in starts.values()]
    points, small, iteration = body.apart()
    alone = [replace(loop, body=tuple(small))] if small else []
    return [*left, *points, *alone, replace(loop, body=tuple(iteration), tiles=tiles)]


class _TiledBody:
    """The body of a loop. large, small: positions of its large kernels and of its other computing instructions. calls:
    the large kernels with their windows. varying: bytes of each small value that they read, by entry of the table.
    """

    def __init__(
        self,
        loop: Loop,
        kernels: dict[int, Kernel],
        place: Callable[[Value], Place],
        plan: PlanBuilder,
        before: Sequence[Any],
    ):
        self.loop, self.kernels, self.place = loop, kernels, place
        self.plan, self.buffers = plan, plan.buffers
        self.points = {x.pointer: x.place for x in before if isinstance(x, Point)}
        self.swaps = [x for x in loop.body if isinstance(x, Swap)]
        self.advances = [x for x in loop.body if isinstance(x, Advance)]
        self.swapped = {a: b for s in self.swaps for a, b in ((s.first, s.second), (s.second, s.first))}
        self.large = [k for k, x in enumerate(loop.body) if isinstance(x, KernelCall) and self._is_large(k, x)]
        self.small = [
            k for k, x in enumerate(loop.body) if k not in self.large and not isinstance(x, (Swap, Advance))
        ]
        self.calls: list[_LargeKernel] = []
        self.varying: dict[int, int] = {}

    def _is_large(self, k: int, x: KernelCall) -> bool:
        kernel = self.kernels.get(k)
        values = () if kernel is None else (kernel.reads() | kernel.writes()).values()
        return sum(v.nbytes for v in values) > cache_size(2)

    def _start(self, place: Place) -> Place:
        """The place that a pointer points to in the first iteration; any other place itself."""
        while place.buffer in self.points:
            place = self.points[place.buffer]
        return place

    # ------------------------------------------------------------ memory

    def memory(self, buffer: int, iteration: int) -> Memory:
        """The memory of an entry of the table in an iteration."""
        if iteration % 2 and buffer in self.swapped:
            buffer = self.swapped[buffer]
        buffer = self._start(Place(buffer)).buffer
        entry = self.buffers[buffer]
        if isinstance(entry, Temp):
            return "temp", entry.offset
        if isinstance(entry, Input) or isinstance(entry, Output) and entry.donor >= 0:
            return "argument", entry.index if isinstance(entry, Input) else entry.donor
        return "buffer", buffer

    def _memories(self, buffers: Iterable[int]) -> set[Memory]:
        return {self.memory(b, iteration) for b in buffers for iteration in (0, 1)}

    def _written(self, places: Sequence[int]) -> set[Memory]:
        """The memory that kernels and copies of the body write."""
        buffers = []
        for k in places:
            x = self.loop.body[k]
            buffers += [x.target.buffer] if isinstance(x, Copy) else []
            buffers += [self.place(v).buffer for v in self.kernels[k].writes().values()] if k in self.kernels else []
        return self._memories(buffers)

    def _used(self, places: Sequence[int]) -> set[Memory]:
        return self._memories(place.buffer for k in places for place, _ in accesses(self.loop.body[k]))

    def uses(self, place: Place) -> bool:
        """Whether a large kernel uses the memory at a place."""
        return self.memory(place.buffer, 0) in self._memories(b for call in self.calls for b in call.windows)

    def only_reads(self, point: Point) -> bool:
        """Whether the first iteration only reads the memory that a pointer starts at."""
        start = self.memory(point.pointer, 0)
        users = [(b, w) for call in self.calls for b, w in call.windows.items() if self.memory(b, 0) == start]
        return bool(users) and all(b == point.pointer and not w.writes for b, w in users)

    # ------------------------------------------------------------ whether it can be tiled

    def tiles(self) -> TimeTiles | None:
        """How to run the loop in tiles, or None."""
        if not 0 < len(self.large) <= MOST_KERNELS or len(self.swapped) != 2 * len(self.swaps):
            return None
        if not self._small_come_first() or self._temporaries_overlap():
            return None
        for k in self.large:
            reach = reach_of(self.kernels[k])
            instruction = self.loop.body[k]
            if reach is None or reach.unit * reach.rows != instruction.extent:
                return None
            windows: dict[int, RowWindow] = {}
            for v, window in reach.windows.items():
                at = self.place(v)
                if window.writes and at.offset:
                    return None
                if at.buffer not in self.varying:
                    windows[at.buffer] = windows[at.buffer].joined(window) if at.buffer in windows else window
            self.calls.append(_LargeKernel(k, instruction, reach, windows))
        return self._chosen() if self._has_equal_rows() else None

    def _small_come_first(self) -> bool:
        """Whether the small instructions read nothing that large kernels write. Sets `varying`."""
        body = self.loop.body
        moved = {x.pointer for x in self.advances} | set(self.swapped)
        plain = all(isinstance(body[k], Copy) or k in self.kernels for k in self.small)
        if not plain or any(place.buffer in moved for k in self.small for place, _ in accesses(body[k])):
            return False
        changes = self._written(self.small)
        if self._written(self.large) & self._used(self.small):
            return False
        read = {self.place(v).buffer: v.nbytes for k in self.large for v in self.kernels[k].reads().values()}
        self.varying = {b: n for b, n in read.items() if self.memory(b, 0) in changes}
        return sum(self.varying.values()) <= min(SMALL, SMALL_OF_ALL_TURNS // self.loop.count)

    def _temporaries_overlap(self) -> bool:
        """Whether temporaries of the large kernels overlap without being at the same place."""
        spans: dict[int, int] = {}
        for place in (p for k in self.large for p in self.loop.body[k].ptrs):
            start = self._start(Place(place.buffer))
            entry = self.buffers[start.buffer]
            if isinstance(entry, Temp):
                spans[entry.offset] = max(entry.nbytes, spans.get(entry.offset, 0))
            if start.offset and place.buffer in self.swapped:
                return True
        ends = sorted(spans.items())
        return any(offset + n > following for (offset, n), (following, _) in zip(ends, ends[1:], strict=False))

    def _has_equal_rows(self) -> bool:
        """Whether the rows of each memory that is written have one size, and arrays that wrap have all rows."""
        sizes: dict[Memory, set[int]] = {}
        written = set()
        for call in self.calls:
            for buffer, w in call.windows.items():
                for memory in self._memories([buffer]):
                    sizes.setdefault(memory, set()).add(w.row_bytes)
                    if w.writes:
                        written.add(memory)
        if self.wraps and any(call.reach.rows != self.rows for call in self.calls):
            return False
        if any(w.wraps and w.rows != self.rows for call in self.calls for w in call.windows.values()):
            return False
        return all(len(sizes[memory]) == 1 for memory in written)

    @property
    def rows(self) -> int:
        return max(call.reach.rows for call in self.calls)

    @property
    def wraps(self) -> bool:
        return any(w.wraps for call in self.calls for w in call.windows.values())

    # ------------------------------------------------------------ the tiles

    def _chosen(self) -> TimeTiles | None:
        """The depth and the height of tiles, by the sizes of rows and caches."""
        rows = self.rows
        used = [item for call in self.calls for item in call.windows.items()]
        windows = {self.memory(b, 0): (b, w) for b, w in used if w.rows > 1}
        advancing = {x.pointer for x in self.advances}
        stay = sum(w.row_bytes for b, w in windows.values() if b not in advancing)
        pass_by = sum(w.row_bytes for b, w in windows.values() if b in advancing)
        elements = max((w.row_bytes // 4 for _, w in windows.values()), default=0)
        if not stay:
            return None
        least = max(2, -(-LEAST_ELEMENTS // max(elements, 1)))
        above, below = self._behind(min(DEPTH, self.loop.count), rows)
        several = len(self.calls)
        for level in (2, 3):
            room = int(cache_size(level) * FILLED[level])
            if rows * stay <= room:  # the arrays stay in this cache anyway
                return None
            for most in range(len(above) // several, 2 if level == 2 else 1, -1):
                depth = -(-self.loop.count // -(-self.loop.count // most))  # groups of about equal length
                n = depth * several
                behind = above[n - 1] + below[n - 1]
                height = room // (stay + depth * pass_by) - behind
                if height >= least and rows >= SEVERAL * behind:
                    units = tuple(call.reach.unit for call in self.calls)
                    return TimeTiles(rows, depth, height, units, tuple(above[:n]), tuple(below[:n]), self.wraps)
        return None

    def _behind(self, depth: int, rows: int) -> tuple[list[int], list[int]]:
        """`above` and `below` of the kernels of `depth` iterations, or of fewer, if they would exceed the array."""
        calls, above, below = self.calls, list[int](), list[int]()
        uses: list[dict[Memory, RowWindow]] = []
        for iteration in range(depth):
            for call in calls:
                own: dict[Memory, RowWindow] = {}
                for buffer, w in call.windows.items():
                    memory = self.memory(buffer, iteration)
                    own[memory] = own[memory].joined(w) if memory in own else w
                # After two iterations a kernel writes the same array again, so older uses add no constraint.
                first = max(0, len(uses) - 3 * len(calls))
                needs = [
                    (j, window.high - other.low, other.high - window.low)
                    for j in range(first, len(uses))
                    for memory, window in own.items()
                    if (other := uses[j].get(memory)) is not None and (window.writes or other.writes)
                ]
                above.append(max([0, *above[-1:], *(above[j] + up for j, up, _ in needs)]))
                below.append(max([0, *below[-1:], *(below[j] + down for j, _, down in needs)]))
                uses.append(own)
            if above[-1] + below[-1] > rows:
                return above[: iteration * len(calls)], below[: iteration * len(calls)]
        return above, below

    # ------------------------------------------------------------ two loops

    def apart(self) -> tuple[list[Any], list[Any], list[Any]]:
        """`Point`s to set before, the body of the small instructions, and the body of the large kernels."""
        points: list[Any] = []
        moves: list[Any] = []
        small: list[Any] = []
        iteration: list[Any] = []
        advances: list[Any] = [*self.swaps, *self.advances]
        calls = {call.at: call.instruction for call in self.calls}
        for k, x in enumerate(self.loop.body):
            if k in self.small:
                small.append(x)
            if k in calls:
                read: dict[int, int] = {}
                for b in self.varying.keys() & {place.buffer for place in x.ptrs}:
                    written, read[b] = self._kept(b, points)
                    small.append(Copy(Place(written), Place(b), self.varying[b]))
                    moves.append(Advance(written, self.varying[b]))
                    advances.append(Advance(read[b], self.varying[b]))
                ptrs = tuple(Place(read.get(p.buffer, p.buffer), p.offset) for p in x.ptrs)
                iteration.append(replace(x, ptrs=ptrs))
        return points, [*small, *moves], [*iteration, *advances]

    def _kept(self, buffer: int, points: list[Any]) -> tuple[int, int]:
        """Two pointers to memory for a small value of all iterations: one to write it, one to read it."""
        size = self.varying[buffer] * self.loop.count
        memory, first = len(self.buffers), len(self.buffers) + 1
        self.buffers += [Temp(self.plan.arena, size), Pointer(), Pointer()]
        self.plan.arena = aligned(self.plan.arena + size)
        points += [Point(first, Place(memory)), Point(first + 1, Place(memory))]
        return first, first + 1
