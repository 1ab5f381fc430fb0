"""The plan of a whole program: arguments, results and constants around the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.graph import nodes, same_bits
from mpijax.compiler.graph.by_parts import in_parts
from mpijax.compiler.graph.nodes import Graph, Value, ValueKind
from mpijax.compiler.graph.windows import narrowed
from mpijax.compiler.loops.streaming import stream_above
from mpijax.compiler.sharding import summands
from mpijax.compiler.sharding.build_shards import build_shards
from mpijax.compiler.steps import plan
from mpijax.compiler.steps.control import control_step, write_control
from mpijax.compiler.steps.instructions import Buffer, Const, Copy, Input, KernelCall, Output, Place, Temp, walk
from mpijax.compiler.steps.lower import lowered
from mpijax.compiler.steps.memory import BufferAssignment
from mpijax.compiler.steps.plan import Gathered, PlanBuilder, ProgramPlan, Result, ResultKind, ResultPlacement
from mpijax.compiler.steps.write import InstructionWriter
from mpijax.core import dtypes
from mpijax.core.base import config
from mpijax.core.programs.jaxpr import ClosedJaxpr
from mpijax.core.shapes.dimensions import DimExpr
from mpijax.core.sharding.context import mesh_types, of_sharding
from mpijax.core.types.avals import ShapedArray


class ProgramMemory:
    """The memory of a whole program, and what is in it: arguments, results, constants, and temporaries in an arena."""

    def __init__(self, graph: Graph, donated: tuple[bool, ...]):
        self.graph = graph
        lower = lowered(graph, donated, control_step)
        self.memory = BufferAssignment(lower, donated or (False,) * len(graph.inputs), self._enter_ends)
        self.table = self.memory.table

    def _enter_ends(self, memory: BufferAssignment) -> None:
        for v in self.graph.inputs:
            memory.enter(v, Input(v.position, v.nbytes if v.aval.dtype != dtypes.float0 else -1, v))
        for v, array in zip(self.graph.const_values, self.graph.consts, strict=True):
            memory.enter(v, Const(array, v.nbytes, v))
        seen: set[int] = set()
        for v in self.graph.outputs:
            if v.producer is not None and id(v) not in seen:
                seen.add(id(v))
                if id(v) in memory.roots.aliases:
                    memory.buffer_of[id(memory.roots.aliases[id(v)])] = len(memory.table)
                memory.enter(v, Output(v.nbytes, value=v))

    def place(self, v: Value) -> Place:
        return Place(self.memory.buffer_of[id(v)])

    def literal(self, v: Value) -> Place:
        if id(v) not in self.memory.buffer_of:
            self.memory.enter(v, Const(np.asarray(v.scalar), v.nbytes, v))
        return self.place(v)

    def streamed(self, kernel: Kernel) -> frozenset[int]:
        """The large results that take over no operand's memory. Memory here begins at a multiple of `ALIGN`."""
        read = {self.place(v).buffer for v in kernel.reads().values() if v.scalar is None}
        found = set()
        for v in kernel.writes().values():
            buffer = self.table[self.place(v).buffer]
            new = isinstance(buffer, Temp) or (isinstance(buffer, Output) and buffer.donor < 0)
            if v.nbytes >= stream_above() and new:
                if self.place(v).buffer not in read:
                    found.add(id(v))
        return frozenset(found)

    def plan(self, out_avals: Sequence[ShapedArray], fresh: bool) -> ProgramPlan:
        """The plan, its instructions written; fresh: see `plan_program`."""
        graph = self.graph
        builder = PlanBuilder(self.table, self.memory.arena)
        instructions = InstructionWriter(self.memory, self, builder, write_control, alone=True).written()
        results, copies = self._results(out_avals, fresh)
        instructions += copies
        called = {s.code for s in walk(tuple(instructions)) if isinstance(s, KernelCall)}
        return ProgramPlan(
            tuple([v.aval for v in graph.inputs]),
            tuple(builder.buffers),
            tuple(instructions),
            tuple(results),
            builder.arena,
            {name: code for name, code in builder.kernels.items() if name in called},
            tuple(builder.nests),
            tuple(sorted(((b.nbytes, b.value) for b in builder.buffers), key=lambda x: -x[0])[:8]),
            tuple([Gathered(*g) for g in graph.gathers]),
            tuple([ResultPlacement(*p) for p in graph.placements]),
        )

    def _results(self, out_avals: Sequence[ShapedArray], fresh: bool) -> tuple[list[Result], list[Copy]]:
        """The results, and the copies that give some of them memory of their own."""
        results: list[Result] = []
        copies: list[Copy] = []
        taken: set[int] = set()
        for v, aval, sharding in zip(self.graph.outputs, out_avals, self.graph.shardings, strict=True):
            if v.scalar is not None:
                kind, index = ResultKind.CONST, self.literal(v).buffer
            elif v.kind is ValueKind.CONST:
                kind, index = ResultKind.CONST, self.place(v).buffer
            elif v.kind is ValueKind.INPUT:
                kind, index = ResultKind.INPUT, v.position
            else:
                kind, index = ResultKind.BUFFER, self.place(v).buffer
            if fresh and (kind is not ResultKind.BUFFER or index in taken) and v.aval.dtype != dtypes.float0:
                kind, index = ResultKind.BUFFER, self._copied(v, copies)
            if kind is ResultKind.BUFFER:
                taken.add(index)
            results.append(Result(kind, index, aval, v.aval, sharding))
        return results, copies

    def _copied(self, v: Value, copies: list[Copy]) -> int:
        """Memory of its own for a result: that of the argument it is, if that is donated, or else a copy."""
        givers = {b.donor for b in self.table if isinstance(b, Output)}
        donated = v.kind is ValueKind.INPUT and self.memory.donated[v.position] and v.position not in givers
        if not donated and v.nbytes:
            copies.append(Copy(Place(len(self.table)), self.place(v), v.nbytes))
        self.table.append(Output(v.nbytes, v.position if donated else -1, v))
        return len(self.table) - 1


