"""Loops and branches as steps: where carries live, how slices are walked through, what a body may overwrite.

A carry lives in the memory of its result. A body that reads a carry for the last time where the new one is made
overwrites it in place; otherwise the new carry has memory of its own and is copied back, or, if it is large, the
two memories are exchanged after each iteration. Slices of scanned arrays are never copied: a pointer moves along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.graph.nodes import Node, Value, ValueKind
from mpijax.compiler.graph.regions import Region
from mpijax.compiler.steps.arena import aligned, first_fit
from mpijax.compiler.steps.instructions import Advance, Copy, Loop, Place, Point, Pointer, Swap, Switch, Temp, While
from mpijax.compiler.steps.lower import lowered
from mpijax.compiler.steps.memory import BufferAssignment
from mpijax.compiler.steps.native import native
from mpijax.compiler.steps.step import ControlStep, Step
from mpijax.compiler.steps.time_tiles import in_time_tiles
from mpijax.compiler.steps.write import InstructionWriter
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import Flow
from mpijax.core.types.avals import ShapedArray

if TYPE_CHECKING:
    from mpijax.compiler.steps.plan import PlanBuilder

# Carries of more bytes than this change places with the new ones instead of being copied.
COPY_UP_TO = 1 << 12


@dataclass(frozen=True)
class Bound:
    """An entry of a body's table: a place outside of it."""

    nbytes: int
    value: Value


class ResultMemory(Enum):
    """Where a result of a body lies.

    SAME: it is an unchanged carry. IN_PLACE: in the memory of the carry that it replaces. OWN: in memory of its own
    until the iteration ends. BOUND: where the loop or branch says.
    """

    SAME = auto()
    IN_PLACE = auto()
    OWN = auto()
    BOUND = auto()


class ControlBody:
    """One body of a loop or branch. `carries` results are the next iteration's first `carries` arguments.

    keeps: results stay in memory of the body's own. how: where each result lies.
    """

    def __init__(self, region: Region, carries: int, *, keeps: bool):
        self.region = region
        self.graph = region.graph
        self.carries = carries
        self.keeps = keeps
        self.how: list[ResultMemory] = []
        lower = lowered(region.graph, (True,) * carries, control_step)
        self.memory = BufferAssignment(lower, (False,) * len(region.graph.inputs), self._enter_ends)

    @property
    def steps(self) -> Sequence[Step]:
        return self.memory.steps

    def _enter_ends(self, memory: BufferAssignment) -> None:
        """`Bound` are places outside, known when the steps are written."""
        for v in self.graph.inputs:
            memory.enter(v, Bound(v.nbytes, v))
        for k, v in enumerate(self.graph.outputs):
            made = memory.roots.aliases.get(id(v), v)  # where the result is a mere reshape of it
            others = ResultMemory.OWN if self.keeps else ResultMemory.BOUND
            how = self._carried(k, made, memory) if k < self.carries else others
            self.how.append(how)
            if how is ResultMemory.SAME:
                continue
            if how is ResultMemory.IN_PLACE:
                memory.buffer_of[id(v)] = memory.buffer_of[id(self.graph.inputs[k])]
                memory.occupied.add(id(made))
            elif how is ResultMemory.OWN:
                offset = first_fit(memory.lasting(), v.nbytes)
                memory.enter(v, Temp(offset, v.nbytes, v))
                memory.arena = max(memory.arena, aligned(offset + v.nbytes))
            else:
                memory.enter(v, Bound(v.nbytes, v))
            memory.buffer_of[id(made)] = memory.buffer_of[id(v)]

    def _carried(self, k: int, new: Value, memory: BufferAssignment) -> ResultMemory:
        old = self.graph.inputs[k]
        if new is old:
            return ResultMemory.SAME
        t, last = memory.first_def[id(new)], memory.last_use.get(id(old), -1)
        if last < t or (last == t and old in memory.steps[t].replaceable(new)):
            return ResultMemory.IN_PLACE
        return ResultMemory.OWN


class PlacedBody:
    """A body whose memory is known: its arena begins at `base` of the program's. It says where its values are."""

    def __init__(self, body: ControlBody, around: InstructionWriter, base: int):
        self.body = body
        self.around = around
        self.region, self.graph, self.how = body.region, body.graph, body.how
        self._places: list[Place] = []
        buffers = around.plan.buffers
        for b in body.memory.table:
            if isinstance(b, Temp):
                self._places.append(Place(len(buffers)))
                buffers.append(replace(b, offset=base + b.offset))
            else:
                self._places.append(Place(-1))

    def place(self, v: Value) -> Place:
        entry = self.body.memory.buffer_of.get(id(v))
        return self.around.places.place(v) if entry is None else self._places[entry]

    def literal(self, v: Value) -> Place:
        return self.around.places.literal(v)

    def streamed(self, kernel: Kernel) -> frozenset[int]:
        return frozenset()

    def bind(self, values: Sequence[Value], places: Sequence[Place]) -> None:
        """Say where arguments or results are."""
        for v, place in zip(values, places, strict=True):
            self._places[self.body.memory.buffer_of[id(v)]] = place

    def own(self, k: int) -> Place:
        """The memory of its own of result k."""
        return self.place(self.graph.outputs[k])

    def written(self) -> list[Any]:
        """The instructions of one iteration."""
        return self.writer().written()

    def writer(self) -> InstructionWriter:
        """The writer of one iteration's instructions."""
        captured = self.graph.inputs[self.region.arguments :]
        self.bind(captured, [self.around.ref_or_const(v) for v in self.region.captures])
        return InstructionWriter(self.body.memory, self, self.around.plan, write_control, alone=False)


