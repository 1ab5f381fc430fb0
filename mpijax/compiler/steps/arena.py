"""Places of temporaries in a program's memory.

First fit between what is live, at multiples of `ALIGN`. Large values begin at different places of a page: a processor
compares only the low 12 bits of addresses to see whether a load needs what a store before it wrote, so a kernel that
reads neighbours in one array and writes another one that begins at the same place of a page waits for stores it does
not need, and shapes that are powers of two would make all arrays begin there. `cython_ext/pool.h` does the same for
arguments and results.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter

from mpijax.compiler.steps.plan import ALIGN

PAGE = 4096
LINES = PAGE // ALIGN
# Bytes of a value from which on its place in the page counts, and how many lines these places are to be apart.
LARGE = 1 << 20
APART = 8

# (begin, end, last step) of what is live
Span = tuple[int, int, int]


def aligned(n: int) -> int:
    return (n + ALIGN - 1) // ALIGN * ALIGN


def first_fit(live: list[Span], nbytes: int) -> int:
    """The lowest fitting offset where `nbytes` fit between what is live."""
    near = _lines_near([start for start, end, _ in live if end - start >= LARGE]) if nbytes >= LARGE else 0
    offset = 0
    for start, end, _ in sorted(live):
        if offset + nbytes <= start and _apart(offset, near) + nbytes <= start:
            break
        offset = max(offset, aligned(end))
    return _apart(offset, near)


class Room:
    """An arena while a program is gone through: `first_fit`, without looking at all that is live."""

    def __init__(self, live: list[Span]):
        # Free stretches of memory, in order; nothing lies behind the last one.
        self.starts = [0]
        self.ends: list[float] = [math.inf]
        self.ending: dict[int, list[tuple[int, int]]] = {}
        self.large: Counter[int] = Counter()
        for start, end, last in sorted(live):
            self._take(start, end, last)

    def place(self, nbytes: int, last: int) -> int:
        """Where a value of so many bytes goes, which is live until step `last`."""
        near = _lines_near(list(self.large)) if nbytes >= LARGE else 0
        for start, end in zip(self.starts, self.ends, strict=True):
            offset = _apart(start, near)
            if offset + nbytes <= end:
                break
        self._take(offset, offset + nbytes, last)
        return offset

    def leave(self, step: int) -> None:
        """Free what is live until `step`."""
        for start, end in self.ending.pop(step, ()):
            self._free(start, end)

    def _take(self, start: int, end: int, last: int) -> None:
        if end == start:
            return
        self.ending.setdefault(last, []).append((start, end))
        if end - start >= LARGE:
            self.large[start % PAGE] += 1
        k = bisect_right(self.starts, start) - 1
        if k < 0 or self.ends[k] <= start:
            return  # shares memory with something that is live
        before, after, end = self.starts[k], self.ends[k], aligned(end)
        left = [(before, start)] if before < start else []
        right = [(end, after)] if end < after else []
        self.starts[k : k + 1] = [a for a, _ in left + right]
        self.ends[k : k + 1] = [b for _, b in left + right]

    def _free(self, start: int, end: int) -> None:
        if end - start >= LARGE:
            self.large -= Counter([start % PAGE])
        k, stop = bisect_right(self.starts, start), float(aligned(end))
        if k < len(self.starts) and self.starts[k] == stop:
            del self.starts[k]
            stop = self.ends.pop(k)
        if k and self.ends[k - 1] == start:
            self.ends[k - 1] = stop
            return
        self.starts.insert(k, start)
        self.ends.insert(k, stop)


def _lines_near(others: list[int]) -> int:
    """The lines of a page near which others begin, as bits."""
    near = 0
    for line in {o % PAGE // ALIGN for o in others}:
        for k in range(line - APART + 1, line + APART):
            near |= 1 << k % LINES
    return near


def _apart(offset: int, near: int) -> int:
    """The next offset that is not near the others in its page; if all are, the offset itself."""
    candidates = range(offset, offset + PAGE, APART * ALIGN)
    return next((c for c in candidates if not near >> c % PAGE // ALIGN & 1), offset)
