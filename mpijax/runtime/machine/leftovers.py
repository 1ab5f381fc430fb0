"""Removes shared memory that killed MPI jobs left on this node.

Before MPI starts, this module removes the segments of an earlier start of the same Slurm step. MPICH >= 5 names its
segments ``/dev/shm/mpich_{shm,vci}_<world>_<node>``. ``<world>`` is the 32-bit FNV-1a hash (Fowler, Noll, Vo) of the
launcher's name for the world: ``<job>.<step>`` under ``srun --mpi=pmi2``. A killed job leaves its segments behind. When
the job is requeued, its ranks would join the dead segment as well as the new one, and MPI fails with ``UCX ERROR failed
to unpack address`` or hangs. Other launchers use a new name for every start. Their leftovers only take memory, until
somebody removes them (``mpijax doctor --remove-leftovers``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from mpijax.runtime.machine import ancestors

FOLDER = Path("/dev/shm")

# Name patterns of segments of MPICH, Open MPI 5, and Open MPI 4.
_NAMES = ("mpich_shm_*", "mpich_vci_*", "sm_segment.*", "vader_segment.*")

# Seconds by which a segment must be older than the step, since file and process times come from different clocks.
_MARGIN = 1.0

# Seconds after which a job's processes have surely mapped its segments.
_STARTED = 60.0


def remove() -> None:
    """Remove this step's dead segments. Each rank must call it before MPI starts; it does not communicate."""
    step = _step()
    try:
        age = _age_of_step() if step and "PMI_FD" in os.environ else None
    except OSError:  # the system hides processes of other users
        age = None
    if age is None:
        return
    for path in segments(step):
        try:
            _remove_if_older(path, age + _MARGIN)
        except OSError:
            continue  # gone, or not removable by this user


def forget_names() -> None:
    """Unlink the MPICH segments that this process has mapped, so that nothing is left however the job ends.

    Call it after all ranks have left MPI_Init, and so have mapped them. MPICH itself may leave them even at a normal
    exit. Does not communicate.
    """
    with contextlib.suppress(OSError):  # the system hides maps
        for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
            path = Path(line.rpartition(" ")[2])
            if path.parent == FOLDER and path.name.startswith(("mpich_shm_", "mpich_vci_")):
                with contextlib.suppress(OSError):  # another rank was first
                    path.unlink()


def segments(step: str) -> Iterator[Path]:
    """The existing segments of the world named `step`."""
    name = _fnv1a(step.encode())
    yield from FOLDER.glob(f"mpich_shm_{name:x}_*")
    yield from FOLDER.glob(f"mpich_vci_{name:x}_*")


def _fnv1a(text: bytes) -> int:
    found = 2166136261
    for byte in text:
        found = (found ^ byte) * 16777619 & 0xFFFFFFFF
    return found


def _step() -> str:
    job, step = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_STEP_ID", "")
    return f"{job}.{step}" if job.isdigit() and step.isdigit() else ""


def _age_of_step() -> float | None:
    """Age in seconds of slurmstepd, which starts all ranks of a node; None if it is not an ancestor of this process."""
    found = ancestors.nearest("slurmstepd")
    # proc_pid_stat(5): 19 fields after the state is the start.
    return found and time.clock_gettime(time.CLOCK_BOOTTIME) - int(found[1][19]) / os.sysconf("SC_CLK_TCK")


def _remove_if_older(path: Path, age: float) -> None:
    """Unlink a segment older than `age`. Locks the file, not its name: rank 0 may have made a new one."""
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = os.fstat(file)
        if found.st_uid != os.getuid() or time.time() - found.st_mtime < age:
            return
        if os.stat(path).st_ino == found.st_ino:
            path.unlink()
    finally:
        os.close(file)


# ---------------------------------------------------------------- of any job


def remove_of_failed(began: float) -> None:
    """Remove what a failed job left if its ranks ended too early to forget the names: this user's segments made since
    `began` (seconds since the epoch) that no process has mapped. A job that starts has mapped its own.
    """
    for path in abandoned(age=0.0, since=began):
        with contextlib.suppress(OSError):
            path.unlink()


def abandoned(age: float = _STARTED, since: float = 0.0) -> list[Path]:
    """This user's segments that no process on this machine has mapped, if they are older than `age` seconds (a minute)
    and were made after `since` (seconds since the epoch)."""
    candidates = {}
    for path in sorted(path for pattern in _NAMES for path in FOLDER.glob(pattern)):
        try:
            found = path.lstat()
        except OSError:  # gone
            continue
        ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
        if ours and time.time() - found.st_mtime > age and found.st_mtime >= since:
            candidates[found.st_dev, found.st_ino] = path
    mapped = _mapped() if candidates else set()
    return [path for file, path in candidates.items() if file not in mapped]


def memory_of(paths: list[Path]) -> int:
    """Bytes of memory that these files in shared memory take."""
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += path.lstat().st_blocks * 512
    return total


def _mapped() -> set[tuple[int, int]]:
    """(device, inode) of the files that processes have mapped, as far as this user may see."""
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = maps.read_text(errors="replace").splitlines()
        except OSError:  # it has ended, or belongs to another user, who cannot have mapped our private files
            continue
        for line in lines:
            _, _, _, device, inode, *_ = line.split(maxsplit=5)  # proc_pid_maps(5)
            if inode != "0":
                major, minor = device.split(":")
                found.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    return found
