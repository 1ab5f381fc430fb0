"""Loops and branches as steps: where carries live, how slices are walked through, what a body may overwrite.

A carry lives in the memory of its result. A body that reads a carry for the last time where the new one is made
overwrites it in place; otherwise the new carry has memory of its own and is copied back, or, if it is large, the
two memories are exchanged after each turn. Slices of scanned arrays are never copied: a pointer moves along.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax.compiler.graph.nodes import Node, Value
from mpijax.compiler.graph.regions import Region
from mpijax.compiler.steps.arena import aligned, first_fit
from mpijax.compiler.steps.instructions import Advance, Copy, Loop, Place, Point, Pointer, Swap, Switch, Temp, While
from mpijax.compiler.steps.native import native
from mpijax.compiler.steps.region import Planner
from mpijax.compiler.steps.step import ControlStep
from mpijax.core.avals import ShapedArray

if TYPE_CHECKING:
    from mpijax.compiler.steps.plan import Plan

# Carries of more bytes than this change places with the new ones instead of being copied.
COPY_UP_TO = 1 << 12


@dataclass(frozen=True)
class Bound:
    """An entry of a body's table: a place outside of it."""

    nbytes: int
    value: Value


class ControlPlanner(Planner):
    """Plans graphs with loops and branches."""

    def plan_control(self, node: Node) -> ControlStep:
        kind, p = node.primitive.lower.kind, node.params
        carries = {"scan": p.get("num_carry"), "while": len(node.outputs), "cond": 0}[kind]
        bodies = []
        for i, region in enumerate(node.regions):
            tests = kind == "while" and i == 0
            bodies.append(Body(region, self.plan, 0 if tests else carries, keeps=tests))
        size = sum(aligned(b.arena) for b in bodies)
        scratch = Value(ShapedArray((size,), np.dtype(np.uint8)), "scratch")
        return ControlStep(node, bodies, scratch, carries)

    def emit_control(self, step: ControlStep) -> list[Any]:
        base, first = 0, len(self.plan.buffers)
        if step.scratch.nbytes:
            place = self.place(step.scratch)
            scratch = self.plan.buffers[place.buffer]
            assert isinstance(scratch, Temp)
            base = scratch.offset + place.offset
        for body in step.bodies:
            body.settle(self, base)
            base += aligned(body.arena)
        return native(_EMITTERS[step.node.primitive.lower.kind](self, step), self.plan, first)


class Body(ControlPlanner):
    """The plan of one body. `carries` results are the next turn's first `carries` arguments.

    keeps: results stay in memory of the body's own. how: for each result `same` (an unchanged carry), `in place`,
    `own` (in memory of its own until the turn ends), or `bound` (where the loop or branch says).
    """

    def __init__(self, region: Region, plan: Plan, carries: int, *, keeps: bool):
        super().__init__(region.graph, plan, (True,) * carries)
        self.region = region
        self.carries = carries
        self.keeps = keeps
        self.how: list[str] = []
        self.refs: list[Place] = []
        self.outer: Planner | None = None
        self._assign_memory()

    def _ends(self) -> None:
        """`Bound` are places outside, known when the steps are emitted."""
        for v in self.graph.inputs:
            self._enter(v, Bound(v.nbytes, v))
        for k, v in enumerate(self.graph.outputs):
            how = self._carried(k) if k < self.carries else "own" if self.keeps else "bound"
            self.how.append(how)
            if how == "same":
                continue
            if how == "in place":
                self.buffer_of[id(v)] = self.buffer_of[id(self.graph.inputs[k])]
                self.occupied.add(id(self._made(v)))
            elif how == "own":
                offset = first_fit(self._lasting(), v.nbytes)
                self._enter(v, Temp(offset, v.nbytes, v))
                self.arena = aligned(offset + v.nbytes)
            else:
                self._enter(v, Bound(v.nbytes, v))
            self.buffer_of[id(self._made(v))] = self.buffer_of[id(v)]

    def _made(self, v: Value) -> Value:
        """The value of which a result is a mere reshape, or itself."""
        return self.roots.aliases.get(id(v), v)

    def _carried(self, k: int) -> str:
        old, new = self.graph.inputs[k], self._made(self.graph.outputs[k])
        if new is old:
            return "same"
        t, last = self.first_def[id(new)], self.last_use.get(id(old), -1)
        if last < t:
            return "in place"
        if last == t and old in self.steps[t].replaceable(new):
            return "in place"
        return "own"

    def place(self, v: Value) -> Place:
        entry = self.buffer_of.get(id(v))
        if entry is None:
            assert self.outer is not None
            return self.outer.place(v)
        return self.refs[entry]

    def literal(self, v: Value) -> Place:
        assert self.outer is not None
        return self.outer.literal(v)

    def settle(self, outer: Planner, base: int) -> None:
        """Give the temporaries their places: the arena of this body begins at `base` of the program's."""
        self.outer = outer
        for b in self.table:
            if isinstance(b, Temp):
                self.refs.append(Place(len(self.plan.buffers)))
                self.plan.buffers.append(replace(b, offset=base + b.offset))
            else:
                self.refs.append(Place(-1))

    def bind(self, values: list[Value], places: list[Place]) -> None:
        """Say where arguments or results are."""
        for v, place in zip(values, places, strict=True):
            self.refs[self.buffer_of[id(v)]] = place

    def own(self, k: int) -> Place:
        """The memory of its own of result k."""
        return self.refs[self.buffer_of[id(self.graph.outputs[k])]]

    def emit(self) -> list[Any]:
        """The steps of one turn."""
        assert self.outer is not None
        captured = self.graph.inputs[self.region.arguments :]
        self.bind(captured, [self.outer.ref_or_const(v) for v in self.region.captures])
        self.emitted = []
        self._emit_steps()
        return self.emitted


