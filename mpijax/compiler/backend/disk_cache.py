"""Caches machine code, and plans of programs, on disk between runs.

One file per key, in a folder that only its owner may enter. A file is used only if folder and file belong to this user,
nobody else may write them, and the checksum is correct. A truncated, foreign or modified file counts as missing. Files
are written under a temporary name and renamed, so ranks of a job never see half a file.

The folder has a size limit, `jax_compilation_cache_max_size`. There is no index, which processes would have to lock. A
file's modification time is the time of its last use, to a day. Each time the processes have written about a sixteenth
of the limit, one of them lists the folder and removes the least recently used files. If a process was about to read
such a file, it compiles instead.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import stat
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from mpijax.core.base import config
from mpijax.core.base.new_file import new_file
from mpijax.core.base.own_files import make_private_folder
from mpijax.version import __version__

_MAGIC = b"mpijax-object-1\n"
_DIGEST = 32
# Name prefix of files being written, and seconds after which such a file counts as abandoned.
_UNFINISHED, _ABANDONED = ".new-", 3600
# Files of the cache; users may keep other files in the same folder.
_OURS = re.compile(r"[0-9a-f]{64}\.(?:o|plan)")
# Seconds during which a file counts as just used.
_USED_LATELY = 86400
# Fractions of the limit: written between two cleanups, and freed in one.
_LOOK, _FREE = 1 / 16, 1 / 8
# The assumed limit of a cache without one, which is still checked for files of killed writers.
_UNLIMITED = 1 << 30
# File sizes on disk are multiples of this.
_BLOCK = 4096


def cache_key(text: str) -> str:
    """Key of the machine code of an LLVM module on this machine: text, CPU, LLVM and mpijax versions."""
    return hashlib.sha256(f"{host_id()}\n{text}".encode()).hexdigest()


@cache
def host_id() -> str:
    """The CPU with its features, and the versions of mpijax and llvmlite; does not load LLVM."""
    return f"{_cpu()}|llvmlite {_llvm_identity()}|mpijax {__version__}"


def _llvm_identity() -> str:
    """Identifies the installed llvmlite: a hash of its version file. Reading the package metadata takes 20 ms."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return "none"
    try:
        version = (Path(spec.origin).with_name("_version.py")).read_bytes()
    except OSError:
        version = spec.origin.encode()
    return hashlib.sha256(version).hexdigest()[:16]


