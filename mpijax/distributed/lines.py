"""Merges lines of several ranks into one stream: each with its rank; equal lines that are close in time appear once.

A terminal shows the unfinished line as it grows: a progress bar, or text without its newline.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import field

from mpijax.core.base.lazy_dataclass import dataclass

# Seconds that a line waits for equal lines of other ranks; the same for mpijax's reports, which begin with the rank.
WINDOW = 0.25
REPORT_WINDOW = 1.0
# Minimum seconds between two states of an unfinished line in a notebook.
PAUSE = 0.1
_ENDS = re.compile(rb"\r?\n|\r(?!\n|$)")
_NEWLINES = re.compile(rb"\r*\n")
_REPORT = re.compile(rb"\[rank (\d+)\] ")
_ERASE = b"\r\x1b[K"


def ranges(numbers: Iterable[int]) -> str:
    """``0-3,5`` for 0, 1, 2, 3, 5."""
    parts: list[list[int]] = []
    for n in sorted(numbers):
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def visible(text: bytes) -> bytes:
    """The part of a line that a terminal shows: the text after the last carriage return."""
    return next((piece for piece in reversed(text.split(b"\r")) if piece), b"")


class Screen:
    """A terminal on which finished lines scroll, and one unfinished line stays at the bottom.

    The streams of a job (output, errors) share one screen, so that neither writes into the other's unfinished line.
    """

    def __init__(self, columns: Callable[[], int], *, erases: bool = True):
        """erases: whether it supports the escape sequence that erases a line.

        A notebook does not, and keeps everything written. So a notebook shows no lines that wait for other ranks, and
        updates an unfinished line at most every `PAUSE` seconds.
        """
        self._columns = columns
        self.erases = erases
        self._unfinished: dict[object, bytes] = {}  # by stream
        self._shown = b""
        self._since: float | None = None  # since when `_shown` is out of date

    def put(self, stream: object, write: Callable[[bytes], object], lines: bytes, unfinished: bytes) -> None:
        """Write a stream's finished lines, and show its unfinished line."""
        self._unfinished[stream] = unfinished
        bottom = self._fitting(next((text for text in self._unfinished.values() if text), b""))
        if not self.erases and not self._is_due(bottom):
            bottom = b"" if lines else self._shown
        if lines or bottom != self._shown:
            self._since = None
            write(self._erasure() + lines + bottom)
            self._shown = bottom

    def _is_due(self, bottom: bytes) -> bool:
        if not bottom or bottom == self._shown:
            return True
        if self._since is None:
            self._since = time.monotonic()
        return time.monotonic() - self._since >= PAUSE

    def _erasure(self) -> bytes:
        if self.erases or not self._shown:
            return _ERASE if self._shown else b""
        return b"\r" + b" " * len(self._shown.decode(errors="replace")) + b"\r"

    def _fitting(self, text: bytes) -> bytes:
        """The text cut to one row, because only one row can be erased. Text with escape sequences is not cut."""
        if b"\x1b" in text:
            return text
        return text.decode(errors="replace")[: self._columns() - 1].encode()


@dataclass
class _OutputLine:
    text: bytes
    since: float
    window: float = WINDOW
    ranks: set[int] = field(default_factory=set)

    def marked(self) -> bytes:
        return b"[%s] %s" % (ranges(self.ranks).encode(), self.text)


class Merger:
    """Takes the ranks' output in pieces; writes complete lines as ``[0-3] text``, in each rank's order.

    A line is written when all ranks have written it, or `WINDOW` seconds after the first one did. Without a `screen`, a
    carriage return ends a line too, so that progress bars are visible.
    """

    def __init__(
        self,
        ranks: int,
        write: Callable[[bytes], object],
        clock: Callable[[], float] = time.monotonic,
        screen: Screen | None = None,
    ):
        self._size = ranks
        self._write = write
        self._clock = clock
        self._screen = screen
        self._rest = [b""] * ranks
        self._waiting: list[_OutputLine] = []

    def feed(self, rank: int, data: bytes) -> None:
        """Take a piece of a rank's output."""
        *lines, rest = (_NEWLINES if self._screen else _ENDS).split(self._rest[rank] + data)
        self._rest[rank] = rest
        if self._screen:
            lines = [visible(text) for text in lines]
            if b"\r" in rest[:-1]:  # drop text that a progress bar has overwritten
                self._rest[rank] = visible(rest) + (b"\r" if rest.endswith(b"\r") else b"")
        for text in lines:
            self._add(rank, text)
        self.flush()

    def _add(self, rank: int, text: bytes) -> None:
        report = _REPORT.match(text)
        if report and int(report[1]) == rank:  # the prefix of this line repeats that
            text = text[report.end() :]
        # Only lines after this rank's latest one, to preserve its own order.
        after = max((i + 1 for i, line in enumerate(self._waiting) if rank in line.ranks), default=0)
        line = next((line for line in self._waiting[after:] if line.text == text), None)
        if line is None:
            line = _OutputLine(text, self._clock(), REPORT_WINDOW if report else WINDOW)
            self._waiting.append(line)
        line.ranks.add(rank)

    def flush(self, everything: bool = False) -> None:
        """Write lines that have waited long enough; with `everything`, all of them, also incomplete ones."""
        if everything:
            for rank, rest in enumerate(self._rest):
                if rest:
                    self._add(rank, visible(rest) if self._screen else rest)
            self._rest = [b""] * self._size
        now, ready = self._clock(), 0
        for line in self._waiting:
            if not (everything or line.since + line.window <= now or len(line.ranks) == self._size):
                break
            ready += 1
        done, self._waiting = self._waiting[:ready], self._waiting[ready:]
        text = b"".join(line.marked() + b"\n" for line in done)
        if self._screen:
            self._screen.put(self, self._write, text, self._unfinished())
        elif text:
            self._write(text)

    def _unfinished(self) -> bytes:
        """The unfinished line of the first rank that has one, with all ranks that have the same; else the line that
        waits for other ranks."""
        seen = [visible(rest) for rest in self._rest]
        first = next((text for text in seen if text), None)
        if first is not None:
            return _OutputLine(first, 0.0, ranks={r for r, text in enumerate(seen) if text == first}).marked()
        return self._waiting[0].marked() if self._waiting and self._screen is not None and self._screen.erases else b""

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)
