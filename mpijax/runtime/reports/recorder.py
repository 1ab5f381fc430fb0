"""The flight recorder: records each rank's communication in memory that the ranks of its node share.

It notes the begin and end of every operation (``cython_ext/record.h``, 15 ns): the place in the program, the number of
bytes, and the number in its sequence on the communicator. It keeps the last 1,024 operations. The regions of a node's
ranks are one unlinked file, so nothing is left behind however a rank ends. Each rank can read the progress of the
others without MPI, from any thread. Ranks of other nodes are not visible.

Layout of a region: `REGION`. A *sequence* counts operations that the ranks of a communicator run in the same order: its
collectives, its messages, its guard's agreements. A *site* is an operation at a place of the user's program.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from types import FrameType
from typing import Any

import numpy as np

from mpijax._ext import record
from mpijax.core.base import config
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import is_internal, source_of
from mpijax.runtime.machine.node_memory import shared_file
from mpijax.runtime.machine.routines import MESSAGES, Routine
from mpijax.runtime.reports.operation_log import OperationLog

REGION = np.dtype(
    [
        ("started", "u8"), ("finished", "u8"), ("state", "i4"), ("status", "i4"), ("dumps", "u4"),
        ("exclusive", "i4"), ("unused", "V32"),
        ("sequences", [("id", "u8"), ("count", "u8"), ("digests", "u8", record.DIGESTS)], record.COUNTS),
        ("sites", [("site", "u4"), ("sequence", "u4"), ("text", "S120")], record.SITES),
        ("ring", [("begin", "u8"), ("end", "u8"), ("nbytes", "i8"), ("site", "u4"), ("number", "u4")], record.RING),
        ("members", "u4", record.MEMBERS),
    ]
)  # fmt: skip
ENDED = 2
COLLECTIVE, MESSAGE, GUARD = range(3)


@dataclass(eq=False)
class CommRecord:
    """A communicator, as reports name it.

    ranks: numbers in the job. id: equal on all of them. agreed: see `guard`. users: whether mpi4py calls of the user
    may use it too. comm: the mpi4py communicator if users is true.
    """

    id: int
    name: str
    ranks: tuple[int, ...]
    sequence: int
    agreed: set[bytes] = field(default_factory=set)
    users: bool = False
    comm: Any = None


@dataclass(frozen=True)
class Site:
    """An operation at a source line.

    peers: for a message, the ranks of the job it waits for, sender first; none for a message from any rank. eager:
    whether it is outside of programs; the line is then that of its first call.
    """

    label: str
    line: str
    group: CommRecord | None
    peers: tuple[int, ...] | None = None
    eager: bool = False

    def __str__(self) -> str:
        where = f" at {self.line}" + (" or a later call" if self.eager else "") if self.line else ""
        return self.label + (f" on {self.group.name}" if self.group else "") + where


class Recorder:
    """The records of this node: `regions[i]` belongs to rank `ranks[i]` of the job; this rank's is `regions[own]`."""

    def __init__(self) -> None:
        self.sites: dict[int, Site] = {}
        self._next_site = 0
        self._done: deque[int] = deque()  # sites whose communicators have been freed
        self._numbers: dict[Any, tuple[int, int]] = {}
        self.groups: dict[int, CommRecord] = {}  # by id
        self._alike: Counter[tuple[tuple[int, ...], bool]] = Counter()  # communicators per (ranks, users)
        self._left: deque[int] = deque()  # ids of groups whose communicators have been freed
        self._next_sequence = 1
        self._next_member = 0  # position for the next group's members
        self.regions = np.frombuffer(record.own_region(), REGION)
        self.ranks, self.own, self.rank, self.size = [0], 0, 0, 1
        self.job = f"{os.getpid():x}"
        self.forked = False  # this process is a copy of a rank
        self.file = -1
        self._clock = record.ticks(), time.time_ns()
        self.log = OperationLog(self)

    def forget(self) -> None:
        """Reset the recorder, because the job's ranks have changed; `share` starts the new record."""
        self.__init__()  # type: ignore[misc]

    def region(self, rank: int) -> Any:
        """The region of a rank of the job; None if it is not on this node."""
        return self.regions[self.ranks.index(rank)] if rank in self.ranks else None

    @property
    def mine(self) -> Any:
        return self.regions[self.own]

    def share(self, world: Any, node: Any, job: str, exclusive: bool) -> None:
        """Move the record to memory shared by the ranks of `node`. Collective over them; before any operation."""
        self.rank, self.size, self.job = world.Get_rank(), world.Get_size(), job
        ranks = node.allgather(self.rank)
        shared = shared_file(node, record.REGION_BYTES * len(ranks))
        if shared is None:
            self.ranks = [self.rank]
            memory: Any = bytearray(record.REGION_BYTES)
        else:
            self.file, memory = shared
            self.ranks, self.own = ranks, node.Get_rank()
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self.own)
        at = self.own * record.REGION_BYTES
        record.move(memoryview(memory)[at : at + record.REGION_BYTES])
        self.regions = np.frombuffer(memory, REGION)
        self.mine["exclusive"] = exclusive
        self.group(world, world)  # must be the first communicator of all ranks, whichever is used first
        os.register_at_fork(after_in_child=self._leave_to_parent)
        node.Barrier()  # from now on, an unlocked region means that its rank is gone

    def _leave_to_parent(self) -> None:
        """In a process forked from this rank: the shared record, and all communication, belong to the parent.

        The child's own record always shows an operation in progress, so the child cannot start one.
        """
        self._memory = bytearray(record.REGION_BYTES)
        record.move(self._memory)
        self.regions, self.ranks, self.own = np.frombuffer(self._memory, REGION), [self.rank], 0
        self.forked, self.file = True, -1
        self.mine["exclusive"], self.mine["started"] = True, 1

    def is_gone(self, rank: int) -> bool:
        """Whether the process of a rank of this node has ended: the system has then released its file lock."""
        if rank == self.rank or self.file < 0:
            return False
        ask = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, self.ranks.index(rank), 1, 0)
        answer = fcntl.fcntl(self.file, fcntl.F_GETLK, ask)
        return struct.unpack("@hhqqi4x", answer)[0] == fcntl.F_UNLCK

    # ---- operations

    @functools.cached_property
    def _kept(self) -> Any:
        """The MPI attribute that stores each communicator's group."""
        from mpijax._ext import mpi  # MPI must be running

        return mpi.Attribute(self._freed)

    def group(self, comm: Any, world: Any, users: bool = False) -> CommRecord | None:
        """The communicator's group; None if it contains ranks outside of this job.

        Communicators of the same ranks are numbered in the order of first use; the user's (whose order may differ
        between ranks) separately from mpijax's own. The group is an attribute of the communicator and ends with it,
        because another communicator may then get the same handle, on some ranks only.
        """
        from mpi4py import MPI  # already running

        if comm == MPI.COMM_NULL or comm.Is_inter():
            return None
        found = self._kept.get(comm)
        if found is None and (ranks := _ranks_of(comm, world)) is not None:
            found = self.new_group(ranks, users and comm is not world)
            found.comm = MPI.Comm.fromhandle(comm.handle) if found.users else None
            self._kept.set(comm, found)
        return found

    def keep(self, group: CommRecord, comm: Any) -> None:
        """Attach a group made by `new_group` to a new communicator."""
        self._kept.set(comm, group)

    def new_group(self, ranks: tuple[int, ...], users: bool = False) -> CommRecord:
        """The group of a communicator of these ranks, which exists or is about to be made."""
        number = self._alike[ranks, users]
        self._alike[ranks, users] += 1
        name = "all ranks" if ranks == tuple(range(self.size)) else f"ranks {ranges(ranks)}"
        if number:
            name += f" (communicator {number + 1} of these)"
        digest = hashlib.blake2b(repr((ranks, users, number)).encode(), digest_size=8).digest()
        group = CommRecord(int.from_bytes(digest, "little") & ~3, name, ranks, self._free_sequences(), users=users)
        for kind in range(3) if group.sequence else ():
            self.mine["sequences"][group.sequence + kind] = (group.id + kind, 0, 0)
        if group.sequence and self.file >= 0 and self.regions.base is not None:
            places = [self.ranks.index(r) for r in compared_with(ranks, self.rank) if r in self.ranks]
            record.set_peers(group.sequence + COLLECTIVE, group.id + COLLECTIVE, self.regions.base, places)
        self.groups[group.id] = group
        self._note_members(group)
        return group

    def _note_members(self, group: CommRecord) -> None:
        """Publish the ranks of a group to other ranks. Entries of freed groups are reused."""
        entry = _members_entry(group)
        if self._next_member + len(entry) >= record.MEMBERS:
            entry = np.concatenate([_members_entry(g) for g in self.groups.values() if g.id not in self._left])
            self._next_member = 0
        if len(entry) < record.MEMBERS - self._next_member:  # otherwise deadlocks through this group are not detected
            begin, self._next_member = self._next_member, self._next_member + len(entry)
            self.mine["members"][self._next_member] = 0
            self.mine["members"][begin : self._next_member] = entry

    def members(self, region: Any, group: int) -> tuple[int, ...] | None:
        """The ranks of the group with that id, according to a rank's region."""
        words, at = region["members"].copy(), 0
        while at + 3 <= len(words) and words[at + 2]:
            end = at + 3 + int(words[at + 2])
            if int(words[at]) | int(words[at + 1]) << 32 == group and end <= len(words):
                return tuple(map(int, words[at + 3 : end]))
            at = end
        return None

    def _free_sequences(self) -> int:
        """The first of three sequences for a new group; if none is free, those of a freed communicator.

        Sequence 0 is for groups that find no place.
        """
        first, self._next_sequence = self._next_sequence, self._next_sequence + 3
        if first + 3 <= record.COUNTS:
            return first
        return self.groups.pop(self._left.popleft()).sequence if self._left else 0

    def _freed(self, group: CommRecord) -> None:
        """Called when a communicator is freed. Other ranks may still read its entries."""
        for key in [key for key in self._numbers if key[0].group is group]:
            self._done.append(self._numbers.pop(key)[0])
        if group.sequence:
            self._left.append(group.id)
        else:
            del self.groups[group.id]

    def site(self, what: Site, kind: int) -> tuple[int, int]:
        """(number, sequence) of a site in this rank's region."""
        key = (what, kind)
        if key not in self._numbers:
            number, self._next_site = self._next_site, self._next_site + 1
            while self._done and self._done[0] < number - record.RING:  # no stored operation refers to it
                self.sites.pop(self._done.popleft(), None)
            sequence = what.group.sequence + kind if what.group is not None and what.group.sequence else 0
            self.sites[number] = what
            self.mine["sites"][number % record.SITES] = (number, sequence, _shortened(str(what), 120))
            self._numbers[key] = number, sequence
        return self._numbers[key]

    def now(self, site: int, frame: FrameType | None = None) -> Site:
        """The site of a running operation, with the line of this call. frame: the thread's, by default this one's."""
        what, frame = self.sites[site], frame or sys._getframe(1)
        if not what.eager or not is_internal(frame.f_code):
            return what
        return replace(what, line=str(source_of(frame)), eager=False)

    @contextmanager
    def operation(self, what: Site, kind: int = COLLECTIVE, nbytes: int = 0) -> Iterator[None]:
        """Record an operation that Python runs. Raises RuntimeError if it cannot begin."""
        number, sequence = self.site(what, kind)
        if not record.begin(number, sequence, nbytes):
            raise self.refusal(str(what))
        try:
            yield
        finally:
            record.end()

    def refusal(self, what: str) -> RuntimeError:
        """The error for an operation that cannot begin."""
        from mpi4py import MPI  # already running

        if self.forked:
            why = f"this process is a fork of rank {self.rank}, and only rank {self.rank} itself can communicate"
            remedy = "Communicate in the original process only."
        elif MPI.Is_finalized():
            why = f"rank {self.rank} called MPI.Finalize() and can no longer communicate"
            remedy = "Call MPI.Finalize() at the very end of the program."
        else:
            why = "another thread of this rank communicates at the same time, and MPI allows one thread only"
            remedy = "Communicate in one thread only, or use a lock."
        return RuntimeError(f"{why}: {what}. {remedy}")

    # ---- reading a region

    def progress(self, region: Any) -> tuple[int, bool]:
        """(number of the last operation, whether it is in progress)"""
        started = int(region["started"])
        return started, started != int(region["finished"])

    def last(self, region: Any) -> Any:
        """The entry of the last operation of a region."""
        return region["ring"][int(region["started"]) % record.RING]

    def text_of(self, region: Any, site: int) -> str:
        found = region["sites"][site % record.SITES]
        return found["text"].decode("utf-8", "replace") if int(found["site"]) == site else "an operation"

    def sequence_of(self, region: Any, site: int) -> int:
        """The sequence id of a site; 0 if it is unknown."""
        found = region["sites"][site % record.SITES]
        return int(region["sequences"][found["sequence"]]["id"]) if int(found["site"]) == site else 0

    def count(self, region: Any, sequence: int) -> int:
        """The number of operations that the rank has begun in the sequence with that id."""
        [found] = np.nonzero(region["sequences"]["id"] == sequence)
        return int(region["sequences"]["count"][found[0]]) if len(found) else 0

    def nanoseconds(self) -> tuple[float, int]:
        """(nanoseconds per tick, the time in ns since 1970 at tick 0)"""
        (tick, then), now_tick, now = self._clock, record.ticks(), time.time_ns()
        scale = (now - then) / max(now_tick - tick, 1)
        return scale, int(now - now_tick * scale)


