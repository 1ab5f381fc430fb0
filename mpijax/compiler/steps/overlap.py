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

from functools import cached_property
from typing import TypeGuard

from mpijax.compiler.steps.step import CombinedStep, FinishStep, KernelStep, NodeStep, StartStep, Step
from mpijax.core.rules.lowering import Exchange
from mpijax.ops.ranks.messages import HALO_TAG, is_local

Exchanging = NodeStep | CombinedStep

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


class Rearranger:
    """What is asked of a list of steps before one of them moves."""

    def __init__(self, steps: list[Step]):
        self.all = steps

    @cached_property
    def last_reader(self) -> dict[int, int]:
        """By value the step that reads it last, in the order that the steps had."""
        return {id(v): id(step) for step in self.all for v in step.reads}

    def overwrites(self, step: Step, still_read: set[int]) -> bool:
        """Whether a step changes in place a value that is still read by what would run after it."""
        if isinstance(step, KernelStep):  # which makes a new value: in other memory, at no cost
            return False
        dying = {id(v) for v in step.reads if id(v) in still_read and self.last_reader[id(v)] == id(step)}
        return bool(dying) and any(id(u) in dying for w in step.writes for u in step.replaceable(w))


class Overlap(Rearranger):
    """Rearranges a list of steps."""

    def __init__(self, steps: list[Step]):
        super().__init__(steps)
        self.done: list[Step] = []
        self.rest = list(steps)

    def steps(self) -> list[Step]:
        while self.rest:
            step = self.rest.pop(0)
            if not (_is_of_halo(step) and self._start_together(step)) and not (_has_halves(step) and self._start(step)):
                self.done.append(step)
        return self.done

    def _start_together(self, first: NodeStep) -> bool:
        """Place exchanges of a halo that follow each other, and do not need each other's results, in two halves."""
        started: list[Exchanging] = [first]
        order: list[Step] = []
        rest = list(self.rest)
        while len(started) < TOGETHER:
            meanwhile, later, barrier = self._sorted(started, rest)
            following = rest[barrier] if barrier < len(rest) else None
            if following is None or not _is_of_halo(following):
                break
            late = {id(v) for e in started for v in e.received} | {id(v) for s in later for v in s.writes}
            if late & {id(v) for v in following.reads} or following.params["comm"] != first.params["comm"]:
                break
            started.append(following)
            order += [*meanwhile, StartStep(following)]
            rest = [*later, *rest[barrier + 1 :]]
        if len(started) == 1:
            return False
        self.done += [StartStep(first), *order, *map(FinishStep, started)]
        self.rest = rest
        return True

    def _start(self, exchange: Exchanging) -> bool:
        """Place an exchange in two halves, if there is enough to do between."""
        at = self._earliest(exchange)
        meanwhile, later, barrier = self._sorted([exchange], self.rest)
        if sum(s.work for s in [*self.done[at:], *meanwhile]) < WORK:
            return False
        self.done.insert(at, StartStep(exchange))
        self.done += [*meanwhile, FinishStep(exchange)]
        self.rest = [*later, *self.rest[barrier:]]
        return True

    def _earliest(self, exchange: Exchanging) -> int:
        needed = {id(v) for v in exchange.reads}
        at = len(self.done)
        while at and self.done[at - 1].computes:
            if needed & {id(v) for v in self.done[at - 1].writes}:
                break
            at -= 1
        return at

    def _sorted(self, started: list[Exchanging], rest: list[Step]) -> tuple[list[Step], list[Step], int]:
        """(what can run before exchanges that have started are waited for, what cannot, how many steps that are)"""
        late = {id(v) for exchange in started for v in (*exchange.received, *exchange.unpacked)}
        still_read = {id(v) for exchange in started for v in exchange.sent}
        meanwhile: list[Step] = []
        later: list[Step] = []
        for count, step in enumerate(rest):
            if not step.computes:
                return meanwhile, later, count
            touched = {id(v) for v in (*step.reads, *step.writes)}
            if touched & late or self.overwrites(step, still_read):
                later.append(step)
                late |= {id(v) for v in step.writes}
                still_read |= {id(v) for v in step.reads}
            else:
                meanwhile.append(step)
        return meanwhile, later, len(rest)


def _is_of_halo(step: Step) -> TypeGuard[NodeStep]:
    """Whether a step exchanges a border of a halo with other ranks."""
    if not isinstance(step, NodeStep) or step.exchange is not Exchange.SENDRECV:
        return False
    p = step.params
    return p["sendtag"] == p["recvtag"] == HALO_TAG and not is_local(p)


def _has_halves(step: Step) -> TypeGuard[Exchanging]:
    if isinstance(step, CombinedStep):
        return step.packed.nbytes >= MESSAGE
    if not isinstance(step, NodeStep) or step.exchange not in _MOVES or step.node.primitive.lower.counted:
        return False
    if any(step.params.get(p) is not None for p in _WHOLE):
        return False
    return sum(v.nbytes for v in step.node.inputs) >= MESSAGE
