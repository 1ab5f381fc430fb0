"""The log of operations between ranks: `MPIJAX_LOG_OPERATIONS=1`, or mpi4jax's `MPI4JAX_DEBUG=1`."""

from __future__ import annotations

import math
import re
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any


class OperationLog:
    """Prints a line when an operation of a program begins, and one when it ends, also with an error.

    The executor calls `begins` and `ends` while the option is set.
    """

    def __init__(self, recorder: Any):
        self.recorder = recorder
        self.count = 0
        # Number, name and begin in seconds of the operations in progress. They end in the order in which they began.
        self.going: deque[tuple[int, str, float]] = deque()

    def begins(self, site: int) -> None:
        """Print that an operation begins. site: its number in the record."""
        self.count += 1
        what, _, details = str(self.recorder.now(site)).partition(" ")
        name, shape = f"MPI_{what.capitalize()}", re.search(r"\[([\d,]*)\]", details)
        items = math.prod(int(n) for n in shape[1].split(",") if n) if shape else 0
        self.write(self.count, f"{name} with {items} items: {details}")
        self.going.append((self.count, name, time.perf_counter()))

    def ends(self, code: int) -> None:
        """Print that the operation that began first has ended. code: MPI's error class, 0 without an error."""
        if self.going:  # else it began before the option was set
            number, name, begin = self.going.popleft()
            self.write(number, f"{name} done with code {code} ({time.perf_counter() - begin:.2e}s)")

    def write(self, number: int, text: str) -> None:
        with suppress(AttributeError, OSError, ValueError):  # there is no standard output, or it is closed
            sys.stdout.write(f"r{self.recorder.rank} | {number:08x} | {text}\n")
            sys.stdout.flush()
