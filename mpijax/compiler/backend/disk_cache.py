"""Machine code, and plans of programs, kept on disk between runs.

One file per key, in a folder that only its owner may enter. A file is used only if folder and file belong
to this user and nobody else may write them, and if its checksum holds: a torn, foreign or altered file is
as good as none. Writes go to a temporary name first, so that ranks of a job never see half a file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import stat
import time
from functools import cache
from pathlib import Path

from mpijax.core import config
from mpijax.core.new_file import new_file
from mpijax.core.own_files import make_private_folder
from mpijax.version import __version__

_MAGIC = b"mpijax-object-1\n"
_DIGEST = 32
# Names of files that are being written, and seconds after which nobody writes them any more.
_UNFINISHED, _ABANDONED = ".new-", 3600


def cache_key(text: str) -> str:
    """Key of the machine code of an LLVM module on this machine: text, CPU, LLVM and mpijax versions."""
    return hashlib.sha256(f"{host_id()}\n{text}".encode()).hexdigest()


@cache
def host_id() -> str:
    """CPU with its features and the versions of what makes machine code, without loading LLVM."""
    return f"{_cpu()}|llvmlite {_llvm_identity()}|mpijax {__version__}"


def _llvm_identity() -> str:
    """What tells one installed llvmlite from another: its version file. Asking for its metadata takes 20 ms."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return "none"
    try:
        version = (Path(spec.origin).with_name("_version.py")).read_bytes()
    except OSError:
        version = spec.origin.encode()
    return hashlib.sha256(version).hexdigest()[:16]


def _cpu() -> str:
    """The kernel's words for the CPU; ranks with equal words run the same code."""
    wanted = ("vendor_id", "cpu family", "model", "model name", "flags", "features", "cpu implementer",
              "cpu part", "isa")
    lines = []  # type: ignore[var-annotated]
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                name = line.split(":")[0].strip().lower()
                if not line.strip() and lines:
                    break  # the first processor stands for all
                if name in wanted:
                    lines.append(" ".join(line.split()))
    except OSError:
        lines = [platform.machine(), platform.processor()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


class DiskCache:
    """get(key) -> bytes or None, put(key, bytes). Without a usable folder both do nothing."""

    def __init__(self, folder: str | os.PathLike, suffix: str = ".o"):
        self.folder = Path(folder)
        self.suffix = suffix
        self._usable: bool | None = None
        self._tidy = False

    @classmethod
    def default(cls, suffix: str = ".o") -> DiskCache | None:
        """The cache named by `jax_compilation_cache_dir`, or else by MPIJAX_CACHE_DIR (default ~/.cache/mpijax).

        None where MPIJAX_CACHE=0, or while `jax_enable_compilation_cache` is off.
        """
        off = os.environ.get("MPIJAX_CACHE", "1").lower() in ("0", "off", "false", "no")
        if off or not config.enable_compilation_cache.value:
            return None
        folder = config.compilation_cache_dir.value or os.environ.get("MPIJAX_CACHE_DIR")
        if not folder:
            base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
            folder = os.path.join(base, "mpijax")
        return cls.of(os.path.abspath(folder), suffix)

    @classmethod
    @cache
    def of(cls, folder: str, suffix: str) -> DiskCache:
        """The cache in a folder, one object."""
        return cls(folder, suffix)

    def get(self, key: str) -> bytes | None:
        """What was put under key, if it can be trusted."""
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
        except OSError:
            return None
        finally:
            os.close(descriptor)
        head = len(_MAGIC) + _DIGEST
        content = data[head:]
        intact = data[:len(_MAGIC)] == _MAGIC and data[len(_MAGIC):head] == _checksum(key, content)
        return content if intact else None

    def put(self, key: str, content: bytes) -> None:
        """Keep content under key; a full or read-only disk is not an error."""
        if not self._folder_is_ours(create=True):
            return
        self._remove_left_behind()
        temporary = None
        try:
            descriptor, temporary = new_file(self.folder, _UNFINISHED)
            with os.fdopen(descriptor, "wb") as file:
                file.write(_MAGIC + _checksum(key, content) + content)
            os.replace(temporary, self._path(key))
        except OSError:
            if temporary is not None and os.path.exists(temporary):
                os.unlink(temporary)

    def _remove_left_behind(self) -> None:
        """Once a process, remove what writers that were killed have left: files that nobody renamed for long."""
        if self._tidy:
            return
        self._tidy = True
        try:
            with os.scandir(self.folder) as files:
                for file in files:
                    if not file.name.startswith(_UNFINISHED):
                        continue
                    if time.time() - file.stat(follow_symlinks=False).st_mtime > _ABANDONED:
                        os.unlink(file.path)
        except OSError:
            pass  # another process was faster, or it is a folder

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


def _only_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _checksum(key: str, content: bytes) -> bytes:
    # The key is part of it: a file copied under another name is not that other object.
    return hashlib.sha256(key.encode() + content).digest()
