"""Continues after the death of ranks: revoke, shrink, agree (User Level Failure Mitigation, MPI Forum)."""

from __future__ import annotations

from typing import Any

from mpijax.runtime.arrays import devices
from mpijax.runtime.mpi import freed, mpi_start
from mpijax.runtime.program import communicators, engine
from mpijax.runtime.reports.recorder import recorder
from mpijax.transforms.jit import clear_caches


def survivors() -> list[int]:
    """See `mpijax.distributed.survivors`."""
    start = mpi_start.start()
    if not start.survives:
        raise RuntimeError(
            "distributed.survivors needs an MPI library that continues after a rank dies. "
            f"{mpi_start.library_version()}, as it was started, does not. Use Open MPI 5 with mpirun --with-ft ulfm, "
            "or restart the job from its last checkpoint: mpijax run --restart 3 ..."
        )
    earlier = start.rank
    for comm in (start.world, start.control, *communicators.made()):
        comm.Revoke()
    left = _agreed(start.MPI, start.world)
    numbers: list[int] = left.allgather(earlier)
    freed.forget(start.world)
    communicators.forget()
    engine.forget()
    clear_caches()
    recorder.forget()
    start.go_on(left)
    devices.forget()
    return numbers


def _agreed(MPI: Any, comm: Any) -> Any:
    """A communicator of the remaining ranks of `comm`. Either all of them agree on it, or all try again."""
    while True:
        comm = comm.Shrink()
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        try:
            comm.Agree(1)
            return comm
        except MPI.Exception:  # another rank has died in the meantime
            continue