def plan_program(
    closed: ClosedJaxpr,
    donated: tuple[bool, ...] = (),
    in_shardings: tuple = (),
    default: Any = None,
    fresh: bool = True,
) -> ProgramPlan:
    """The plan of a Jaxpr.

    donated: arguments whose memory results may take. in_shardings, default: see `build_shards`.
    fresh: whether each result has memory of its own, so that it can be deleted or donated, even if it is an argument, a
    constant or another result.
    """
    for aval in (*closed.in_avals, *closed.out_avals):
        if any(isinstance(d, DimExpr) for d in aval.shape):
            raise ValueError(
                f"A value of type {aval.str_short(True)} has a symbolic size, and compiling needs numbers. Export the "
                "program (mpijax.export.export): a call of the exported program compiles it for the sizes of its "
                "arguments."
            )
    out_avals = closed.out_avals
    closed, in_shardings = summands.stacked(closed, in_shardings)
    exact = same_bits.rewritten(closed) if config.values.mpijax_same_bits else None
    if exact is None:
        return _planned(closed, out_avals, donated, in_shardings, default, fresh)
    with config.enable_x64(True):  # its sums are float64
        return _planned(exact, out_avals, donated, in_shardings, default, fresh)


def _planned(
    closed: ClosedJaxpr,
    out_avals: Sequence[ShapedArray],
    donated: tuple[bool, ...],
    in_shardings: tuple,
    default: Any,
    fresh: bool,
) -> ProgramPlan:
    """The plan of a Jaxpr. out_avals: the types of its results; the Jaxpr itself returns pending sums as summands."""
    graph = in_parts(narrowed(build_shards(closed, in_shardings, default)))
    graph = replace(graph, shardings=summands.shardings_of_sums(graph.shardings, out_avals))
    out_avals = list(map(_typed, out_avals, graph.shardings))
    if config.values.jax_enable_checks:
        nodes.verify(graph)
    if graph.elsewhere is not None:
        return _idle(graph, out_avals, donated)
    found = ProgramMemory(graph, donated).plan(out_avals, fresh)
    if config.values.jax_enable_checks:
        plan.verify(found)
    return found


def _typed(aval: ShapedArray, sharding: Any) -> ShapedArray:
    """The type of a result, which says its split over Explicit axes even if the types in the program did not."""
    if aval.split is not None or not hasattr(sharding, "mesh"):
        return aval
    split = of_sharding(sharding.update(mesh=mesh_types(sharding.mesh)), aval.ndim)
    return aval if split is None else aval.update(split=split)


def _idle(graph: Graph, out_avals: Sequence[ShapedArray], donated: tuple[bool, ...]) -> ProgramPlan:
    """The plan of a rank on which the program does not run: its results have no elements there."""
    types = [v.aval for v in graph.inputs]
    nbytes = [v.nbytes if v.aval.dtype != dtypes.float0 else -1 for v in graph.inputs]
    buffers: list[Buffer] = [Input(v.position, n, v) for v, n in zip(graph.inputs, nbytes, strict=True)]
    results: list[Result] = []
    givers = [i for i, given in enumerate(donated) if given]
    for aval, sharding in zip(out_avals, graph.shardings, strict=True):
        local = aval.update(shape=sharding.process_shape(aval.shape))
        donor = next((i for i in givers if types[i] == aval), -1)
        givers = [i for i in givers if i != donor]
        results.append(Result(ResultKind.BUFFER, len(buffers), aval, local, sharding))
        buffers.append(Output(Value(local, ValueKind.NODE).nbytes, donor))
    return ProgramPlan(tuple(types), tuple(buffers), results=tuple(results))
