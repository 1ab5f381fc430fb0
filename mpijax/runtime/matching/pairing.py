"""Detects messages that only one rank differentiates: both ranks raise before either blocks.

The cotangent of a message travels back along the same edge, so both ranks must differentiate it. If a compiled program
contains messages and their derivatives together (`jit(grad(f))`, `jit(jvp(f))`), the two ranks compare it before its
first run. Each rank sends its peer the list of derivatives that it sends and receives. Both raise `MismatchError` if
one rank's sends are not the other's receives. Messages of a rank to itself are compared locally.
The peer may not run such a program: it may differentiate operation by operation, or, by mistake, not at all. Suppose
the records of this node (`recorder`) show that the peer waits for this rank in a differentiated message; then this rank
withdraws its list. If the peer waits in any other operation that needs this rank, or has ended, that is an error. If no
record is visible (another node, calls of mpi4py), the comparison times out, and later comparisons of this edge are
skipped. The watchdog reports a deadlock that follows.

An edge is a pair of ranks of a communicator. A list is compared once; another list with as many messages of the same
sizes (`Edge.kind`) counts as compared. Each list carries the number of comparisons that its rank has finished, so a
withdrawn list, or an answer to one, is not mistaken for a later one.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import field
from typing import Any

import numpy as np

from mpijax.compiler.steps.instructions import Visit, visits
from mpijax.core.base.errors import MismatchError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.ops.ranks.messages import DERIVATIVES, PRIMAL, SHOWN
from mpijax.runtime.machine.executable import Call
from mpijax.runtime.machine.routines import Routine
from mpijax.runtime.mpi import mpi_start
from mpijax.runtime.reports.recorder import COLLECTIVE, ENDED, GUARD, MESSAGE, CommRecord, Site, recorder

# Maximum bytes of a list; longer ones are not compared.
LIST = 1 << 13
# Seconds after which a waiting rank checks whether its peer can still answer.
PATIENCE = 1.0
# Seconds after which a comparison with a rank without visible records is given up.
UNKNOWN = 10.0
# The kinds of messages on an edge, each with the number of the comparison: list, "differ", "withdrawn", "no more".
_LIST, _DIFFERS, _WITHDRAWN, _NO_MORE = b"=", b"!", b"-", b"."
# How often a rank polls for a withdrawal before it accepts a list.
_LOOKS = 64

# One derivative: ("to" or "from", tag, bytes).
Item = tuple[str, int, int]
# The derivatives of an edge: for each direction ("to" or "from") and size in bytes, the number of messages.
Kind = frozenset[tuple[tuple[str, int], int]]


@dataclass
class Edge:
    """The derivatives that a program sends between this rank and a peer (a rank of the job).

    whole: whether the program also contains the original messages. counted: whether the number of messages is known.
    """

    group: CommRecord
    peer: int
    items: Counter[Item] = field(default_factory=Counter)
    lines: dict[Item, str] = field(default_factory=dict)
    whole: bool = False
    counted: bool = True

    def add(self, item: Item, times: int, what: str) -> None:
        self.items[item] += times
        self.lines.setdefault(item, what)

    def kind(self) -> Kind:
        """A summary that both ranks compute alike; from it, each decides whether the other waits for a comparison.

        It has no source lines, which may differ between the ranks, and no tags, since a receiver may accept any tag.
        """
        totals: Counter[tuple[str, int]] = Counter()
        for (way, _, nbytes), n in self.items.items():
            totals[way, nbytes] += n
        return frozenset(totals.items())

    def text(self) -> bytes:
        """The list in the form sent to the peer; `?` if it cannot be compared."""
        rows = [[*item, n, self.lines[item]] for item, n in sorted(self.items.items())]
        data = json.dumps(rows).encode()
        return data if self.counted and len(data) < LIST else b"?"


def edges(instructions: tuple) -> list[Edge]:
    """The edges with derivatives, in order of (communicator, peer)."""
    found: dict[tuple[int, int], Edge] = {}
    for visit in visits(instructions):
        x = visit.instruction
        if isinstance(x, Call) and x.report.group is not None and x.report.role in (*DERIVATIVES, PRIMAL):
            _add(x, visit, found)
    return [found[k] for k in sorted(found) if found[k].items]


def _add(x: Call, visit: Visit, found: dict[tuple[int, int], Edge]) -> None:
    peers, report = x.peers, x.report
    halves = []
    if x.op is not Routine.RECV and peers.dest >= 0:
        halves.append((peers.dest, ("to", peers.sendtag, x.send.count)))
    if x.op is not Routine.SEND and peers.source >= 0:
        halves.append((peers.source, ("from", peers.recvtag, x.recv.count)))
    for place, item in halves:
        peer = report.group.ranks[place]
        edge = found.setdefault((report.group.id, peer), Edge(report.group, peer))
        if report.role == PRIMAL:
            edge.whole = True
        elif visit.times:
            edge.add(item, visit.times, f"{report.label} at {report.line}")
            edge.counted &= visit.counted


def differences(mine: Edge, theirs: list[list[Any]]) -> list[str]:
    """The sends and receives that do not match between this rank and its peer, as text."""
    here, there = Counter(mine.items), Counter[Item]()
    texts = {}
    for way, tag, nbytes, n, what in theirs:
        item = ("from" if way == "to" else "to", tag, nbytes)
        there[item] += n
        texts[item] = what
    # A receiver that accepts any tag takes the messages that remain.
    for ours, others in ((here, there), (there, here)):
        for item in [i for i in ours if i[1] < 0]:
            for other in [i for i in others if i[1] >= 0 and (i[0], i[2]) == (item[0], item[2])]:
                n = min(max(ours[item], 0), max(others[other] - ours[other], 0))
                ours[item] -= n
                others[other] -= n
    out = []
    for item in sorted({*here, *there}, key=str):
        if here[item] != there[item]:
            more, fewer = (recorder.rank, mine.peer) if here[item] > there[item] else (mine.peer, recorder.rank)
            what = mine.lines.get(item) if more == recorder.rank else texts.get(item)
            if what is None:  # a message to itself: the text is on the other end
                continue
            n = abs(here[item] - there[item])
            times = f", {n} times" if n > 1 else ""
            out.append(f"  rank {more}: {what}{times}; rank {fewer} does not differentiate the other end")
    return out


def message(peer: int, lines: list[str]) -> str:
    return "\n".join([
        f"rank {recorder.rank} does not differentiate both ends of its messages to itself:"
        if peer == recorder.rank
        else f"rank {recorder.rank} and rank {peer} do not differentiate the same messages:",
        *lines[:8],
        *([f"  ... and {len(lines) - 8} more"] if len(lines) > 8 else []),
        "Derivatives are messages too, so both ranks must differentiate both ends of a message. Transform the "
        "functions of both ranks. A `send` and its `recv` need the same tag, shape and dtype. (MPIJAX_GUARD=0 turns "
        "this check off.)",
    ])  # fmt: skip


def to_itself(edge: Edge) -> str:
    """The mismatch between derivatives of messages that this rank sends to itself; '' if there is none."""
    text = edge.text()
    return "" if text == b"?" or not (found := differences(edge, json.loads(text))) else message(edge.peer, found)


class Doubt(Exception):
    """The comparison is impossible. Its text: the error, or '' to give up. for_good: also give up later comparisons."""

    def __init__(self, text: str = "", for_good: bool = True):
        super().__init__(text)
        self.for_good = for_good


Key = tuple[int, int]
_settled: dict[Key, set[Kind]] = {}
_finished: Counter[Key] = Counter()
_given_up: set[Key] = set()
_outbox: list[tuple[Any, Any]] = []  # requests, and the buffers that they send


def _is_new(edge: Edge) -> bool:
    key = edge.group.id, edge.peer
    return key not in _given_up and edge.kind() not in _settled.get(key, ())


class _EdgeChannel:
    """The channel between the two ranks of an edge."""

    def __init__(self, edge: Edge):
        self.comm = mpi_start.start().control
        self.peer, self.tag = edge.peer, edge.group.id % 2700 + 30013

    def send(self, what: bytes, number: int, text: bytes = b"") -> None:
        _outbox[:] = [entry for entry in _outbox if not entry[0].Test()]
        data = np.frombuffer(b"%s%d %s" % (what, number, text), np.uint8)
        _outbox.append((self.comm.Isend(data, self.peer, self.tag), data))

    def next(self) -> tuple[bytes, int, bytes] | None:
        """The next message, or None."""
        if not any(self.comm.Iprobe(self.peer, self.tag) for _ in range(_LOOKS)):
            return None
        data = np.zeros(LIST + 32, np.uint8)
        self.comm.Recv(data, self.peer, self.tag)
        number, _, text = bytes(data[1:]).rstrip(b"\0").partition(b" ")
        return bytes(data[:1]), int(number), text


def _compare(edge: Edge) -> Generator[str | None, None, None]:
    """Yields None while it waits, then '' or the difference. A `Doubt` thrown into it ends it."""
    key, text, line = (edge.group.id, edge.peer), edge.text(), _EdgeChannel(edge)
    number = _finished[key]
    line.send(_LIST, number, text)
    found: list[str] | None = None  # the differences, once the peer's list has arrived and counts
    told = heard = False  # whether this rank sent, or received, that the lists differ
    try:
        while True:
            come = line.next()
            if come is not None:
                what, at, theirs = come
                if what == _NO_MORE or (what == _LIST and b"?" in (theirs, text)):
                    _given_up.add(key)
                    found = None
                    break
                if what == _WITHDRAWN:
                    found = None
                elif what == _LIST and at >= number:
                    number, found = at, differences(edge, json.loads(theirs))
                elif what == _DIFFERS:
                    heard |= at >= number
            elif found and not told:
                line.send(_DIFFERS, number)
                told = True
            elif found is None or (found and not heard):
                yield None
            else:
                _finished[key] = number + 1
                if not found:
                    _settled.setdefault(key, set()).add(edge.kind())
                break
        yield message(edge.peer, found) if found else ""
    except Doubt as doubt:
        if doubt.for_good:
            _given_up.add(key)
        line.send(_NO_MORE if doubt.for_good else _WITHDRAWN, number)
        yield str(doubt)


def before_first_run(instructions: tuple, name: str) -> Callable[[], None] | None:
    """The function that a program calls before its first run; None if there is nothing to compare."""
    found = [edge for edge in edges(instructions) if edge.whole]
    if not found:
        return None
    return lambda: _agree(found, name)


def _agree(found: list[Edge], name: str) -> None:
    for edge in found:
        if edge.peer == recorder.rank and (text := to_itself(edge)):
            raise MismatchError(text)
    new = [edge for edge in found if edge.peer != recorder.rank and _is_new(edge)]
    if not new:
        return
    peers = tuple(dict.fromkeys(edge.peer for edge in new))
    what = Site(f"comparison of derivatives of messages of {name!r}", "", new[0].group, peers)
    with recorder.operation(what, MESSAGE):
        _compare_all(new)


def _compare_all(new: list[Edge]) -> None:
    waiting = [(edge, _compare(edge)) for edge in new]
    began = looked = time.monotonic()
    seen: dict[int, int] = {}
    while waiting:
        now = time.monotonic()
        looks = now - looked > PATIENCE
        looked = now if looks else looked
        for edge, exchange in list(waiting):
            answer = next(exchange)
            doubt = look(edge, now - began, seen) if answer is None and looks else None
            if doubt is not None:
                answer = exchange.throw(doubt)
            if answer:
                raise MismatchError(answer)
            if answer is not None:
                waiting.remove((edge, exchange))
        rest(now - began)


def rest(waited: float) -> None:
    """Yield the core to other ranks, for longer the longer this rank has waited: many may wait for one busy rank."""
    if waited < 1e-3:
        os.sched_yield()
    else:
        time.sleep(min(waited / 8, 5e-3))


def look(edge: Edge, waited: float, seen: dict[int, int]) -> Doubt | None:
    """The conclusion from a silent peer's records; None if it may still answer.

    seen: for each rank, the operation in which it was last seen; a rank counts as stuck when seen there twice.
    """
    peer, first = edge.peer, next(iter(edge.lines.values()))
    unknown = Doubt() if waited > UNKNOWN else None
    region = recorder.region(peer)
    if region is None:
        return unknown
    if recorder.is_gone(peer) or int(region["state"]) == ENDED:
        return Doubt(message(peer, [f"  rank {recorder.rank}: {first}", f"  rank {peer} has ended"]))
    number, busy = recorder.progress(region)
    if not busy or seen.get(peer) != number:
        seen[peer] = number if busy else -1
        return unknown
    site = int(recorder.last(region)["site"])
    text = recorder.text_of(region, site)
    own = edge.group.ranks.index(recorder.rank)
    for_this_rank = bool({f"source={own}", f"dest={own}"} & set(text.split()))
    # A peer that can count its derivatives may already have compared with a list that this rank cannot count.
    if edge.text() == b"?":
        return Doubt()
    if any(role in text for role in SHOWN.values()):
        return Doubt(for_good=not for_this_rank)
    sequence = recorder.sequence_of(region, site)
    joins = any(sequence - group.id in (COLLECTIVE, GUARD) for group in recorder.groups.values())
    if joins or for_this_rank:
        return Doubt(message(peer, [f"  rank {recorder.rank}: {first}", f"  rank {peer} waits in {text}"]))
    return unknown
