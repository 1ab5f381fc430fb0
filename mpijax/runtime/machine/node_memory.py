"""Memory that the ranks of a node share: a file without a name, so that nothing is left behind however a rank ends."""

from __future__ import annotations

import os
import stat
from mmap import mmap
from typing import Any

from mpijax.core.new_file import new_file


def shared_file(node: Any, nbytes: int) -> tuple[int, mmap] | None:
    """(descriptor, memory) of a file that all ranks of a node have mapped, and that has no name any more."""
    path, descriptor, memory = "", -1, None
    if node.Get_rank() == 0:
        try:
            folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else os.environ.get("TMPDIR", "/tmp")
            descriptor, path = new_file(folder, "mpijax-")
            os.posix_fallocate(descriptor, 0, nbytes)  # a full disk says so here, not at the first write
        except OSError:
            descriptor = -1
    made = path
    path = node.bcast(path if descriptor >= 0 else "")
    try:
        if path and descriptor < 0:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode) and status.st_size >= nbytes:
            memory = mmap(descriptor, nbytes)
    except OSError:
        pass
    everywhere = all(node.allgather(memory is not None))
    if made:
        os.unlink(made)
    return (descriptor, memory) if everywhere and memory is not None else None
