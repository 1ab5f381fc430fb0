"""Temporary folders for the duration of a command; leftovers of killed commands are removed by the next one."""

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

# The file that a folder's process holds locked; unlike process ids, this also works across containers.
_LOCK = "lock"
# Seconds within which a new folder is locked.
_NEW = 60.0


@contextlib.contextmanager
def scratch(kind: str, parent: str | None = None) -> Iterator[Path]:
    """A new folder ``mpijax-KIND-...`` in the temporary folder (or in `parent`), removed at the end.

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
        with contextlib.suppress(OSError):  # a file system without locks: nobody can take the folder for abandoned
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: str, prefix: str) -> None:
    for folder in Path(parent).glob(prefix + "*"):
        with contextlib.suppress(OSError):  # another process was faster, or holds the lock
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or time.time() - found.st_mtime < _NEW:
                continue
            with (folder / _LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
