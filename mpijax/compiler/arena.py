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
