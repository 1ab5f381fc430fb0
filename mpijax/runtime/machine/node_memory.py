"""Memory that the ranks of a node share: an unnamed file, so nothing is left behind however a rank ends."""

from __future__ import annotations

import os
import stat
from mmap import mmap
from typing import Any

from mpijax.core.base.new_file import new_file


def shared_file(node: Any, nbytes: int) -> tuple[int, mmap] | None:
    """(descriptor, memory) of a file that all ranks of a node have mapped. It is unlinked; the other ranks open it
    through the /proc entry of the process that made it."""
    descriptor, memory, place = -1, None, None
    if node.Get_rank() == 0:
        try:
            folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else os.environ.get("TMPDIR", "/tmp")
            descriptor, path = new_file(folder, "mpijax-")
            os.unlink(path)
            os.posix_fallocate(descriptor, 0, nbytes)  # fails here on a full disk, not at the first write
            place = f"/proc/{os.getpid()}/fd/{descriptor}", os.fstat(descriptor)
        except OSError:
            pass
    place = node.bcast(place)
    try:
        if place is not None:
            if descriptor < 0 and stat.S_ISREG(os.stat(place[0]).st_mode):
                descriptor = os.open(place[0], os.O_RDWR | os.O_CLOEXEC)
            if os.path.samestat(os.fstat(descriptor), place[1]) and place[1].st_uid == os.geteuid():
                memory = mmap(descriptor, nbytes)
    except OSError:
        pass
    everywhere = all(node.allgather(memory is not None))
    return (descriptor, memory) if everywhere and memory is not None else None
