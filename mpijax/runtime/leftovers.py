"""What an earlier start of the same Slurm step left in this node's shared memory, removed before MPI starts.

MPICH >= 5 names its segments ``/dev/shm/mpich_{shm,vci}_<world>_<node>``, where ``<world>`` is the 32-bit FNV-1a hash
(Fowler, Noll, Vo) of the name that the launcher gives the world: of ``<job>.<step>`` under ``srun --mpi=pmi2``. A job
that is killed leaves them behind, and when it is requeued its ranks would join the dead segment as well as the new one:
MPI ends in ``UCX ERROR failed to unpack address`` or hangs. Other launchers name every start anew.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("/dev/shm")

# Seconds that a segment must be older than the step: times of files and of processes come from different clocks.
_MARGIN = 1.0


def remove() -> None:
    """Remove this step's dead segments. To be called by each rank before MPI starts; does not communicate."""
    step = _step()
    age = _age_of_step() if step and "PMI_FD" in os.environ else None
    if age is None:
        return
    for path in segments(step):
        try:
            _remove_if_older(path, age + _MARGIN)
        except OSError:
            continue  # gone, or not ours to touch


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
