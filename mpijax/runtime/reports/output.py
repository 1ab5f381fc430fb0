"""Writes a rank's messages, and waits until the launcher has read them."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO

# Maximum seconds to wait for the launcher to read.
LIMIT = 2.0


def say(rank: int, text: str, stream: TextIO | None = None) -> None:
    """Write lines prefixed with the rank to stderr or another stream.

    If the program has replaced stderr by a stream that is not a file, also write to the original stderr, because the
    replacement's content is lost when the job ends. Closed streams raise nothing.
    """
    lines = "".join(f"[rank {rank}] {line}\n" for line in text.splitlines())
    out = stream or sys.stderr
    for place in dict.fromkeys((out, out if _is_file(out) else sys.__stderr__)):
        with suppress(AttributeError, OSError, ValueError):  # None, closed, or a broken pipe
            place.write(lines)  # type: ignore[union-attr]
            place.flush()  # type: ignore[union-attr]


def _is_file(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.fileno() >= 0
    except (AttributeError, OSError, ValueError):
        return False


def flush() -> None:
    """Flush the program's output streams if they are open."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()


def blame(rank: int, other: int, status: int) -> None:
    """Record for `mpijax run`, if it started this rank, that it ends because rank `other` ended with `status`."""
    if folder := os.environ.get("MPIJAX_RUN_FOLDER"):
        with suppress(OSError):  # `mpijax run` is on another machine
            Path(folder, f"{rank}.because").write_text(f"{other} {status}")


def wait_until_read() -> None:
    """Wait until the pipes of this process's stdout and stderr are empty.

    Launchers drop unread output when they end a job.
    """
    end = time.monotonic() + LIMIT
    for descriptor in (1, 2):
        while _unread(descriptor) and time.monotonic() < end:
            time.sleep(1e-3)


def _unread(descriptor: int) -> int:
    """Unread bytes in a pipe; 0 for other files."""
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return 0
        return struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
    except OSError:
        return 0
