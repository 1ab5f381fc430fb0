"""Communication beside computation: an exchange starts as early as its operands are there and ends at its first use.

In a list of steps an exchange moves up to where its last operand is made, but not past another exchange; what does not
need its result runs before the wait, in the order it had; what does runs after. Exchanges keep their order, and each is
waited for before the next one starts, before anything that may fail or call Python, and before the list ends. Only
those of a halo start together where they can: both borders are then on their way at once.

Memory is planned afterwards: a wait reads the exchange's operands and results, so that none of them is used for
something else before. A step that changes an array in place is not moved before those that still read it, since that
would make a copy of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mpijax.compiler.steps.combine import Combined
from mpijax.core import effects as fx
from mpijax.core.lowering import Communication, Exchange, Library
from mpijax.ops.rank_messages import HALO_TAG, is_local

if TYPE_CHECKING:
    from mpijax.compiler.graph.nodes import Value

Step = tuple[str, Any]

# Bytes of a message, and elements computed meanwhile, below which starting early gains nothing.
MESSAGE = 1 << 14
WORK = 1 << 12

# Exchanges of a halo that go on at once, at most (GOING of instructions.pxd).
TOGETHER = 4

# Operations that come in two halves; of these, those with a `status` or counts of each rank's own do not.
_MOVES = frozenset((
    Exchange.ALLREDUCE, Exchange.ALLGATHER, Exchange.ALLTOALL, Exchange.REDUCE_SCATTER, Exchange.BCAST,
    Exchange.PERMUTE, Exchange.SENDRECV,
))  # fmt: skip
_WHOLE = ("status", "counts", "sendcounts")


@dataclass
class Halves:
    """An exchange (a node, or several combined) that is started at one step and waited for at another."""

    step: Any

    @property
    def operands(self) -> list[Value]:
        return self.step.inputs

    @property
    def sent(self) -> list[Value]:
        """What must stay as it is until the wait."""
        return [self.step.packed] if isinstance(self.step, Combined) else self.step.inputs

    @property
    def received(self) -> list[Value]:
        return [self.step.reduced] if isinstance(self.step, Combined) else self.step.outputs

    def reads_writes(self, kind: str) -> tuple[list[Value], list[Value]]:
        """Of the start or the wait."""
        combined = isinstance(self.step, Combined)
        if kind == "start":
            return self.operands, [*self.received, *(self.sent if combined else [])]
        return [*self.sent, *self.received], (self.step.outputs if combined else [])


class Rearranger:
    """What is asked of a list of steps before one of them moves.

    reads_writes(kind, step): values. takers(kind, step, value, reads): operands whose memory a result could take over.
    """

    def __init__(self, steps: list[Step], reads_writes: Callable, takers: Callable):
        self.all, self.reads_writes, self.takers = steps, reads_writes, takers

    @cached_property
    def last_reader(self) -> dict[int, int]:
        """By value the step that reads it last, in the order that the steps had."""
        return {id(v): id(step) for kind, step in self.all for v in self.reads_writes(kind, step)[0]}

    def overwrites(self, item: Step, reads: list[Value], writes: list[Value], still_read: set[int]) -> bool:
        """Whether a step changes in place a value that is still read by what would run after it."""
        if item[0] == "kernel":  # which makes a new value: in other memory, at no cost
            return False
        dying = {id(v) for v in reads if id(v) in still_read and self.last_reader[id(v)] == id(item[1])}
        return bool(dying) and any(id(u) in dying for w in writes for u in self.takers(*item, w, reads))


class Overlap(Rearranger):
    """Rearranges a list of steps."""

    def __init__(self, steps: list[Step], reads_writes: Callable, takers: Callable):
        super().__init__(steps, reads_writes, takers)
        self.done: list[Step] = []
        self.rest = list(steps)

    def steps(self) -> list[Step]:
        while self.rest:
            item = self.rest.pop(0)
            started = (_is_of_halo(*item) and self._start_together(item)) or (_has_halves(*item) and self._start(item))
            if not started:
                self.done.append(item)
        return self.done

    def _start_together(self, item: Step) -> bool:
        """Place exchanges of a halo that follow each other, and do not need each other's results, in two halves."""
        started, order = [Halves(item[1])], []
        rest = list(self.rest)
        while len(started) < TOGETHER:
            meanwhile, later, barrier = self._sorted(started, rest)
            if barrier == len(rest) or not _is_of_halo(*rest[barrier]):
                break
            following = rest[barrier][1]
            late = {id(v) for e in started for v in e.received}
            late |= {id(v) for s in later for v in self.reads_writes(*s)[1]}
            if late & {id(v) for v in following.inputs} or following.params["comm"] != item[1].params["comm"]:
                break
            started.append(Halves(following))
            order += [*meanwhile, ("start", started[-1])]
            rest = [*later, *rest[barrier + 1 :]]
        if len(started) == 1:
            return False
        self.done += [("start", started[0]), *order, *(("wait", e) for e in started)]
        self.rest = rest
        return True

    def _start(self, item: Step) -> bool:
        """Place an exchange in two halves, if there is enough to do between."""
        exchange = Halves(item[1])
        at = self._earliest(exchange)
        meanwhile, later, barrier = self._sorted([exchange], self.rest)
        if sum(_work(*s) for s in [*self.done[at:], *meanwhile]) < WORK:
            return False
        self.done.insert(at, ("start", exchange))
        self.done += [*meanwhile, ("wait", exchange)]
        self.rest = [*later, *self.rest[barrier:]]
        return True

    def _earliest(self, exchange: Halves) -> int:
        needed = {id(v) for v in exchange.operands}
        at = len(self.done)
        while at and computes(*self.done[at - 1]):
            if needed & {id(v) for v in self.reads_writes(*self.done[at - 1])[1]}:
                break
            at -= 1
        return at

    def _sorted(self, started: list[Halves], rest: list[Step]) -> tuple[list[Step], list[Step], int]:
        """(what can run before exchanges that have started are waited for, what cannot, how many steps that are)"""
        late = {id(v) for exchange in started for v in exchange.step.outputs}
        still_read = {id(v) for exchange in started for v in exchange.sent}
        meanwhile: list[Step] = []
        later: list[Step] = []
        for count, item in enumerate(rest):
            if not computes(*item):
                return meanwhile, later, count
            reads, writes = self.reads_writes(*item)
            touched = {id(v) for v in reads} | {id(v) for v in writes}
            if touched & late or self.overwrites(item, reads, writes, still_read):
                later.append(item)
                late |= {id(v) for v in writes}
                still_read |= {id(v) for v in reads}
            else:
                meanwhile.append(item)
        return meanwhile, later, len(rest)