def _ranks_of(comm: Any, world: Any) -> tuple[int, ...] | None:
    """The ranks of a communicator, as numbers in `world`; None if some are not in it."""
    from mpi4py import MPI  # already running

    inside, whole = comm.Get_group(), world.Get_group()
    ranks = MPI.Group.Translate_ranks(inside, None, whole)
    inside.Free()
    whole.Free()
    return None if MPI.UNDEFINED in ranks else tuple(ranks)


def compared_with(ranks: tuple[int, ...], own: int) -> list[int]:
    """The ranks at distances 1, 2, 4, ... from one, on both sides: MPI's collectives send to few others."""
    if own not in ranks:
        return []
    place, n = ranks.index(own), len(ranks)
    steps = [1 << k for k in range((n - 1).bit_length())]
    found = dict.fromkeys(ranks[(place + step) % n] for distance in steps for step in (distance, -distance))
    return [r for r in found if r != own]


def _members_entry(group: CommRecord) -> np.ndarray:
    return np.array([group.id & 0xFFFFFFFF, group.id >> 32, len(group.ranks), *group.ranks], np.uint32)


def _shortened(text: str, limit: int) -> bytes:
    data = text.encode()
    return data if len(data) < limit else data[: limit // 2 - 3] + b"..." + data[-limit // 2 + 1 :]


def ranges(ranks: Any) -> str:
    """``0-3,7`` for [0, 1, 2, 3, 7]."""
    out: list[list[int]] = []
    for r in sorted(ranks):
        if out and out[-1][1] == r - 1:
            out[-1][1] = r
        else:
            out.append([r, r])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


recorder = Recorder()
record.log_operations(config.values.mpijax_log_operations)


def note_site(x: Any) -> tuple[int, int]:
    """The site and the sequence of an MPI call in a program that is being loaded."""
    report, peers = x.report, None
    if x.op in MESSAGES and report.group is not None:
        ends = x.peers
        sides = {Routine.RECV: [ends.source], Routine.SEND: [ends.dest]}.get(x.op, [ends.source, ends.dest])
        ranks = report.group.ranks
        peers = tuple(ranks[p] for p in dict.fromkeys(sides) if 0 <= p < len(ranks))
    what = Site(report.label or x.op, report.line, report.group, peers, report.eager)
    return recorder.site(what, COLLECTIVE if x.carrier.matched else MESSAGE)
