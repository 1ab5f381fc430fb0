"""Compares the counts of `alltoallv`: a rank must send as many elements as the receiver expects; MPI does not check.

The counts differ between ranks, so the guard's hash omits them. When a schedule with such exchanges is first compared,
each rank also sends its counts to every other rank.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from mpijax.compiler.steps.instructions import visits
from mpijax.runtime.machine.executable import Call
from mpijax.runtime.machine.routines import Routine
from mpijax.runtime.reports.recorder import CommRecord, recorder

_TAG = 32751


def exchanges(instructions: tuple, group: CommRecord) -> Iterator[Call]:
    """The `alltoallv` exchanges of a group whose counts are known."""
    for visit in visits(instructions):
        x = visit.instruction
        if isinstance(x, Call) and x.op is Routine.ALLTOALLV and x.report.group is group and x.send.counts:
            yield x


def differences(comm: Any, group: CommRecord, given: list[Call]) -> Generator[None, None, list[str]]:
    """The counts of other ranks that differ from this rank's expectations. Collective; yields while it waits.

    comm: a communicator of all ranks of the job.
    """
    others = [(place, rank) for place, rank in enumerate(group.ranks) if rank != recorder.rank]
    sent = [np.array([x.send.counts[place] for x in given]) for place, _ in others]
    heard = [np.zeros(len(given), int) for _ in others]
    requests = [comm.Irecv(h, rank, _TAG) for h, (_, rank) in zip(heard, others, strict=True)]
    requests += [comm.Isend(s, rank, _TAG) for s, (_, rank) in zip(sent, others, strict=True)]
    for request in requests:
        while not request.Test():
            yield None
    return [
        f"  {x.report.label} expects {x.recv.counts[place]} bytes from rank {rank}, but it sends {bytes_} bytes   at "
        f"{x.report.line}"
        for (place, rank), counts in zip(others, heard, strict=True)
        for x, bytes_ in zip(given, counts, strict=True)
        if bytes_ != x.recv.counts[place]
    ]
