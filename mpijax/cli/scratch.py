"""Folders for as long as a command runs. What a command that was killed left behind, the next one removes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# The file in a folder that its process holds locked, also where process numbers mean something else, as in containers.
_LOCK = "lock"
# Seconds in which a new folder gets its lock.
_NEW = 60.0


@contextlib.contextmanager
def scratch(kind: str, parent: str | None = None) -> Iterator[Path]:
    """A new folder ``mpijax-KIND-...`` in the temporary folder, or in another one, removed at the end.

    >>> from mpijax.cli.scratch import scratch
    >>> with scratch("docs") as folder:
    ...     folder.is_dir()
    True
    >>> folder.exists()
    False
    """
    prefix, parent = f"mpijax-{kind}-", parent or tempfile.gettempdir()
    _remove_abandoned(parent, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    with (folder / _LOCK).open("w") as lock:
        with contextlib.suppress(OSError):  # a file system without locks: nobody takes the folder for abandoned either
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: str, prefix: str) -> None:
    for folder in Path(parent).glob(prefix + "*"):
        with contextlib.suppress(OSError):  # another process is faster, or has it locked
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or time.time() - found.st_mtime < _NEW:
                continue
            with (folder / _LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
