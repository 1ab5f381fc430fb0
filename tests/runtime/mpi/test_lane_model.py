"""The protocol of lanes (``cython_ext/mpi_lanes.h``) as a model whose states are all explored, one access to memory at a time.

A sender and a receiver exchange messages 0, 1, 2, ... Both may end a session, or leave their run, whenever the protocol
lets them. Every message must be received once and in order, and somebody can always go on. Mutants leave one rule of the
protocol out, and the model must find what goes wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from quickly import one_in

FENCE = "fence"
SHUT, OFFERED, TAKEN = "shut", "offered", "taken"
BY_MPI, ON_OFFER, BY_LANE, LEFT = "by MPI", "on offer", "by lane", "left"


class State(NamedTuple):
    """Of both ranks and of what they share, as the names in the C code."""

    # shared
    lane: tuple = (SHUT, 0)  # and the session
    read: int = 0
    ended: bool = False  # the lowest bit of `read`
    left: int = 0
    gone: int = 0
    sent: int = 0
    slots: tuple = ()  # (number, message) of each
    mpi: tuple = ()  # messages on their way by MPI
    # the sender
    s: str = "idle"
    s_active: bool = False
    s_session: int = 0
    s_count: int = 0  # messages put into the lane, in all sessions
    s_first: int = 0  # of this session, the first
    s_next: int = 0  # the message to be sent
    s_by_mpi: bool = False  # one has been sent by MPI in this run
    s_again: int = 0  # the message in the lane to be sent again
    s_leaves: int = 0
    # the receiver
    r: str = "idle"
    r_mode: str = BY_MPI
    r_session: int = 0
    r_count: int = 0
    r_first: int = 0
    r_got: int = 0  # messages received
    r_copy: object = None
    r_leaves: int = 0


class Wrong(Exception):
    """A message was lost, doubled or overtaken, or nobody can go on."""


class Model:
    """The protocol for so many messages, slots and runs. any_tag: the receiver takes whatever tag comes. mutant: the
    rule left out."""

    def __init__(self, messages=4, slots=2, leaves=1, any_tag=False, mutant=""):
        self.messages, self.size, self.leaves, self.any_tag, self.mutant = messages, slots, leaves, any_tag, mutant

    def start(self) -> State:
        return State(slots=((0, None),) * self.size)

    def final(self, x: State) -> bool:
        return x.s == "done" and x.r == "done"

    def number(self, session: int, count: int, first: int) -> int:
        """What says that a message of the lane has come."""
        if self.mutant == "counts again in each session":
            return count - first + 1
        if self.mutant == "session and count share few bits":
            return 2 * session + count - first + 1
        return count + 1

    # ---- the sender

    def sender(self, x: State):
        if x.s == "idle":
            yield from self.sender_chooses(x)
        elif x.s == "fence":
            yield x._replace(s="data", mpi=(*x.mpi, FENCE) if self.mutant != "no fence" else x.mpi)
        elif x.s in ("data", "number"):
            yield self.sender_puts(x)
        elif x.s.startswith("end"):
            yield from self.sender_ends(x)
        elif x.s == "by MPI":
            yield x._replace(s="idle", mpi=(*x.mpi, x.s_next), s_next=x.s_next + 1, s_by_mpi=True)

    def sender_chooses(self, x: State):
        if x.s_active:
            yield x._replace(s="end, idle")  # it loses its patience, or calls Python
        elif x.s_next == self.messages:
            yield x._replace(s="done")
        elif x.s_leaves < self.leaves:
            yield x._replace(s_leaves=x.s_leaves + 1, s_by_mpi=False)
        if x.s_next == self.messages:
            return
        if not x.s_active:
            if x.lane[0] == OFFERED and x.s_by_mpi:
                yield x._replace(
                    s="fence", lane=(TAKEN, x.lane[1]), s_active=True, s_session=x.lane[1], s_first=x.s_count
                )
            else:
                yield x._replace(s="by MPI")
        elif x.left == x.s_session:
            yield x._replace(s="end, by MPI")
        elif x.s_count - x.read < self.size or self.mutant == "no look at what is unread":
            yield x._replace(s="data")
        else:
            yield x._replace(s="end, by MPI")  # it waits, or loses its patience

    def sender_puts(self, x: State) -> State:
        at = x.s_count % self.size
        number = self.number(x.s_session, x.s_count, x.s_first)
        first = (x.s == "data") != (self.mutant == "number before data")
        slot = (x.slots[at][0], x.s_next) if first else (number, x.slots[at][1])
        x = x._replace(slots=(*x.slots[:at], slot, *x.slots[at + 1 :]))
        if x.s == "data":
            return x._replace(s="number")
        return x._replace(s="idle", s_count=x.s_count + 1, s_next=x.s_next + 1)

    def sender_ends(self, x: State):
        what, then = x.s.split(", ")
        if what == "end":
            yield x._replace(s=f"end1, {then}", s_again=x.read, ended=self.mutant != "sender sets no bit" or x.ended)
        elif what == "end1" and x.s_again < x.s_count and self.mutant != "nothing is sent again":
            message = x.slots[x.s_again % self.size][1]
            yield x._replace(s_again=x.s_again + 1, mpi=(*x.mpi, message))
        elif what == "end1":
            yield x._replace(s=f"end2, {then}", sent=x.s_count)
        else:
            yield x._replace(s=then, s_active=False, gone=x.s_session)

    # ---- the receiver

    def receiver(self, x: State):
        step = getattr(self, "receiver_" + x.r.replace(" ", "_"), None)
        if step is not None:
            yield from step(x)

    def receiver_idle(self, x: State):
        if x.r_leaves < self.leaves or x.r_got == self.messages:
            yield x._replace(r="leaves", r_leaves=x.r_leaves + 1)
        if x.r_got < self.messages:
            yield x._replace(r={ON_OFFER: "is by MPI", BY_LANE: "takes"}.get(x.r_mode, "waits for MPI"))

    def receiver_is_by_MPI(self, x: State):
        """Looks at the lane, then at what MPI has."""
        if x.lane == (TAKEN, x.r_session):
            yield x._replace(r="looks for the fence")
        else:
            yield x._replace(r="looks for a message")

    def receiver_looks_for_a_message(self, x: State):
        if not x.mpi or (x.mpi[0] == FENCE and (not self.any_tag or self.mutant != "fence as a message")):
            yield x._replace(r="waits for MPI" if not self.any_tag and len(x.mpi) > 1 else "is by MPI")
        else:
            yield x._replace(r="waits for MPI")

    def receiver_looks_for_the_fence(self, x: State):
        if self.mutant == "no fence":
            yield x._replace(r="takes", r_mode=BY_LANE)
        elif x.mpi and x.mpi[0] == FENCE:
            yield x._replace(r="takes", r_mode=BY_LANE, mpi=x.mpi[1:])
        elif x.mpi:
            yield x._replace(r="waits for MPI")

    def receiver_takes(self, x: State):
        """Waits for the next message of the lane, or for the end of the session."""
        number, message = x.slots[x.r_count % self.size]
        if number == self.number(x.r_session, x.r_count, x.r_first):
            yield x._replace(r="copied", r_copy=message)
        elif x.gone == x.r_session:
            yield x._replace(r="waits for MPI", r_mode=LEFT)

    def receiver_copied(self, x: State):
        if self.mutant == "read without looking at the bit" or (not x.ended and x.read == x.r_count):
            yield self.got(x._replace(read=x.r_count + 1, r_count=x.r_count + 1, r="idle"), x.r_copy)
        else:
            yield x._replace(r="waits for the sender")

    def receiver_waits_for_the_sender(self, x: State):
        if x.gone == x.r_session:
            yield x._replace(r="waits for MPI", r_mode=LEFT)

    def receiver_waits_for_MPI(self, x: State):
        for at, message in enumerate(x.mpi):
            if message != FENCE or self.any_tag:
                rest = (*x.mpi[:at], *x.mpi[at + 1 :])
                yield self.got(x._replace(mpi=rest, r="offers"), message)
                return

    def receiver_offers(self, x: State):
        waits = x.r_mode == LEFT and x.gone != x.r_session and self.mutant != "offer before the sender is gone"
        if x.r_mode in (ON_OFFER, BY_LANE) or waits:
            yield x._replace(r="idle")
        else:
            yield x._replace(r="offers1", read=x.sent, ended=False, r_count=x.sent, r_first=x.sent)

    def receiver_offers1(self, x: State):
        session = x.r_session + 1
        yield x._replace(r="idle", r_mode=ON_OFFER, r_session=session, lane=(OFFERED, session))

    def receiver_leaves(self, x: State):
        """The run, or a session."""
        if x.r_mode == ON_OFFER and x.lane[0] == OFFERED:
            yield self.out_of_run(x._replace(lane=(SHUT, x.r_session), r_mode=BY_MPI))
        elif x.r_mode == ON_OFFER:
            fence = next((at for at, message in enumerate(x.mpi) if message == FENCE), None)
            if self.mutant in ("leaves without the fence", "no fence"):
                yield x._replace(r="leaves", r_mode=BY_LANE)
            elif fence is not None:
                yield x._replace(r="leaves", r_mode=BY_LANE, mpi=(*x.mpi[:fence], *x.mpi[fence + 1 :]))
        elif x.r_mode == BY_LANE:
            yield x._replace(r="leaves1", ended=self.mutant != "receiver sets no bit" or x.ended)
        else:
            yield self.out_of_run(x)

    def receiver_leaves1(self, x: State):
        yield self.out_of_run(x._replace(left=x.r_session, r_mode=LEFT))

    def out_of_run(self, x: State) -> State:
        return x._replace(r="done" if x.r_got == self.messages else "idle")

    def got(self, x: State, message: object) -> State:
        if message != x.r_got:
            raise Wrong(f"message {x.r_got} should come, {message} did")
        return x._replace(r_got=x.r_got + 1, r_copy=None)


def explore(model: Model) -> tuple[int, set]:
    """(how many states there are, how messages come: the receiver's mode, whether the sender uses the lane, the session)"""
    todo, seen, ways = [model.start()], {model.start()}, set()
    while todo:
        x = todo.pop()
        nexts = [*model.sender(x), *model.receiver(x)]
        if not nexts and not (model.final(x) and not x.mpi):
            raise Wrong(f"nobody can go on: {x}")
        for y in nexts:
            if y.r_got > x.r_got:
                ways.add((x.r_mode, x.s_active, y.r_session))
            if y not in seen:
                seen.add(y)
                todo.append(y)
    return len(seen), ways


@pytest.mark.sweep
@pytest.mark.parametrize("any_tag", [False, True])
@pytest.mark.parametrize("messages, slots, leaves", [(4, 2, 1), (6, 2, 0), (5, 1, 1), (4, 4, 2)])
@pytest.mark.one_in(2)
def test_each_message_is_received_once_and_in_order(messages, slots, leaves, any_tag):
    count, ways = explore(Model(messages, slots, leaves, any_tag))
    assert count > 1000
    assert (BY_LANE, True, 1) in ways and (BY_LANE, True, 2) in ways, "a second session, in the slots of the first"


MUTANTS = [
    "no fence", "leaves without the fence", "fence as a message", "number before data", "nothing is sent again",
    "sender sets no bit", "read without looking at the bit", "no look at what is unread",
    "offer before the sender is gone", "counts again in each session", "session and count share few bits",
]  # fmt: skip


@pytest.mark.parametrize("mutant", one_in(3, MUTANTS))
def test_a_protocol_without_one_of_its_rules_is_rejected(mutant):
    with pytest.raises(Wrong):
        for messages, slots, any_tag in ((4, 2, True), (4, 2, False), (6, 2, False)):
            explore(Model(messages, slots, 1, any_tag, mutant))
