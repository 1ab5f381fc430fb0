"""Counts of `alltoallv`: what a rank sends to another one must be what that one expects, and MPI does not say if not.

The counts differ between ranks, so the guard's hash leaves them out. Where a schedule with such exchanges is compared
for the first time, each rank also sends its counts to each other one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from mpijax.compiler.steps.instructions import visits
from mpijax.runtime.machine.executable import Call
from mpijax.runtime.reports.recorder import Group, recorder

_TAG = 32751


def exchanges(instructions: tuple, group: Group) -> Iterator[Call]:
    """The exchanges of a group whose counts are known."""
    for visit in visits(instructions):
        x = visit.instruction
        if isinstance(x, Call) and x.op == "alltoallv" and x.report.group is group and x.send.counts:
            yield x


def differences(comm: Any, group: Group, given: list[Call]) -> Generator[None, None, list[str]]:
    """What other ranks do not send as this one expects. Collective over the group; yields while it waits.

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
        f"  {x.report.label} expects {x.recv.counts[place]} bytes from rank {rank}, which sends {bytes_}"
        f"   at {x.report.line}"
        for (place, rank), counts in zip(others, heard, strict=True)
        for x, bytes_ in zip(given, counts, strict=True)
        if bytes_ != x.recv.counts[place]
    ]
