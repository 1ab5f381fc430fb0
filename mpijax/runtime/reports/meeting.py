"""The start of a job: warns if a rank never reaches MPI initialization; ends the job if a rank ended before.

If the program started MPI with mpi4py, a rank may raise or end before it first uses mpijax. The ranks share no memory
yet, and the other ranks wait for it.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mpijax._ext import record
from mpijax.core.base.source import Source, current_source
from mpijax.runtime.machine import ancestors
from mpijax.runtime.reports import output, watchdog


@contextmanager
def reminded(source: Source) -> Iterator[None]:
    """Context while all processes start MPI: warns after MPIJAX_STALL_SECONDS.

    With MPIJAX_STALL_ABORT the process then exits with status 1, but not within the first 20 s, which busy machines may
    need to start. It exits at once if a process of this node has ended, because MPI then never starts. mpi4py holds the
    GIL meanwhile, so a Python thread could not do this.
    """
    seconds, abort = watchdog.settings()
    rank = next((os.environ[name] for name in _RANKS if name in os.environ), None)
    line = str(source).replace("%", "%%")
    watched = rank is not None and _expect_processes(rank, line)
    if rank is None or (seconds == float("inf") and not watched):
        yield
        return
    limit = max(seconds + _SAYING, _STARTING)
    end = f"[rank {rank}] mpijax:     MPIJAX_STALL_ABORT ends the job after {limit:.0f} s\n" if abort else ""
    text = f"[rank {rank}] mpijax: rank {rank} has waited %.0f s for MPI to start at {line}\n"
    record.start_reminding(seconds, f"{text}[rank {rank}] mpijax: {_ALL}\n{end}")
    if abort:
        faulthandler.dump_traceback_later(limit, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        if abort:
            faulthandler.cancel_dump_traceback_later()
        record.stop_reminding()


def _expect_processes(rank: str, line: str) -> bool:
    """Let the reminder end this process if another one that the same launcher started on this node ends.

    Returns whether a process of a known launcher started this one.
    """
    for of_rank, of_count, command in _STARTERS:
        count = os.environ.get(of_count, "")
        try:
            starter = ancestors.nearest(command) if of_rank in os.environ and count.isdigit() else None
        except OSError:  # the system hides processes of other users
            starter = None
        if starter is not None:
            told = f"rank {rank} waits for MPI to start at {line}, but %d of the %d processes on this node ended before"
            text = f"[rank {rank}] mpijax: {told}: ending the job\n"
            record.expect_children(starter[0], int(count), _GRACE, text)
            return True
    return False


# For each launcher: the variables with the rank and the number of processes of this node, and the command that starts
# them. Hydra does not end a job in which one of them ends; Open MPI's PRRTE may not if its status is 0.
_STARTERS = (
    ("PMI_RANK", "MPI_LOCALNRANKS", "hydra_pmi_proxy"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "prte"),  # prterun, or prted on other nodes
)
# Seconds for which a process must be missing. The launcher may not have started it yet.
_GRACE = 1.0
# Minimum seconds between the warning and the exit, and between the start of MPI and the exit.
_SAYING, _STARTING = 0.2, 20.0


# Variables in which launchers give a process its rank.
_RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "FLUX_TASK_RANK", "PALS_RANKID")
_ALL = "    all processes that the launcher started must take part: one may have ended, or not have reached this line"


def duplicate_of_all(MPI: Any) -> Any:
    """A duplicate of COMM_WORLD. Waits for all ranks; warns after MPIJAX_STALL_SECONDS about a missing rank.

    With MPIJAX_STALL_ABORT it then raises RuntimeError.
    """
    seconds, abort = watchdog.settings()
    source = current_source()
    comm, request = MPI.COMM_WORLD.Idup()
    began, limit = time.monotonic(), seconds
    while not request.Test():
        waited = time.monotonic() - began
        if waited > limit:
            limit = 2 * waited
            told = f"rank {MPI.COMM_WORLD.rank} has waited {waited:.0f} s for all {MPI.COMM_WORLD.size} ranks to start"
            told += f" at {source}" if source.file else ""
            output.say(MPI.COMM_WORLD.rank, f"mpijax: {told}\nmpijax: {_WHY}")
            if abort:
                raise RuntimeError(f"{told}. MPIJAX_STALL_ABORT is set, so the job ends")
        if waited < 1e-3:
            os.sched_yield()
        else:
            time.sleep(min(waited / 8, 5e-3))
    return comm


_WHY = (
    "    all ranks must take part in the first use of devices or communication of mpijax. A missing rank still "
    "computes, waits in a call of mpi4py, or has ended"
)
