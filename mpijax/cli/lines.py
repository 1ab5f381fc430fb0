"""Lines of several ranks as one stream: each with its rank, equal ones that come close together only once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

# Seconds that a line waits for the same line of other ranks.
WINDOW = 0.25
_ENDS = re.compile(rb"\r?\n|\r(?!\n|$)")


def ranges(numbers: Iterable[int]) -> str:
    """``0-3,5`` for 0, 1, 2, 3, 5."""
    parts: list[list[int]] = []
    for n in sorted(numbers):
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


@dataclass
class _Line:
    text: bytes
    since: float
    ranks: set[int] = field(default_factory=set)


class Merger:
    """Takes the ranks' output by pieces, hands complete lines on as ``[0-3] text``, in each rank's order.

    A line is handed on when all ranks have written it, or `WINDOW` after the first one did. A carriage return ends a
    line too, so that progress bars show.
    """

    def __init__(self, ranks: int, write: Callable[[bytes], object], clock: Callable[[], float] = time.monotonic):
        self._size = ranks
        self._write = write
        self._clock = clock
        self._rest = [b""] * ranks
        self._waiting: list[_Line] = []

    def feed(self, rank: int, data: bytes) -> None:
        """Take what a rank wrote."""
        *lines, self._rest[rank] = _ENDS.split(self._rest[rank] + data)
        for text in lines:
            self._add(rank, text)
        self.flush()

    def _add(self, rank: int, text: bytes) -> None:
        # Only lines after this rank's latest one: its own order must stay.
        after = max((i + 1 for i, line in enumerate(self._waiting) if rank in line.ranks), default=0)
        line = next((line for line in self._waiting[after:] if line.text == text), None)
        if line is None:
            line = _Line(text, self._clock())
            self._waiting.append(line)
        line.ranks.add(rank)

    def flush(self, everything: bool = False) -> None:
        """Hand on what has waited long enough; with `everything`, all, incomplete lines too."""
        if everything:
            for rank, rest in enumerate(self._rest):
                if rest:
                    self._add(rank, rest)
            self._rest = [b""] * self._size
        ripe = self._clock() - WINDOW
        ready = 0
        for line in self._waiting:
            if not (everything or line.since <= ripe or len(line.ranks) == self._size):
                break
            ready += 1
        if ready:
            done, self._waiting = self._waiting[:ready], self._waiting[ready:]
            self._write(b"".join(b"[%s] %s\n" % (ranges(line.ranks).encode(), line.text) for line in done))

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)
