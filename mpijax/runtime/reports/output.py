"""What a rank says of itself, and that the launcher reads it."""

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

# Seconds for the launcher to read; nobody might.
LIMIT = 2.0


def say(rank: int, text: str, stream: TextIO | None = None) -> None:
    """Write lines that begin with the rank, to stderr or another stream.

    To the stderr that the process began with too, where the program has put something in its place that is not a file:
    what that keeps is lost when the job ends. Nothing is raised for streams that are closed.
    """
    lines = "".join(f"[rank {rank}] {line}\n" for line in text.splitlines())
    out = stream or sys.stderr
    for place in dict.fromkeys((out, out if _is_file(out) else sys.__stderr__)):
        with suppress(AttributeError, OSError, ValueError):  # None, closed, nobody reads
            place.write(lines)  # type: ignore[union-attr]
            place.flush()  # type: ignore[union-attr]


def _is_file(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.fileno() >= 0
    except (AttributeError, OSError, ValueError):
        return False


def flush() -> None:
    """Hand on what the program has written, as far as its streams are open."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()


def blame(rank: int, other: int, status: int) -> None:
    """Tell `mpijax run`, if it started this rank, that it ends because another one has ended with a status."""
    if folder := os.environ.get("MPIJAX_RUN_FOLDER"):
        with suppress(OSError):  # it is on another machine
            Path(folder, f"{rank}.because").write_text(f"{other} {status}")


def wait_until_read() -> None:
    """Until nothing is left in the pipes that are this process's output and error streams.

    Launchers drop what they have not read when they end a job.
    """
    end = time.monotonic() + LIMIT
    for descriptor in (1, 2):
        while _unread(descriptor) and time.monotonic() < end:
            time.sleep(1e-3)


def _unread(descriptor: int) -> int:
    """Bytes in a pipe; 0 of anything else."""
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return 0
        return struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
    except OSError:
        return 0
