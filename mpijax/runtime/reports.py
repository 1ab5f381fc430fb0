"""What a rank says of itself, and that the launcher reads it."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
import termios
import time
from typing import TextIO

# Seconds for the launcher to read; nobody might.
LIMIT = 2.0


def say(rank: int, text: str, stream: TextIO | None = None) -> None:
    """Write lines that begin with the rank, to stderr or another stream."""
    out = stream or sys.stderr
    out.write("".join(f"[rank {rank}] {line}\n" for line in text.splitlines()))
    out.flush()


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
