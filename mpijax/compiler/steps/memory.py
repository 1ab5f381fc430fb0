"""Where the values of a graph lie: liveness over its steps, results in the memory of operands, offsets in the arena."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mpijax.compiler.graph.nodes import Value, ValueKind
from mpijax.compiler.steps.arena import Room, Span, aligned
from mpijax.compiler.steps.instructions import Input, Output, Temp
from mpijax.compiler.steps.lower import LoweredGraph
from mpijax.compiler.steps.step import BeginStep, Step
from mpijax.core.base import config
from mpijax.core.base.errors import BrokenForm


class BufferAssignment:
    """The memory that the steps of one graph need.

    table: its buffers; arena: bytes of those that are temporaries. buffer_of: the entry of each value, by id.
    """

    def __init__(
        self, lowered: LoweredGraph, donated: tuple[bool, ...], enter_ends: Callable[[BufferAssignment], None]
    ):
        """donated: arguments that may be overwritten. enter_ends: enters the arguments and results into the table."""
        self.graph, self.roots, self.steps = lowered.graph, lowered.roots, lowered.steps
        self.donated = donated
        self.table: list[Any] = []
        self.arena = 0
        self.buffer_of: dict[int, int] = {}
        self.last_use: dict[int, int] = {}
        self.first_def: dict[int, int] = {}
        # Results in whose memory something else lives until they are made.
        self.occupied: set[int] = set()
        self._arguments = set(map(id, self.graph.inputs))
        # Whose memory a value takes over, and which values take over each one's.
        self._shares: dict[int, int] = {}
        self._takers: dict[int, list[int]] = {}
        # The operand whose memory each value has, also where that has it from a result.
        self._giver_of: dict[int, int] = {}
        self._find_lives()
        enter_ends(self)
        self._share({id(v) for v in self.graph.outputs} | {id(v) for v in self.roots.aliases.values()})
        self._place_temporaries()
        if config.values.jax_enable_checks:
            verify(self)

    def enter(self, v: Value, buffer: Any) -> None:
        """Let a value lie in a buffer of its own."""
        self.buffer_of[id(v)] = len(self.table)
        self.table.append(buffer)

    def lasting(self) -> list[Span]:
        """Where the temporaries entered so far are; those of the ends last from the first step to the last."""
        return [(b.offset, b.offset + b.nbytes, len(self.steps)) for b in self.table if isinstance(b, Temp)]

    def donates(self, base: Value, target: Value) -> bool:
        """Whether `target` lies in the memory of the argument `base`."""
        buffer = self.table[self.buffer_of[id(target)]]
        return isinstance(buffer, Output) and base.kind is ValueKind.INPUT and buffer.donor == base.position

    def _find_lives(self) -> None:
        for t, step in enumerate(self.steps):
            for v in step.writes:
                self.first_def.setdefault(id(v), t)
                self.last_use[id(v)] = max(self.last_use.get(id(v), t), t)
            for v in step.reads:
                if v.scalar is None:
                    self.last_use[id(v)] = t

    def _place_temporaries(self) -> None:
        """Offsets in the arena by first fit; results have memory of their own."""
        room = Room(self.lasting())
        for t, step in enumerate(self.steps):
            room.leave(t - 1)
            for v in step.writes:
                if id(v) in self.buffer_of or self.first_def[id(v)] != t:
                    continue
                shared = self._shares.get(id(v))
                if shared is not None and shared in self.buffer_of:
                    self.buffer_of[id(v)] = self.buffer_of[shared]
                    continue
                offset = room.place(v.nbytes, self._group_last(id(v)))
                # Empty values have memory, too: LLVM code may read a first element before it tests the loop's length.
                self.arena = max(self.arena, aligned(offset + max(v.nbytes, 1)))
                self.enter(v, Temp(offset, v.nbytes, v))

    def _group_last(self, key: int) -> int:
        """Last use of a value and of those that take over its memory."""
        last = self.last_use[key]
        stack = [key]
        while stack:
            for taker in self._takers.get(stack.pop(), ()):
                last = max(last, self.last_use[taker])
                stack.append(taker)
        return last

    def _share(self, outputs: set[int]) -> None:
        """Let results take over the memory of operands that die where they are made."""
        taken: set[int] = set()
        for t, step in enumerate(self.steps):
            for v in step.writes:
                if self.first_def[id(v)] == t:
                    dying = (u for u in step.replaceable(v) if id(u) not in taken and self._dies(u, t, outputs))
                    same_size = (u for u in dying if u.nbytes == v.nbytes)
                    taken |= next((found for u in same_size if (found := self._gives(u, v, step, outputs))), set())

    def _dies(self, u: Value, t: int, outputs: set[int]) -> bool:
        """Whether a value is needed for the last time at step `t`."""
        lasts = u.kind in (ValueKind.CONST, ValueKind.LITERAL) or id(u) in outputs
        return self.last_use.get(id(u), -1) == t and not lasts

    def _gives(self, u: Value, v: Value, step: Step, outputs: set[int]) -> set[int]:
        """Let `v` lie in the memory of `u`, which dies; the values whose memory is decided then: none, if it cannot."""
        if id(u) in self._arguments:
            chain = self._updated(v, outputs) if isinstance(step, BeginStep) else [v]
            if len(chain) > 1 and self._starts_in(u, chain[-1]):
                self.buffer_of.update((id(w), self.buffer_of[id(chain[-1])]) for w in chain)
                return {id(u), *map(id, chain)}
            has_place = id(v) in self.buffer_of
            return {id(u)} if has_place and self._takes_over(u, self.buffer_of[id(v)]) else set()
        if id(v) in self.occupied:
            return set()
        if id(v) in self.buffer_of:
            return {id(u)} if self._lives_in(u, v) else set()
        self._shares[id(v)] = id(u)
        self._takers.setdefault(id(u), []).append(id(v))
        self._giver_of[id(v)] = id(u)
        return {id(u)}

    def _lives_in(self, u: Value, v: Value) -> bool:
        """Let the memory that `v`, a result, has of its own be that of `u` from the start, if `u` has none yet."""
        root = id(u)
        while root in self._giver_of:
            root = self._giver_of[root]
        if root in self._shares or root in self.buffer_of:
            return False
        self.buffer_of.update(dict.fromkeys((root, *self._takers.get(root, ())), self.buffer_of[id(v)]))
        self._giver_of[id(v)] = id(u)
        return True

    def _updated(self, v: Value, outputs: set[int]) -> list[Value]:
        """A value and what it becomes by updates, as long as nothing else reads it."""
        begun = [(t, s.begin) for t, s in enumerate(self.steps) if isinstance(s, BeginStep)]
        begins = {id(b.base): (t, b.target) for t, b in begun if b.base is not None}
        chain = [v]
        while id(chain[-1]) in begins and id(chain[-1]) not in outputs:
            t, target = begins[id(chain[-1])]
            if self.last_use[id(chain[-1])] != t:
                break
            chain.append(target)
        return chain

    def _starts_in(self, argument: Value, result: Value) -> bool:
        """Whether a result is to lie in the memory of an argument, which may be overwritten; makes it so if it can."""
        entry = self.buffer_of.get(id(result))
        if entry is None or entry == self.buffer_of.get(id(argument)):
            return entry is not None
        return self._takes_over(argument, entry)

    def _takes_over(self, argument: Value, entry: int) -> bool:
        """Let the memory of a donated argument be that of a result, if none is yet; whether that is done."""
        buffer = self.table[entry]
        if not self.donated[argument.position] or not isinstance(buffer, Output) or buffer.donor >= 0:
            return False
        self.table[entry] = replace(buffer, donor=argument.position)
        return True


def verify(memory: BufferAssignment) -> None:
    """Check that every step finds its operands in memory: that nothing was written over them.

    Raises:
      BrokenForm: a value was overwritten too early; the message names it, and what took its place. Or a temporary lies
        outside the arena.
    """
    for _, end, _ in memory.lasting():
        if end > memory.arena:
            raise BrokenForm(f"A temporary ends at byte {end} of an arena of {memory.arena} bytes.")
    places = _Occupancy(memory)
    held = {id(v): v for v in memory.graph.inputs}
    lost: dict[int, Value] = {}
    for step in memory.steps:
        read, written = step.reads, step.writes
        places.check_kept(read, lost, step)
        for v in written:
            for u in [u for u in held.values() if places.overlap(u, v)]:
                if any(u is w for w in written):
                    raise BrokenForm(f"Two results of a step lie in one place, {u} and {v}, in {step}.")
                if any(u is w for w in read) and not any(u is w for w in step.replaceable(v)):
                    raise BrokenForm(f"A step writes {v} over its operand {u}, which it still reads, in {step}.")
                lost[id(u)] = v
                del held[id(u)]
            held[id(v)] = v
            lost.pop(id(v), None)
    places.check_kept([v for v in memory.graph.outputs if v.kind is not ValueKind.INPUT], lost, "the end of the graph")


class _Occupancy:
    """Where the values of a graph lie in memory."""

    def __init__(self, memory: BufferAssignment):
        self.memory = memory
        self.of_base = {id(base): key for key, base in memory.roots.aliases.items()}

    def overlap(self, u: Value, v: Value) -> bool:
        """Whether two values of a graph share memory. An alias and its base are one value."""
        if self.of_base.get(id(u), id(u)) == self.of_base.get(id(v), id(v)) or not (u.nbytes and v.nbytes):
            return False
        (one, first, end), (other, start, last) = self._place(u), self._place(v)
        return one == other and first < last and start < end

    def _place(self, v: Value) -> tuple[Any, int, int]:
        """The memory of a value: what it is a part of, and its first and last byte there."""
        entry = self.memory.buffer_of.get(id(v))
        buffer = None if entry is None else self.memory.table[entry]
        if isinstance(buffer, Temp):
            return "arena", buffer.offset, buffer.offset + buffer.nbytes
        if isinstance(buffer, Output) and buffer.donor >= 0:
            return ("argument", buffer.donor), 0, 1
        if isinstance(buffer, Input):
            return ("argument", buffer.index), 0, 1
        return ("buffer", id(v) if entry is None else entry), 0, 1

    @staticmethod
    def check_kept(values: list[Value], lost: dict[int, Value], reader: Any) -> None:
        """Raise BrokenForm if one of the values was overwritten. lost: what took the place of values, by id."""
        for v in values:
            if id(v) in lost:
                raise BrokenForm(f"{v} was overwritten by {lost[id(v)]} before it is read, in {reader}.")