def _cpu() -> str:
    """A hash of the kernel's description of the CPU; ranks with equal hashes run the same code."""
    wanted = ("vendor_id", "cpu family", "model", "model name", "flags", "features", "cpu implementer",
              "cpu part", "isa")
    lines = []  # type: ignore[var-annotated]
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                name = line.split(":")[0].strip().lower()
                if not line.strip() and lines:
                    break  # the first processor represents all
                if name in wanted:
                    lines.append(" ".join(line.split()))
    except OSError:
        lines = [platform.machine(), platform.processor()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


class DiskCache:
    """get(key) -> bytes or None, put(key, bytes). Without a usable folder, get returns None and put does nothing."""

    def __init__(self, folder: str | os.PathLike, suffix: str = ".o"):
        self.folder = Path(folder)
        self.suffix = suffix
        self._usable: bool | None = None

    @classmethod
    def default(cls, suffix: str = ".o") -> DiskCache | None:
        """The cache named by `jax_compilation_cache_dir`, or else by MPIJAX_CACHE_DIR (default ~/.cache/mpijax).

        None where MPIJAX_CACHE=0, or while `jax_enable_compilation_cache` is off, or the limit is 0.
        """
        off = os.environ.get("MPIJAX_CACHE", "1").lower() in ("0", "off", "false", "no")
        if off or not config.enable_compilation_cache.value or config.compilation_cache_max_size.value == 0:
            return None
        folder = config.compilation_cache_dir.value or os.environ.get("MPIJAX_CACHE_DIR")
        if not folder:
            base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
            folder = os.path.join(base, "mpijax")
        return cls.of(os.path.abspath(folder), suffix)

    @classmethod
    @cache
    def of(cls, folder: str, suffix: str) -> DiskCache:
        """The cache of a folder; one object per folder and suffix."""
        return cls(folder, suffix)

    def get(self, key: str) -> bytes | None:
        """The content stored under key; None if it is missing or not trusted."""
        if not self._folder_is_ours():
            return None
        try:
            descriptor = os.open(self._path(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or not _only_ours(status):
                return None
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read()
            _note_use(descriptor, status)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        head = len(_MAGIC) + _DIGEST
        content = data[head:]
        intact = data[:len(_MAGIC)] == _MAGIC and data[len(_MAGIC):head] == _checksum(key, content)
        return content if intact else None

    def put(self, key: str, content: bytes) -> None:
        """Store content under key. A full or read-only disk, or content above the limit, raises nothing."""
        limit = config.compilation_cache_max_size.value
        size = _on_disk(len(_MAGIC) + _DIGEST + len(content))
        if 0 <= limit < size or not self._folder_is_ours(create=True):
            return
        if _chance(size / (_LOOK * (limit if limit > 0 else _UNLIMITED))):
            self._make_room(limit - size if limit > 0 else None)
        temporary = None
        try:
            descriptor, temporary = new_file(self.folder, _UNFINISHED)
            with os.fdopen(descriptor, "wb") as file:
                file.write(_MAGIC + _checksum(key, content) + content)
            os.replace(temporary, self._path(key))
        except OSError:
            if temporary is not None and os.path.exists(temporary):
                os.unlink(temporary)

    def _make_room(self, limit: int | None) -> None:
        """Remove files of killed writers, and the least recently used files if all exceed `limit`."""
        files = self._files()
        total = sum(size for _, size, _ in files)
        if limit is None or total <= limit:
            return
        for used, size, path in sorted(files):
            if total <= (1 - _FREE) * limit:
                return
            if _remove_unused(path, used):
                total -= size

    def _files(self) -> list[tuple[int, int, str]]:
        """(time of last use, size, path) of each file of the cache; removes files of killed writers."""
        found = []
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                unfinished = entry.name.startswith(_UNFINISHED)
                if not unfinished and not _OURS.fullmatch(entry.name):
                    continue
                with suppress(OSError):  # another process has removed it, or it is a folder
                    status = entry.stat(follow_symlinks=False)
                    if unfinished and time.time() - status.st_mtime > _ABANDONED:
                        os.unlink(entry.path)
                    elif not unfinished:
                        found.append((status.st_mtime_ns, _on_disk(status.st_size), entry.path))
        return found

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{self.suffix}"

    def _folder_is_ours(self, create: bool = False) -> bool:
        if self._usable is None or (create and not self._usable):
            try:
                if create:
                    make_private_folder(self.folder)
                status = os.lstat(self.folder)
                self._usable = stat.S_ISDIR(status.st_mode) and _only_ours(status)
            except FileNotFoundError:
                return False
            except OSError:
                self._usable = False
        return self._usable


def _note_use(descriptor: int, status: os.stat_result) -> None:
    """Set a file's modification time to now, at most once a day: it is a write to the disk or file server."""
    if time.time() - status.st_mtime > _USED_LATELY:
        with suppress(OSError):  # a read-only disk
            os.utime(descriptor)


def _remove_unused(path: str, used: int) -> bool:
    """Remove a file unless it was used or rewritten since it was listed. Returns whether it is gone."""
    try:
        if os.stat(path, follow_symlinks=False).st_mtime_ns != used:
            return False
        os.unlink(path)
    except FileNotFoundError:  # another process did the same
        return True
    except OSError:
        return False
    return True


def _on_disk(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _chance(share: float) -> bool:
    """True in this fraction of calls; processes that call at the same time decide independently."""
    return int.from_bytes(os.urandom(4)) < share * (1 << 32)


def _only_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _checksum(key: str, content: bytes) -> bytes:
    # The checksum covers the key, so a file copied under another name is rejected.
    return hashlib.sha256(key.encode() + content).digest()
