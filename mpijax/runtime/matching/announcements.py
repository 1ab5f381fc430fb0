"""Announces to the receiver what a rank sends, without waiting: dtypes of messages, and counts of `alltoallv`.

MPI checks neither. It receives four float32 as four int32 silently. If a rank expects more elements than the other one
sends, the rest is garbage. The two ranks need not run matching programs, so neither can wait for the other's list.
Instead, before a program first runs, each rank sends its peers what it has not yet announced. These small messages use
a separate communicator and precede the data. After that run each rank compares its expectations with the announcements
received. If only something else was announced, the receiving rank raises `MismatchError`. On the user's communicators
it warns instead: an mpi4py call, which announces nothing, may have sent the message.

Some transfers are not checked: those without announcement (mpi4py calls, MPIJAX_GUARD=0), those that may not have run
(branches, bodies of `while`), and receives of any length. An announcement stays valid for later receives.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mpijax.compiler.steps.instructions import visits
from mpijax.core.base.errors import MismatchError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.runtime.machine.executable import Call
from mpijax.runtime.machine.routines import Routine
from mpijax.runtime.mpi import mpi_start
from mpijax.runtime.reports import output
from mpijax.runtime.reports.recorder import MESSAGE, Site, recorder

_TAG = 32752
# How often a rank polls for an announcement, which MPI libraries may deliver slightly late.
_LOOKS = 64
# Seconds to wait before another announcement is an error: the right one may still be on its way.
_PATIENCE = 1.0
# Maximum entries in one announcement, which keeps the message so small that sending it never blocks.
_ENTRIES = 16

# The part of a transfer that both ranks know: (tag, bytes, whether on a communicator of the user) of a message, or
# (label,) of an `alltoallv`.
Topic = tuple[Any, ...]


@dataclass(frozen=True)
class AnnouncedTransfer:
    """A transfer that this rank sends to, or expects from, another rank of the job (None: any rank).

    value: the part that must match: the dtype of a message, or the bytes of an `alltoallv`. text: for people.
    users: whether it is on a communicator of the user.
    """

    peer: int | None
    topic: Topic
    value: str | int
    text: str
    users: bool = False


# Unmatched expectations, each with the announcements received instead.
Wrong = list[tuple[AnnouncedTransfer, list[AnnouncedTransfer]]]

_told: set[tuple[int | None, Topic, str | int]] = set()
_heard: dict[int, dict[Topic, dict[str | int, str]]] = {}  # by sender
_outbox: list[tuple[Any, Any]] = []  # requests, and the buffers that they send


def before_first_run(instructions: tuple, name: str) -> Callable[[], Callable[[], None] | None] | None:
    """The function that a program calls before its first run. It returns the function to call after it, or None."""
    sent, expected = list(outgoing(instructions)), list(incoming(instructions))
    if not sent and not expected:
        return None

    def after() -> None:
        what = Site(f"comparison of what {name!r} received with what was sent", "", None, ())
        with recorder.operation(what, MESSAGE):
            _compare(expected)

    def before() -> Callable[[], None] | None:
        new = [t for t in sent if (t.peer, t.topic, t.value) not in _told]
        if new:
            with recorder.operation(Site(f"announcement of what {name!r} sends", "", None, ()), MESSAGE):
                _tell(new)
        return after if expected else None

    return before


# ---------------------------------------------------------------- transfers of a program


def outgoing(instructions: tuple) -> Iterator[AnnouncedTransfer]:
    """Transfers that this rank may send."""
    for visit in visits(instructions):
        x = visit.instruction
        if not isinstance(x, Call) or x.report.group is None:
            continue
        group, peers = x.report.group, x.peers
        if x.op is Routine.ALLTOALLV:
            yield from _blocks(x, x.send.counts)
        elif x.op is not Routine.RECV and x.send.dtype and peers.dest >= 0:
            topic = peers.sendtag, x.send.count, group.users
            yield AnnouncedTransfer(group.ranks[peers.dest], topic, x.send.dtype, _text(x), group.users)


def incoming(instructions: tuple) -> Iterator[AnnouncedTransfer]:
    """Transfers that this rank certainly expects."""
    for visit in visits(instructions):
        x = visit.instruction
        if not visit.certain or not isinstance(x, Call) or x.report.group is None:
            continue
        group, peers = x.report.group, x.peers
        if x.op is Routine.ALLTOALLV:
            yield from _blocks(x, x.recv.counts)
        elif x.op is not Routine.SEND and x.recv.dtype and not peers.status:
            any_rank = peers.source == mpi_start.start().MPI.ANY_SOURCE
            if any_rank or peers.source >= 0:
                peer = None if any_rank else group.ranks[peers.source]
                topic = peers.recvtag, x.recv.count, group.users
                yield AnnouncedTransfer(peer, topic, x.recv.dtype, _text(x), group.users)


def _blocks(x: Call, counts: tuple[int, ...]) -> Iterator[AnnouncedTransfer]:
    """The non-empty blocks of other ranks; an empty block needs no announcement."""
    for rank, nbytes in zip(x.report.group.ranks, counts):
        if nbytes and rank != recorder.rank:
            yield AnnouncedTransfer(rank, (x.report.label,), nbytes, _text(x), x.report.group.users)


def _text(x: Call) -> str:
    return f"{x.report.label} at {x.report.line}"


# ---------------------------------------------------------------- sending and receiving announcements


def _tell(new: list[AnnouncedTransfer]) -> None:
    by_peer: dict[int, list[AnnouncedTransfer]] = {}
    for t in new:
        assert t.peer is not None
        _told.add((t.peer, t.topic, t.value))
        by_peer.setdefault(t.peer, []).append(t)
    _outbox[:] = [entry for entry in _outbox if not entry[0].Test()]
    comm = mpi_start.start().control
    for peer, transfers in by_peer.items():
        rows = [[t.topic, t.value, t.text] for t in transfers]
        if peer == recorder.rank:
            _hear(peer, rows)
            continue
        for begin in range(0, len(rows), _ENTRIES):
            data = np.frombuffer(json.dumps(rows[begin : begin + _ENTRIES]).encode(), np.uint8)
            _outbox.append((comm.Isend(data, peer, _TAG), data))


def _hear(peer: int, rows: list[Any]) -> None:
    topics = _heard.setdefault(peer, {})
    for topic, value, text in rows:
        topics.setdefault(tuple(topic), {}).setdefault(value, text)


def _listen() -> None:
    """Receive the announcements that have arrived."""
    MPI, comm = mpi_start.start().MPI, mpi_start.start().control
    status = MPI.Status()
    while comm.Iprobe(MPI.ANY_SOURCE, _TAG, status):
        data = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        comm.Recv(data, status.Get_source(), _TAG)
        _hear(status.Get_source(), json.loads(data.tobytes()))


def _compare(expected: list[AnnouncedTransfer]) -> None:
    """Raise MismatchError for mismatched announcements, or warn. Waits only if there is a mismatch."""
    suspected: Wrong = []
    began, looks = time.monotonic(), 0
    while True:
        _listen()
        found = [(t, announced(t)) for t in expected]
        unknown = any(not others for _, others in found)
        wrong = [(t, others) for t, others in found if others and all(o.value != t.value for o in others)]
        if not wrong and (not unknown or looks >= _LOOKS):
            return
        if wrong and time.monotonic() - began > _PATIENCE:
            if any(not t.users for t, _ in suspected):
                raise MismatchError(message(suspected))
            output.say(recorder.rank, message(suspected, "unless mpi4py sent it, "))
            return
        suspected = suspected or wrong
        looks += 1
        if wrong:
            os.sched_yield()


def announced(t: AnnouncedTransfer) -> list[AnnouncedTransfer]:
    """The announcements received on the topic of a transfer, with the rank that announced each."""
    out = []
    for peer in _heard if t.peer is None else [t.peer]:
        topics = _heard.get(peer, {})
        any_tag = len(t.topic) > 1 and t.topic[0] < 0
        same = [topic for topic in topics if topic[1:] == t.topic[1:]] if any_tag else [t.topic]
        found = [x for topic in same for x in topics.get(topic, {}).items()]
        out += [AnnouncedTransfer(peer, t.topic, value, text) for value, text in found]
    return out


def message(wrong: Wrong, unless: str = "") -> str:
    lines = []
    for t, others in wrong:
        last = others[-1]
        lines.append(f"  rank {recorder.rank} expects {_shown(t.value)}: {t.text}")
        lines.append(f"  rank {last.peer} sends {_shown(last.value)}: {last.text}")
    more = len(wrong) - 4
    return "\n".join([
        f"{unless}rank {recorder.rank} received a message of another type than it expected:",
        *lines[:8],
        *([f"  ... and {more} more"] if more > 0 else []),
        "MPI moves bytes and converts nothing. Use the same dtype on both ranks (x.astype). The recvcounts of "
        "`alltoallv` must equal the sendcounts of the other ranks. (MPIJAX_GUARD=0 turns this check off.)",
    ])  # fmt: skip


def _shown(value: str | int) -> str:
    return value if isinstance(value, str) else f"{value} bytes"
