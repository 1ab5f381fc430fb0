"""Small messages leave as early as what they carry is there, past receives that come before them.

A program that exchanges the edges of several fields one after the other waits for a whole round trip at each: the first
field's edge has to come before the second one's is sent. A small message is posted instead: the call keeps a copy and
does not wait, so sending it before a receive cannot block. All edges are then on their way at once.

Receives keep their order, and so do sends. A send passes receives from the rank that it goes to, kernels and messages
of this rank to itself: no receive from another rank, since who gets what is sent after it may go by that ("it is my
iteration"), no exchange, no collective, and nothing that may fail or call Python.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mpijax.compiler.steps.overlap import Rearranger
from mpijax.compiler.steps.step import NodeStep, Step
from mpijax.core.rules.lowering import Exchange
from mpijax.ops.ranks.messages import HALO_TAG, is_local
from mpijax.ops.ranks.ops import rank_in

# Bytes of the largest message that is copied rather than waited for.
POSTED = 1 << 14

_RECEIVES = frozenset((Exchange.RECV, Exchange.SENDRECV))
_MESSAGES = _RECEIVES | {Exchange.SEND}


class Posting(Rearranger):
    """Rearranges a list of steps: a send that moves is posted."""

    def __init__(self, steps: list[Step]):
        super().__init__(steps)
        self.kinds = {id(step): _kind(step) for step in steps}

    def steps(self) -> list[Step]:
        if Exchange.SEND not in self.kinds.values():
            return self.all
        done: list[Step] = []
        window: list[Step] = []
        for step in self.all:
            if self._passes(step):
                window.append(step)
            else:
                done += [*self._arranged(window), step]
                window = []
        return done + self._arranged(window)

    def _arranged(self, rest: list[Step]) -> list[Step]:
        """Before each receive, the sends behind it that do not need what it brings, with what makes their operands."""
        done: list[Step] = []
        rest = list(rest)
        while rest:
            if self.kinds[id(rest[0])] in _RECEIVES:
                while (ahead := self._next_send(rest)) is not None:
                    moved = [rest[i] for i in ahead]
                    send = moved[-1]
                    assert isinstance(send, NodeStep)
                    done += [*moved[:-1], replace(send, posted=True)]
                    rest = [step for i, step in enumerate(rest) if i not in ahead]
            done.append(rest.pop(0))
        return done

    def _next_send(self, rest: list[Step]) -> list[int] | None:
        """Where the next send is, after what makes its operand; None if it has to stay behind the receive."""
        at = next((i for i, step in enumerate(rest) if self.kinds[id(step)] is Exchange.SEND), None)
        if at is None or rest[at].reads[0].nbytes > POSTED or not self._may_pass(rest[at], rest[:at]):
            return None
        found = [at]
        needed = {id(v) for v in rest[at].reads}
        for i in reversed(range(at)):
            if not needed & {id(v) for v in rest[i].writes}:
                continue
            if self.kinds[id(rest[i])] in _RECEIVES:
                return None
            found.insert(0, i)
            needed |= {id(v) for v in rest[i].reads}
        passed = [rest[i] for i in range(at) if i not in found]
        return found if self._leaves_no_copy([rest[i] for i in found], passed) else None

    def _may_pass(self, send: Any, others: list[Any]) -> bool:
        to = send.params["dest"], send.params["comm"]
        passed = [step for step in others if self.kinds[id(step)] in _RECEIVES]
        return all(
            self.kinds[id(step)] is Exchange.RECV and (step.params["source"], step.params["comm"]) == to
            for step in passed
        )

    def _passes(self, step: Any) -> bool:
        """Halo exchanges stay: they have channels of their own, in which a send may wait."""
        name = self.kinds[id(step)]
        if name in _MESSAGES and HALO_TAG in (step.params.get("tag"), step.params.get("sendtag")):
            return False
        if name is Exchange.SEND:
            return step.params["dest"] != rank_in(step.params["comm"])
        if name is Exchange.RECV:
            return step.params["source"] != rank_in(step.params["comm"]) and step.params["status"] is None
        if isinstance(step, NodeStep) and step.communicates:
            return step.exchange is Exchange.SENDRECV and step.params["status"] is None
        return step.computes

    def _leaves_no_copy(self, moved: list[Step], passed: list[Step]) -> bool:
        still_read = {id(v) for step in passed for v in step.reads}
        return not any(self.overwrites(step, still_read) for step in moved)


def _kind(step: Step) -> Exchange | None:
    """Of messages with other ranks, their kind."""
    found = step.exchange if isinstance(step, NodeStep) else None
    return None if found is Exchange.SENDRECV and is_local(step.params) else found  # type: ignore[attr-defined]
