"""Ranks that start: all of them must, and one that does not come is told of.

Where the program has started MPI by mpi4py, a rank may raise or end before it uses mpijax for the first time. The ranks
share nothing then, and those that start wait for it.
"""

from __future__ import annotations

import os
import time
from typing import Any

from mpijax.core.source import current_source
from mpijax.runtime import reports, watchdog


def duplicate_of_all(MPI: Any) -> Any:
    """A duplicate of COMM_WORLD. Waits for all ranks, and warns after MPIJAX_STALL_SECONDS of one that does not come.

    Raises RuntimeError then if MPIJAX_STALL_ABORT says that a stall is to end the job.
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
            reports.say(MPI.COMM_WORLD.rank, f"mpijax: {told}\nmpijax: {_WHY}")
            if abort:
                raise RuntimeError(f"{told}, and MPIJAX_STALL_ABORT asks to end the job")
        if waited < 1e-3:
            os.sched_yield()
        else:
            time.sleep(min(waited / 8, 5e-3))
    return comm


_WHY = (
    "    all ranks take part in the first use of mpijax's devices or communication; one that has not come computes, "
    "waits in a call of mpi4py, or has ended without it"
)