def control_step(node: Node) -> ControlStep:
    """A loop or branch with its bodies, whose temporaries lie side by side."""
    kind, p = node.primitive.lower.kind, node.params
    carries = {Flow.SCAN: p.get("num_carry"), Flow.WHILE: len(node.outputs), Flow.COND: 0}[kind]
    bodies = []
    for i, region in enumerate(node.regions):
        tests = kind is Flow.WHILE and i == 0
        bodies.append(ControlBody(region, 0 if tests else carries, keeps=tests))
    size = sum(aligned(b.memory.arena) for b in bodies)
    return ControlStep(node, bodies, Value(ShapedArray((size,), np.dtype(np.uint8)), ValueKind.SCRATCH), carries)


def write_control(writer: InstructionWriter, step: ControlStep) -> list[Any]:
    """The instructions of a loop or branch."""
    base, first = 0, len(writer.plan.buffers)
    if step.scratch.nbytes:
        place = writer.places.place(step.scratch)
        scratch = writer.plan.buffers[place.buffer]
        assert isinstance(scratch, Temp)
        base = scratch.offset + place.offset
    bodies = []
    for body in step.bodies:
        bodies.append(PlacedBody(body, writer, base))
        base += aligned(body.memory.arena)
    return native(_WRITERS[step.node.primitive.lower.kind](writer, step, bodies), writer.plan, first)


def _write_cond(writer: InstructionWriter, step: ControlStep, bodies: list[PlacedBody]) -> list[Any]:
    node = step.node
    branches = []
    for body in bodies:
        body.bind(body.graph.outputs, [writer.ref(v) for v in node.outputs])
        branches.append(tuple(body.written()))
    return [Switch(writer.ref_or_const(node.inputs[0]), tuple(branches), node.source)]


class _Carries:
    """Where the carries of a loop are at the beginning of an iteration, and the steps that move them."""

    def __init__(self, writer: InstructionWriter, step: ControlStep, body: PlacedBody, iterations: int | None):
        """iterations: how many there will be, if that is known."""
        self.writer = writer
        self.places: list[Place] = []
        self.before: list[Any] = []
        self.after_iteration: list[Any] = []
        self.after: list[Any] = []
        node = step.node
        for k in range(step.carries):
            state = writer.ref(node.outputs[k])
            start, now = state, state
            if body.how[k] is ResultMemory.OWN:
                new = body.own(k)
                if node.outputs[k].nbytes <= COPY_UP_TO:
                    self.after_iteration.append(Copy(state, new, node.outputs[k].nbytes))
                else:
                    # After an odd number of exchanges the last carry is in the memory that was the second at first.
                    start = new if iterations is not None and iterations % 2 else state
                    now = self._exchange(body, k, start, new if start == state else state)
                    if iterations is None:
                        self.after.append(Copy(state, now, node.outputs[k].nbytes))
            self.before += writer.started(node.inputs[k], node.outputs[k], start)
            self.places.append(now)

    def _exchange(self, body: PlacedBody, k: int, first: Place, second: Place) -> Place:
        a, b = new_pointer(self.writer.plan), new_pointer(self.writer.plan)
        self.before += [Point(a, first), Point(b, second)]
        body.bind([body.graph.outputs[k]], [Place(b)])
        self.after_iteration.append(Swap(a, b))
        return Place(a)


def _write_while(writer: InstructionWriter, step: ControlStep, bodies: list[PlacedBody]) -> list[Any]:
    cond, body = bodies
    carries = _Carries(writer, step, body, None)
    n = step.carries
    [flag] = cond.graph.outputs
    cond.bind(cond.graph.inputs[:n], carries.places)
    body.bind(body.graph.inputs[:n], carries.places)
    where = cond.own(0)
    loop = While(tuple(cond.written()), where, (*body.written(), *carries.after_iteration), step.node.source)
    return [*carries.before, loop, *carries.after]


def _write_scan(writer: InstructionWriter, step: ControlStep, bodies: list[PlacedBody]) -> list[Any]:
    node, [body] = step.node, bodies
    length, n = node.params["length"], step.carries
    if length == 0:
        return _Carries(writer, step, body, 0).before
    carries = _Carries(writer, step, body, length)
    body.bind(body.graph.inputs[:n], carries.places)
    before, after_iteration = carries.before, carries.after_iteration
    xs = zip(body.graph.inputs[n : body.region.arguments], node.inputs[n:], strict=False)
    ys = zip(body.graph.outputs[n:], node.outputs[n:], strict=True)
    for inner, whole in [*((x, whole) for x, whole in xs if x in body.graph.users), *ys]:
        if not inner.nbytes:
            body.bind([inner], [writer.ref_or_const(whole)])
            continue
        pointer = new_pointer(writer.plan)
        stride = inner.nbytes
        start = writer.ref_or_const(whole)
        if node.params["reverse"]:
            start, stride = Place(start.buffer, start.offset + (length - 1) * stride), -stride
        before.append(Point(pointer, start))
        after_iteration.append(Advance(pointer, stride))
        body.bind([inner], [Place(pointer)])
    iteration = body.writer()
    loop = Loop(length, (*iteration.written(), *after_iteration), node.source)
    return in_time_tiles(loop, iteration.kernels, body.place, writer.plan, before)


_WRITERS = {Flow.COND: _write_cond, Flow.WHILE: _write_while, Flow.SCAN: _write_scan}


def new_pointer(plan: PlanBuilder) -> int:
    """A new entry of the buffer table that the program sets while it runs."""
    plan.buffers.append(Pointer())
    return len(plan.buffers) - 1
