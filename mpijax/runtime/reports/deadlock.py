"""Detects deadlocks in the records of a node's ranks: a ring in which each rank waits for the next.

Examples are two receives, a receive on one rank and a collective on the other, or a ring of receives from the left. An
operation counts only if it is certain which ranks it waits for. The watchdog's warnings cover the other rings, and
ranks in which another thread may communicate, if MPI allows that and there is one.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.runtime.machine.routines import MESSAGES, Routine
from mpijax.runtime.reports.recorder import COLLECTIVE, GUARD, MESSAGE, CommRecord, ranges, recorder

# Seconds without progress of any rank in the ring. Delivering a message takes much less, also on busy cores.
STUCK = 10.0
# If two checks are further apart (in seconds), the detection restarts: the job was suspended, or cores are too busy.
PAUSED = 2.0

# Operations (or prefixes of their names) that no rank leaves before all ranks have entered.
_FOR_ALL = (
    Routine.ALLREDUCE, Routine.ALLGATHER, Routine.ALLTOALL, Routine.BARRIER, Routine.REDUCE_SCATTER,
    "agreement", "making", "split",
    "distributed.should_stop", "multihost_utils.process_allgather", "multihost_utils.sync_global_devices",
)  # fmt: skip
# Operations in which the root sends to the others, and those in which the others send to it.
_FROM_ROOT, _TO_ROOT = (Routine.BCAST, Routine.SCATTER), (Routine.REDUCE, Routine.GATHER)


class Suspicion:
    """A ring that contains this rank, and the time at which it was first seen."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.since = self.looked = 0.0

    def confirmed(self, now: float) -> str:
        """A description of the ring that this rank waits in, if it is certain; else ''."""
        ring = _ring(certain=True)
        seen = [(wait.rank, wait.number) for wait in ring]
        if seen != self.seen or now - self.looked > PAUSED:
            self.seen, self.since = seen, now
        self.looked = now
        return _told(ring) if ring and now - self.since > STUCK else ""


def ring() -> str:
    """``rank 0 for rank 2, rank 2 for rank 1, rank 1 for rank 0`` if the records show such a ring now; else ''."""
    found = _ring(certain=False)
    return ", ".join(f"rank {a.rank} for rank {b.rank}" for a, b in zip(found, found[1:] + found[:1], strict=True))


def _told(ring: list[_Wait]) -> str:
    first, *others = ring
    if len(others) == 1:
        [other] = others
        return (
            f"rank {first.rank} waits for rank {other.rank} in {first.text}, and rank {other.rank} waits for rank "
            f"{first.rank} in {other.text}: deadlock"
        )
    parts = [f"rank {a.rank} waits for rank {b.rank} in {a.text}" for a, b in zip(ring, [*others, first], strict=True)]
    return f"{', '.join(parts[:-1])}, and {parts[-1]}: deadlock"


@dataclass(frozen=True)
class _Wait:
    """The operation that a rank is in. number: among the rank's operations. kind: of its sequence in the group."""

    rank: int
    number: int
    text: str
    group: CommRecord
    kind: int
    sequence: int

    @property
    def op(self) -> str:
        return self.text.split()[0]

    def place(self, key: str) -> int | None:
        """The job rank named by `source=`, `dest=` or `root=`; None if there is none, or it is any rank."""
        value = next((word.removeprefix(f"{key}=") for word in self.text.split() if word.startswith(f"{key}=")), "")
        return self.group.ranks[int(value)] if value.isdigit() and int(value) < len(self.group.ranks) else None

    def needed(self) -> list[int]:
        """The ranks without which the operation certainly cannot end."""
        if self.kind == MESSAGE:
            peer = self.place("dest" if self.op == Routine.SEND else "source") if self.op in MESSAGES else None
            return [] if peer is None else [peer]
        count = recorder.count(recorder.region(self.rank), self.sequence)
        here = [r for r in self.group.ranks if r in recorder.ranks]
        absent = [r for r in here if recorder.count(recorder.region(r), self.sequence) < count]
        if self.op.startswith(_FOR_ALL) and not self.op.endswith("v"):  # in "v" operations some ranks may get nothing
            return absent
        root = self.place("root")
        if root == self.rank:
            return absent if self.op.startswith(_TO_ROOT) else []
        return [r for r in absent if r == root] if self.op.startswith(_FROM_ROOT) else []

    def serves(self, other: _Wait) -> bool:
        """Whether this operation may complete the message in which the other rank waits for this one."""
        if other.kind != MESSAGE or self.kind != MESSAGE or self.op not in MESSAGES:
            return False
        sends, receives = self.op != Routine.RECV, self.op != Routine.SEND
        if other.op == Routine.SEND:
            return receives and self.place("source") in (None, other.rank)
        return sends and self.place("dest") in (None, other.rank)


def _wait_of(rank: int, certain: bool) -> _Wait | None:
    """The operation that a rank of this node is in, if its group is announced; else None.

    certain: only if no other thread of the rank can communicate.
    """
    region: Any = recorder.region(rank)
    if region is None or (certain and not int(region["exclusive"])):
        return None
    number, busy = recorder.progress(region)
    if not busy:
        return None
    site = int(recorder.last(region)["site"])
    sequence = recorder.sequence_of(region, site)
    kind = sequence & 3
    group = _group_of(region, sequence - kind)
    if group is None or kind not in (COLLECTIVE, MESSAGE, GUARD):
        return None
    text = str(recorder.sites[site]) if rank == recorder.rank else recorder.text_of(region, site)
    return _Wait(rank, number, text, group, kind, sequence)


def _group_of(region: Any, number: int) -> CommRecord | None:
    """The group with that id, from this rank or from another rank's region; None if it is unknown."""
    if own := recorder.groups.get(number):
        return own
    ranks = recorder.members(region, number)
    return None if ranks is None else CommRecord(number, f"ranks {ranges(ranks)}", ranks, 0)


def _ring(certain: bool) -> list[_Wait]:
    """The shortest ring of ranks that starts with this one, each waiting for the next; [] if there is none."""
    own = _wait_of(recorder.rank, certain)
    if own is None:
        return []
    paths, met = deque([[own]]), {own.rank}
    while paths:
        path = paths.popleft()
        for rank in path[-1].needed():
            if rank == own.rank and len(path) > 1 and not own.serves(path[-1]):
                return path
            wait = None if rank in met else _wait_of(rank, certain)
            if wait is not None and not wait.serves(path[-1]):
                met.add(rank)
                paths.append([*path, wait])
    return []
