"""A file that was not there before. `tempfile` does more, and takes a tenth of the time in which mpijax is imported."""

import os


def new_file(folder: str | os.PathLike, prefix: str) -> tuple[int, str]:
    """(descriptor, path) of an empty file in `folder` that this user alone may read and write."""
    path = os.path.join(folder, prefix + os.urandom(8).hex())
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), path
