"""Places of temporaries in a program's memory.

First fit between what is live, at multiples of `ALIGN`. Large values begin at different places of a page: a processor
compares only the low 12 bits of addresses to see whether a load needs what a store before it wrote, so a kernel that
reads neighbours in one array and writes another one that begins at the same place of a page waits for stores it does
not need, and shapes that are powers of two would make all arrays begin there. `cython_ext/pool.h` does the same for
arguments and results.
"""

from __future__ import annotations

from mpijax.compiler.plan import ALIGN

PAGE = 4096
# Bytes of a value from which on its place in the page counts, and how far from each other these places are to be.
LARGE = 1 << 16
APART = 512

# (begin, end, last step) of what is live
Span = tuple[int, int, int]


def aligned(n: int) -> int:
    return (n + ALIGN - 1) // ALIGN * ALIGN


def first_fit(live: list[Span], nbytes: int) -> int:
    """The lowest fitting offset where `nbytes` fit between what is live."""
    large = [start for start, end, _ in live if end - start >= LARGE] if nbytes >= LARGE else []
    offset = 0
    for start, end, _ in sorted(live):
        if _apart(offset, large) + nbytes <= start:
            break
        offset = max(offset, aligned(end))
    return _apart(offset, large)


def _apart(offset: int, others: list[int]) -> int:
    """The next offset that is far from the others in its page; if none is, the farthest."""

    def distance(candidate: int) -> int:
        return min((min((candidate - o) % PAGE, (o - candidate) % PAGE) for o in others), default=PAGE)

    candidates = range(offset, offset + PAGE, APART)
    return next((c for c in candidates if distance(c) >= APART), max(candidates, key=distance))
