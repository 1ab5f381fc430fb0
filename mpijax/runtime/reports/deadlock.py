"""Ranks of a node that wait for each other in a ring, as their records tell: each for the next, the last for the first.

Two receives, a receive here and a collective there, a ring of receives each from the left neighbour: nobody can go on.
An operation counts only where it is certain whom it waits for, so some rings are left to the warnings of the watchdog,
and so are ranks in which another thread might communicate: MPI allows it, and there is one.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from mpijax.core.lazy_dataclass import dataclass
from mpijax.runtime.reports.recorder import COLLECTIVE, GUARD, MESSAGE, MESSAGES, Group, ranges, recorder

# Seconds in which none of the ranks may have gone on. A message that is on its way takes much less, also on busy cores.
STUCK = 10.0
# Seconds between two looks after which they begin anew: the job was suspended, or the cores are too busy to judge.
PAUSED = 2.0

# Operations, or what their names begin with, that no rank leaves before all ranks have come.
_FOR_ALL = (
    "allreduce", "allgather", "alltoall", "barrier", "reduce_scatter", "agreement", "making", "split",
    "distributed.should_stop", "multihost_utils.process_allgather", "multihost_utils.sync_global_devices",
)  # fmt: skip
# Operations in which one rank sends to the others, and those in which they send to it.
_FROM_ROOT, _TO_ROOT = ("bcast", "scatter"), ("reduce", "gather")


class Suspicion:
    """The ring in which this rank has been seen, and since when."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.since = self.looked = 0.0

    def confirmed(self, now: float) -> str:
        """What the ranks of a ring with this one wait in, if that is certain; ''."""
        ring = _ring(certain=True)
        seen = [(wait.rank, wait.number) for wait in ring]
        if seen != self.seen or now - self.looked > PAUSED:
            self.seen, self.since = seen, now
        self.looked = now
        return _told(ring) if ring and now - self.since > STUCK else ""


def ring() -> str:
    """``rank 0 for rank 2, rank 2 for rank 1, rank 1 for rank 0`` if that is how it looks now; ''."""
    found = _ring(certain=False)
    return ", ".join(f"rank {a.rank} for rank {b.rank}" for a, b in zip(found, found[1:] + found[:1], strict=True))


def _told(ring: list[_Wait]) -> str:
    first, *others = ring
    if len(others) == 1:
        [other] = others
        return (
            f"rank {first.rank} waits for rank {other.rank} in {first.text}, and rank {other.rank} for it in "
            f"{other.text}: neither can go on"
        )
    parts = [f"rank {a.rank} waits for rank {b.rank} in {a.text}" for a, b in zip(ring, [*others, first], strict=True)]
    return f"{', '.join(parts[:-1])}, and {parts[-1]}: none can go on"


@dataclass(frozen=True)
class _Wait:
    """An operation in which a rank is. `number`: which one of its operations; `kind`: of its sequence on the group."""

    rank: int
    number: int
    text: str
    group: Group
    kind: int
    sequence: int

    @property
    def op(self) -> str:
        return self.text.split()[0]

    def place(self, key: str) -> int | None:
        """The rank of the job that `source=`, `dest=` or `root=` names; None if there is none, or any."""
        value = next((word.removeprefix(f"{key}=") for word in self.text.split() if word.startswith(f"{key}=")), "")
        return self.group.ranks[int(value)] if value.isdigit() and int(value) < len(self.group.ranks) else None

    def needed(self) -> list[int]:
        """The ranks without which it certainly does not end."""
        if self.kind == MESSAGE:
            peer = self.place("dest" if self.op == "send" else "source") if self.op in MESSAGES else None
            return [] if peer is None else [peer]
        count = recorder.count(recorder.region(self.rank), self.sequence)
        here = [r for r in self.group.ranks if r in recorder.ranks]
        absent = [r for r in here if recorder.count(recorder.region(r), self.sequence) < count]
        if self.op.startswith(_FOR_ALL) and not self.op.endswith("v"):  # of those some ranks may get nothing
            return absent
        root = self.place("root")
        if root == self.rank:
            return absent if self.op.startswith(_TO_ROOT) else []
        return [r for r in absent if r == root] if self.op.startswith(_FROM_ROOT) else []

    def serves(self, other: _Wait) -> bool:
        """Whether it may be what the other rank, which waits for this one in a message, waits for."""
        if other.kind != MESSAGE or self.kind != MESSAGE or self.op not in MESSAGES:
            return False
        sends, receives = self.op != "recv", self.op != "send"
        if other.op == "send":
            return receives and self.place("source") in (None, other.rank)
        return sends and self.place("dest") in (None, other.rank)


def _wait_of(rank: int, certain: bool) -> _Wait | None:
    """The operation in which a rank of this node is, if it is in one, of a group that it has announced.

    certain: no other thread of it may communicate.
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


def _group_of(region: Any, number: int) -> Group | None:
    """The group with that id, of this rank or, as its region tells, of another one; None if it is not known."""
    if own := recorder.groups.get(number):
        return own
    ranks = recorder.members(region, number)
    return None if ranks is None else Group(number, f"ranks {ranges(ranks)}", ranks, 0)


def _ring(certain: bool) -> list[_Wait]:
    """The shortest ring of ranks, each waiting for the next, that begins with this one; [] if there is none."""
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