def _emit_cond(planner: Planner, step: ControlStep) -> list[Any]:
    node = step.node
    branches = []
    for body in step.bodies:
        body.bind(body.graph.outputs, [planner.ref(v) for v in node.outputs])
        branches.append(tuple(body.emit()))
    return [Switch(planner.ref_or_const(node.inputs[0]), tuple(branches), node.source)]


class _Carries:
    """Where the carries of a loop are at the beginning of a turn, and the steps that move them."""

    def __init__(self, planner: Planner, step: ControlStep, body: Body, turns: int | None):
        """turns: how many there will be, if that is known."""
        self.planner = planner
        self.places: list[Place] = []
        self.before: list[Any] = []
        self.after_turn: list[Any] = []
        self.after: list[Any] = []
        node = step.node
        for k in range(step.carries):
            state = planner.ref(node.outputs[k])
            start, now = state, state
            if body.how[k] == "own":
                new = body.own(k)
                if node.outputs[k].nbytes <= COPY_UP_TO:
                    self.after_turn.append(Copy(state, new, node.outputs[k].nbytes))
                else:
                    # After an odd number of exchanges the last carry is in the memory that was the second at first.
                    start = new if turns is not None and turns % 2 else state
                    now = self._exchange(body, k, start, new if start == state else state)
                    if turns is None:
                        self.after.append(Copy(state, now, node.outputs[k].nbytes))
            self.before += planner.started(node.inputs[k], node.outputs[k], start)
            self.places.append(now)

    def _exchange(self, body: Body, k: int, first: Place, second: Place) -> Place:
        a, b = new_pointer(self.planner.plan), new_pointer(self.planner.plan)
        self.before += [Point(a, first), Point(b, second)]
        body.bind([body.graph.outputs[k]], [Place(b)])
        self.after_turn.append(Swap(a, b))
        return Place(a)


def _emit_while(planner: Planner, step: ControlStep) -> list[Any]:
    cond, body = step.bodies
    carries = _Carries(planner, step, body, None)
    n = step.carries
    [flag] = cond.graph.outputs
    cond.bind(cond.graph.inputs[:n], carries.places)
    body.bind(body.graph.inputs[:n], carries.places)
    where = cond.own(0)
    loop = While(tuple(cond.emit()), where, (*body.emit(), *carries.after_turn), step.node.source)
    return [*carries.before, loop, *carries.after]


def _emit_scan(planner: Planner, step: ControlStep) -> list[Any]:
    node, [body] = step.node, step.bodies
    length, n = node.params["length"], step.carries
    if length == 0:
        return _Carries(planner, step, body, 0).before
    carries = _Carries(planner, step, body, length)
    body.bind(body.graph.inputs[:n], carries.places)
    before, after_turn = carries.before, carries.after_turn
    xs = zip(body.graph.inputs[n : body.region.arguments], node.inputs[n:], strict=False)
    ys = zip(body.graph.outputs[n:], node.outputs[n:], strict=True)
    for inner, whole in [*((x, whole) for x, whole in xs if x.users), *ys]:
        if not inner.nbytes:
            body.bind([inner], [planner.ref_or_const(whole)])
            continue
        pointer = new_pointer(planner.plan)
        stride = inner.nbytes
        start = planner.ref_or_const(whole)
        if node.params["reverse"]:
            start, stride = Place(start.buffer, start.offset + (length - 1) * stride), -stride
        before.append(Point(pointer, start))
        after_turn.append(Advance(pointer, stride))
        body.bind([inner], [Place(pointer)])
    return [*before, Loop(length, (*body.emit(), *after_turn), node.source)]


_EMITTERS = {"cond": _emit_cond, "while": _emit_while, "scan": _emit_scan}


def new_pointer(plan: Plan) -> int:
    """A new entry of the buffer table that the program sets while it runs."""
    plan.buffers.append(Pointer())
    return len(plan.buffers) - 1
