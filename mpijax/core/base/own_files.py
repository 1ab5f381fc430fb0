"""Checks that only this user can write a file and the folders above it, as ssh does for a private key."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_private(path: str | os.PathLike) -> bytes:
    """The content of a regular file that only this user may read or write.

    Raises:
      ValueError: the file or a folder on its path belongs to another user, others may write it, or others may read the
        file; or it is not a regular file.
      OSError: it cannot be read.
    """
    resolved = Path(path).resolve()
    # Open before checking, so that the checked file is the one that is read. O_NONBLOCK: do not wait on a FIFO.
    descriptor = os.open(resolved, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{resolved} is not a regular file")
        if status.st_uid != os.geteuid():
            raise ValueError(f"{resolved} belongs to another user (uid {status.st_uid})")
        if status.st_mode & 0o077:
            raise ValueError(f"Other users may read or write {resolved}. Run: chmod 600 {resolved}")
        for folder in resolved.parents:
            _check_folder(folder)
        return file.read()


def make_private_folder(folder: Path) -> None:
    """Create a folder and missing parents, accessible to this user only, whatever the umask is."""
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)


def _check_folder(folder: Path) -> None:
    """Raise ValueError for a folder in which another user may replace this user's files."""
    status = os.stat(folder)
    if status.st_uid not in (0, os.geteuid()):
        raise ValueError(f"The folder {folder} belongs to another user (uid {status.st_uid})")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        raise ValueError(f"Other users may write to the folder {folder}. Run: chmod go-w {folder}")
