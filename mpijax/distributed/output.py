"""Merges the output of the ranks that this process started: each line with its rank, equal lines once."""

from __future__ import annotations

import os
import selectors
import sys
import threading
from typing import Any

from mpijax.distributed.lines import Merger, Screen

_TURN_SECONDS = 0.05  # interval of checking lines that wait for other ranks


class MergedOutput:
    """Reads one pipe per rank and writes merged lines to `sys.stdout`, as it is at construction.

    Others may register files with the same `selector`; their data must not be a number.
    """

    def __init__(self, size: int, screen: Screen | None = None):
        self.selector = selectors.DefaultSelector()
        self._out = sys.stdout
        self._merger = Merger(size, self._write, screen=screen)
        self._open = 0
        self._thread: threading.Thread | None = None

    def stream(self, rank: int) -> int:
        """The descriptor to which `rank` writes; the caller closes it."""
        reading, writing = os.pipe()
        self.selector.register(reading, selectors.EVENT_READ, rank)
        self._open += 1
        return writing

    def turn(self, seconds: float = _TURN_SECONDS) -> list[Any]:
        """Pass on the output of the next `seconds`; returns the data of other registered files that are ready."""
        ready = []
        for key, _ in self.selector.select(seconds):
            if isinstance(key.data, int):
                self._read(key.fd, key.data)
            else:
                ready.append(key.data)
        self._merger.flush()
        return ready

    def rest(self) -> None:
        """Pass on everything written so far, including unfinished lines."""
        while any(isinstance(key.data, int) for key, _ in self.selector.select(0)):
            self.turn(0)
        self._merger.flush(everything=True)

    def redirect(self, stream: Any) -> None:
        """Write to another stream from now on."""
        self._out = stream

    def start(self) -> None:
        """Read in a separate thread. Call it once all ranks have their streams."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait for the ranks' last lines."""
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        while self._open:
            self.turn()
        self._merger.flush(everything=True)

    def _read(self, descriptor: int, rank: int) -> None:
        data = os.read(descriptor, 65536)
        if data:
            self._merger.feed(rank, data)
            return
        self.selector.unregister(descriptor)
        os.close(descriptor)
        self._open -= 1

    def _write(self, data: bytes) -> None:
        self._out.write(data.decode(errors="replace"))
        self._out.flush()
