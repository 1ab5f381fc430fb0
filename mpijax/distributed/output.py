"""What several ranks print, as one text: each line with its rank, the same line of several ranks once."""

import os
import selectors
import sys
import threading
import time
from collections import deque

_PATIENCE_SECONDS = 0.2  # how long a line waits for the other ranks' same line


class Merger:
    """Reads a pipe per rank and writes merged lines to `sys.stdout`, as it is when the merger is made."""

    def __init__(self, size: int):
        self.size = size
        self._selector = selectors.DefaultSelector()
        self._lines: list[deque[str]] = [deque() for _ in range(size)]
        self._rest = [b""] * size
        self._out = sys.stdout
        self._thread: threading.Thread | None = None

    def stream(self, rank: int) -> int:
        """The descriptor that `rank` writes to; the caller closes it."""
        reading, writing = os.pipe()
        self._selector.register(reading, selectors.EVENT_READ, rank)
        return writing

    def start(self) -> None:
        """To call once all ranks have their streams."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for the ranks' last lines."""
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        since = time.monotonic()
        while self._selector.get_map():
            events = self._selector.select(_PATIENCE_SECONDS)
            for key, _ in events:
                self._read(key.fd, key.data)
            while all(self._lines):
                self._write()
                since = time.monotonic()
            if not any(self._lines):
                since = time.monotonic()
            elif time.monotonic() - since >= _PATIENCE_SECONDS:
                self._write()
        while any(self._lines):
            self._write()

    def _read(self, descriptor: int, rank: int) -> None:
        data = os.read(descriptor, 65536)
        *lines, self._rest[rank] = (self._rest[rank] + data).split(b"\n")
        if not data:
            self._selector.unregister(descriptor)
            os.close(descriptor)
            lines = [self._rest[rank]] if self._rest[rank] else []
        self._lines[rank].extend(line.decode(errors="replace") for line in lines)

    def _write(self) -> None:
        """The first line of every rank that has one, equal ones together."""
        groups: dict[str, list[int]] = {}
        for rank, lines in enumerate(self._lines):
            if lines:
                groups.setdefault(lines.popleft(), []).append(rank)
        for line, ranks in groups.items():
            self._out.write(f"[{_ranges(ranks)}] {line}\n")
        self._out.flush()


def _ranges(ranks: list[int]) -> str:
    """``0-2,5`` of ``[0, 1, 2, 5]``."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    return ",".join("-".join(map(str, run)) for run in runs)
