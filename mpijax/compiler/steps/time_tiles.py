"""Time tiling: a loop over large arrays computes several turns of a tile of rows while the tile is in cache.

A loop such as a stencil's reads and writes all of its arrays in each turn. Arrays larger than the cache then come from
memory in each turn. Here `depth` turns run together: the kernels of the first turn compute the first rows, those of the
second turn follow some rows behind, and so on; then all move on by a tile. Each array element is computed once, by the
same kernel, from the same operands, so the bits are those of the plain loop.

How far a kernel stays behind follows from what kernels read and write. Let kernel j come before kernel i, let both use
one array, and let one of them write it. Kernel j uses the rows `[r + low_j, r + high_j]` when it computes row r, and
kernel i likewise. Before kernel i computes row r, kernel j must be done with all rows up to `r + high_i - low_j`. So

    above_i = max over j of above_j and above_j + high_i - low_j

and in the other direction `below_i` with `high_j - low_i`. The executor (`cython_ext/time_tiles.h`) uses both: threads
share the rows in ranges. Each range first computes what needs no neighbour: kernel i leaves out its last `above_i` and
its first `below_i` rows. Then the rows left out around each border between two ranges follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.loops.caches import cache_size
from mpijax.compiler.steps.instructions import (
    Buffer,
    Copy,
    Input,
    KernelCall,
    Loop,
    Output,
    Place,
    Point,
    Swap,
    Temp,
    TimeTiles,
    accesses,
)
from mpijax.compiler.steps.reach import Reach, Window, reach_of
from mpijax.core import config
from mpijax.core.lazy_dataclass import dataclass

# Turns done together, at most; and kernels of a turn, at most.
DEPTH = 16
MOST_KERNELS = 24
# The part of a cache that tiles fill, for the second and the third level. Threads share the third one.
FILLED = {2: 0.6, 3: 0.25}
# Elements of a tile, at least: the call of a kernel costs about as much as a hundred.
LEAST_ELEMENTS = 1 << 13
# An array is tiled only if it has so many times the rows that kernels of one tile stay behind each other.
SEVERAL = 4


# What memory an instruction uses: the same key, the same bytes.
Memory = tuple[str, int]


@dataclass(frozen=True)
class _Call:
    """A kernel of the body, with its windows by entry of the table of buffers."""

    instruction: KernelCall
    reach: Reach
    windows: dict[int, Window]


def in_time_tiles(
    loop: Loop,
    kernels: dict[int, Kernel],
    place: Callable[[Value], Place],
    buffers: Sequence[Buffer],
    before: Sequence[Any],
) -> list[Any]:
    """A loop after the instructions `before` it, in tiles where that is faster.

    What does not depend on the large arrays becomes a loop of its own. kernels: those of the body, by position. place:
    of their arrays.
    """
    if not config.values.mpijax_time_tiles or loop.count < 2:
        return [*before, loop]
    body = _Body(loop, kernels, place, buffers, before)
    tiles = body.tiles()
    if tiles is None:
        return [*before, loop]
    copies = {x.target: x for x in before if isinstance(x, Copy) and not body.uses(x.origin)}
    starts = {x: copies[x.place] for x in before if isinstance(x, Point) and x.place in copies and body.only_reads(x)}
    left = [x for x in before if x not in starts.values()]
    alone = [replace(loop, body=tuple(body.others))] if body.others else []
    tiles = replace(tiles, starts=tuple(Point(x.pointer, copy.origin) for x, copy in starts.items()))
    return [*left, *alone, replace(loop, body=(*(c.instruction for c in body.calls), *body.swaps), tiles=tiles)]


class _Body:
    """The body of a loop. calls: its large kernels. others: instructions that depend on none of them."""

    def __init__(self, loop, kernels, place, buffers, before):
        self.count = loop.count
        self.buffers = buffers
        self.points = {x.pointer: x.place for x in before if isinstance(x, Point)}
        self.swaps = [x for x in loop.body if isinstance(x, Swap)]
        self.swapped = {a: b for s in self.swaps for a, b in ((s.first, s.second), (s.second, s.first))}
        self.large = [k for k, x in enumerate(loop.body) if isinstance(x, KernelCall) and self._is_large(x)]
        self.others = [x for k, x in enumerate(loop.body) if k not in self.large and not isinstance(x, Swap)]
        self.kernels = [(loop.body[k], kernels.get(k)) for k in self.large]
        self.place = place
        self.calls: list[_Call] = []

    def _is_large(self, x: KernelCall) -> bool:
        return sum(self.buffers[self._start(p).buffer].nbytes for p in x.ptrs) > cache_size(2)

    def _start(self, place: Place) -> Place:
        """Where a pointer points to in the first turn; another place is itself."""
        while place.buffer in self.points:
            place = self.points[place.buffer]
        return place

    def tiles(self) -> TimeTiles | None:
        """How to run the loop in tiles, or None."""
        plain = all(isinstance(x, (KernelCall, Copy)) for x in self.others)
        if not plain or not 0 < len(self.kernels) <= MOST_KERNELS or len(self.swapped) != 2 * len(self.swaps):
            return None
        if not self._are_apart():
            return None
        for instruction, kernel in self.kernels:
            reach = None if kernel is None else reach_of(kernel)
            if reach is None or reach.unit * reach.rows != instruction.extent:
                return None
            windows: dict[int, Window] = {}
            for v, window in reach.windows.items():
                at = self.place(v)
                windows[at.buffer] = windows[at.buffer].joined(window) if at.buffer in windows else window
                if window.writes and at.offset:
                    return None
            self.calls.append(_Call(instruction, reach, windows))
        return self._chosen() if self._has_equal_rows() else None

    def memory(self, buffer: int, turn: int) -> Memory:
        """The memory of an entry of the table in a turn of the loop."""
        if turn % 2 and buffer in self.swapped:
            buffer = self.swapped[buffer]
        buffer = self._start(Place(buffer)).buffer
        entry = self.buffers[buffer]
        if isinstance(entry, Temp):
            return "temp", entry.offset
        if isinstance(entry, Input) or isinstance(entry, Output) and entry.donor >= 0:
            return "argument", entry.index if isinstance(entry, Input) else entry.donor
        return "buffer", buffer

    def uses(self, place: Place) -> bool:
        """Whether a large kernel uses the memory at a place."""
        memory = self.memory(place.buffer, 0)
        return any(self.memory(b, turn) == memory for call in self.calls for b in call.windows for turn in (0, 1))

    def only_reads(self, point: Point) -> bool:
        """Whether the first turn only reads the memory that a pointer starts at."""
        start = self.memory(point.pointer, 0)
        users = [(b, w) for call in self.calls for b, w in call.windows.items() if self.memory(b, 0) == start]
        return bool(users) and all(b == point.pointer and not w.writes for b, w in users)

    def _are_apart(self) -> bool:
        """Whether the other instructions use no memory of the large kernels, and temporaries do not overlap in part."""
        used = [
            {self.memory(place.buffer, turn) for x in xs for place, _ in accesses(x) for turn in (0, 1)}
            for xs in ([x for x, _ in self.kernels], self.others)
        ]
        spans = {}
        for place in (p for x, _ in self.kernels for p in x.ptrs):
            if place.buffer in self.points and self._start(place).offset:
                return False
            entry = self.buffers[self._start(place).buffer]
            if isinstance(entry, Temp):
                spans[entry.offset] = max(entry.nbytes, spans.get(entry.offset, 0))
        ends = sorted(spans.items())
        overlap = any(offset + n > following for (offset, n), (following, _) in zip(ends, ends[1:], strict=False))
        return not overlap and not used[0] & used[1]

    def _has_equal_rows(self) -> bool:
        """Whether the rows of each memory that is written have one size, and arrays that wrap have all rows."""
        sizes: dict[Memory, set[int]] = {}
        written = set()
        for call in self.calls:
            for buffer, w in call.windows.items():
                for turn in (0, 1):
                    memory = self.memory(buffer, turn)
                    sizes.setdefault(memory, set()).add(w.row_bytes)
                    if w.writes:
                        written.add(memory)
        if any(len(sizes[memory]) > 1 for memory in written):
            return False
        rows = max(call.reach.rows for call in self.calls)
        return not self.wraps or all(
            call.reach.rows == rows and all(w.rows == rows for w in call.windows.values() if w.wraps)
            for call in self.calls
        )

    @property
    def wraps(self) -> bool:
        return any(w.wraps for call in self.calls for w in call.windows.values())

    def _chosen(self) -> TimeTiles | None:
        """The depth and the height of tiles, by the sizes of rows and caches."""
        rows = max(call.reach.rows for call in self.calls)
        row_bytes = {self.memory(b, 0): w.row_bytes for call in self.calls for b, w in call.windows.items() if w.rows > 1}
        per_row = sum(row_bytes.values())
        elements = max(w.row_bytes // 4 for call in self.calls for w in call.windows.values())
        least = max(2, -(-LEAST_ELEMENTS // max(elements, 1)))
        if not per_row:
            return None
        above, below = self._behind(min(DEPTH, self.count), rows)
        several = len(self.calls)
        for level in (2, 3):
            room = int(cache_size(level) * FILLED[level]) // per_row
            if rows <= room:  # the arrays stay in this cache anyway
                return None
            for depth in range(len(above) // several, 2 if level == 2 else 1, -1):
                behind = above[depth * several - 1] + below[depth * several - 1]
                height = room - behind
                if height >= least and rows >= SEVERAL * behind:
                    groups = -(-self.count // depth)
                    depth = -(-self.count // groups)  # all groups about equal
                    n = depth * several
                    height = room - above[n - 1] - below[n - 1]
                    units = tuple(call.reach.unit for call in self.calls)
                    return TimeTiles(rows, depth, height, units, tuple(above[:n]), tuple(below[:n]), self.wraps)
        return None

    def _behind(self, depth: int, rows: int) -> tuple[list[int], list[int]]:
        """`above` and `below` of the kernels of `depth` turns; fewer turns where they would exceed the array."""
        calls, above, below = self.calls, list[int](), list[int]()
        uses: list[dict[Memory, Window]] = []
        for turn in range(depth):
            for call in calls:
                own: dict[Memory, Window] = {}
                for buffer, w in call.windows.items():
                    memory = self.memory(buffer, turn)
                    own[memory] = own[memory].joined(w) if memory in own else w
                # A kernel writes again after two turns what it has written before: earlier ones need no look.
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
                return above[: turn * len(calls)], below[: turn * len(calls)]
        return above, below
