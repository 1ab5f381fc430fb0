"""What MPI jobs that were killed left in this node's shared memory.

What an earlier start of the same Slurm step left is removed before MPI starts. MPICH >= 5 names its segments
``/dev/shm/mpich_{shm,vci}_<world>_<node>``, where ``<world>`` is the 32-bit FNV-1a hash (Fowler, Noll, Vo) of the name
that the launcher gives the world: of ``<job>.<step>`` under ``srun --mpi=pmi2``. A job that is killed leaves them
behind, and when it is requeued its ranks would join the dead segment as well as the new one: MPI ends in ``UCX ERROR
failed to unpack address`` or hangs. Other launchers name every start anew: what their jobs leave only takes memory,
until somebody removes it (``mpijax doctor --remove-leftovers``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("/dev/shm")

# Names of segments: of MPICH; of Open MPI 5, and 4.
_NAMES = ("mpich_shm_*", "mpich_vci_*", "sm_segment.*", "vader_segment.*")

# Seconds that a segment must be older than the step: times of files and of processes come from different clocks.
_MARGIN = 1.0

# Seconds after which the processes of a job have mapped its segments.
_STARTED = 60.0


def remove() -> None:
    """Remove this step's dead segments. To be called by each rank before MPI starts; does not communicate."""
    step = _step()
    try:
        age = _age_of_step() if step and "PMI_FD" in os.environ else None
    except OSError:  # a system that hides processes of others
        age = None
    if age is None:
        return
    for path in segments(step):
        try:
            _remove_if_older(path, age + _MARGIN)
        except OSError:
            continue  # gone, or not ours to touch


def forget_names() -> None:
    """Remove the names of MPICH's segments that this process has mapped: then nothing is left however the job ends.

    To be called once all ranks have left MPI_Init, and so have mapped them. MPICH itself may leave them even at an
    ordinary end. Does not communicate.
    """
    with contextlib.suppress(OSError):  # a system that hides maps
        for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
            path = Path(line.rpartition(" ")[2])
            if path.parent == FOLDER and path.name.startswith(("mpich_shm_", "mpich_vci_")):
                with contextlib.suppress(OSError):  # another rank was first
                    path.unlink()


def segments(step: str) -> Iterator[Path]:
    """The segments there are of a world called `step`."""
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
    """Seconds since slurmstepd, which starts all ranks of a node, has run; None where it is no ancestor of ours."""
    process = os.getppid()
    while process > 1:
        # proc_pid_stat(5): after the name, which may hold anything, the 2nd number is the parent, the 20th the start.
        name, _, rest = Path(f"/proc/{process}/stat").read_text().partition("(")[2].rpartition(")")
        numbers = rest.split()
        if name.startswith("slurmstepd"):
            return time.clock_gettime(time.CLOCK_BOOTTIME) - int(numbers[19]) / os.sysconf("SC_CLK_TCK")
        process = int(numbers[1])
    return None


def _remove_if_older(path: Path, age: float) -> None:
    """Another rank may do the same now, and rank 0 make the new segment: the lock is on the file, not on its name."""
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


def abandoned() -> list[Path]:
    """This user's segments that no process of this machine has mapped, if they have been there for a while."""
    candidates = {}
    for path in sorted(path for pattern in _NAMES for path in FOLDER.glob(pattern)):
        try:
            found = path.lstat()
        except OSError:  # gone
            continue
        ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
        if ours and time.time() - found.st_mtime > _STARTED:
            candidates[found.st_dev, found.st_ino] = path
    mapped = _mapped() if candidates else set()
    return [path for file, path in candidates.items() if file not in mapped]


def memory_of(paths: list[Path]) -> int:
    """Bytes of memory that files in shared memory take."""
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += path.lstat().st_blocks * 512
    return total


def _mapped() -> set[tuple[int, int]]:
    """(device, inode) of the files that processes have mapped, as far as this user may know."""
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = maps.read_text(errors="replace").splitlines()
        except OSError:  # it has ended, or is another user's, who cannot have mapped what is ours alone
            continue
        for line in lines:
            _, _, _, device, inode, *_ = line.split(maxsplit=5)  # proc_pid_maps(5)
            if inode != "0":
                major, minor = device.split(":")
                found.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    return found