def _is_of_halo(kind: str, step: Any) -> bool:
    """Whether a step exchanges a border of a halo with other ranks."""
    if exchange_of(kind, step) is not Exchange.SENDRECV:
        return False
    p = step.params
    return p["sendtag"] == p["recvtag"] == HALO_TAG and not is_local(p)


def exchange_of(kind: str, step: Any) -> Exchange | None:
    """What a step exchanges with other ranks; None for all others."""
    lower = step.primitive.lower if kind == "node" else None
    return lower.exchange if isinstance(lower, Communication) else None


def _has_halves(kind: str, step: Any) -> bool:
    if kind == "combined":
        return step.packed.nbytes >= MESSAGE
    if exchange_of(kind, step) not in _MOVES or step.primitive.lower.counted:
        return False
    if any(step.params.get(p) is not None for p in _WHOLE):
        return False
    return sum(v.nbytes for v in step.inputs) >= MESSAGE


def computes(kind: str, step: Any) -> bool:
    """Whether a step neither communicates, nor may fail, nor calls Python."""
    if kind in ("kernel", "begin"):
        return True
    if kind == "node":
        return isinstance(step.primitive.lower, Library)
    if kind == "control":
        return not fx.pins(step.node.effects) and all(computes(*s) for body in step.bodies for s in body.steps)
    return False


def _work(kind: str, step: Any) -> int:
    """Elements that a step computes, counting each term of a sum."""
    if kind == "kernel":
        return math.prod(v.size for v in step.variables)
    if kind == "node":
        return step.outputs[0].size * max(v.shape[-1] for v in step.inputs)
    if kind == "control":
        turns = step.node.params.get("length", 1)
        return turns * sum(_work(*s) for body in step.bodies for s in body.steps)
    return 0
