"""The plan of a whole program: arguments, results and constants around the steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.graph import nodes, same_bits
from mpijax.compiler.graph.build import build_graph
from mpijax.compiler.graph.nodes import Graph, Value
from mpijax.compiler.loops.streaming import stream_above
from mpijax.compiler.steps import plan
from mpijax.compiler.steps.control import ControlPlanner
from mpijax.compiler.steps.instructions import Const, Copy, Input, KernelCall, Output, Place, Temp, walk
from mpijax.compiler.steps.plan import Gathered, Placed, Plan, Result
from mpijax.core import config, dtypes
from mpijax.core.avals import ShapedArray
from mpijax.core.dimensions import DimExpr
from mpijax.core.jaxpr import ClosedJaxpr


class Program(ControlPlanner):
    """The plan of a whole program."""

    def __init__(self, graph: Graph, out_avals: Sequence[ShapedArray], donated: tuple[bool, ...], fresh: bool):
        super().__init__(graph, Plan([v.aval for v in graph.inputs]), donated)
        made = self.plan
        self.donated = donated or self.donated
        self.table = made.buffers
        made.gathered = [Gathered(*g) for g in graph.gathers]
        made.placed = [Placed(*p) for p in graph.placements]
        self._assign_memory()
        made.arena = self.arena
        self._emit_steps()
        self._results(out_avals, fresh)
        made.instructions = tuple(self.emitted)
        called = {s.code for s in walk(made.instructions) if isinstance(s, KernelCall)}
        made.kernels = {name: code for name, code in made.kernels.items() if name in called}
        made.largest = sorted(((b.nbytes, b.value) for b in made.buffers), key=lambda x: -x[0])[:8]

    def _ends(self) -> None:
        for v in self.graph.inputs:
            self._enter(v, Input(v.position, v.nbytes if v.aval.dtype != dtypes.float0 else -1, v))
        for v, array in zip(self.graph.const_values, self.graph.consts, strict=True):
            self._enter(v, Const(array, v.nbytes, v))
        seen: set[int] = set()
        for v in self.graph.outputs:
            if v.producer is not None and id(v) not in seen:
                seen.add(id(v))
                if id(v) in self.roots.aliases:
                    self.buffer_of[id(self.roots.aliases[id(v)])] = len(self.table)
                self._enter(v, Output(v.nbytes, value=v))

    def place(self, v: Value) -> Place:
        return Place(self.buffer_of[id(v)])

    def literal(self, v: Value) -> Place:
        if id(v) not in self.buffer_of:
            self._enter(v, Const(np.asarray(v.scalar), v.nbytes, v))
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

    def _results(self, out_avals, fresh: bool) -> None:
        taken: set[int] = set()
        kind: Literal["buffer", "input", "const"]
        for v, aval, sharding in zip(self.graph.outputs, out_avals, self.graph.shardings, strict=True):
            if v.scalar is not None:
                kind, index = "const", self.literal(v).buffer
            elif v.kind == "const":
                kind, index = "const", self.buffer_of[id(v)]
            elif v.kind == "input":
                kind, index = "input", v.position
            else:
                kind, index = "buffer", self.buffer_of[id(v)]
            if fresh and (kind != "buffer" or index in taken) and v.aval.dtype != dtypes.float0:
                kind, index = "buffer", self._copied(v)
            if kind == "buffer":
                taken.add(index)
            self.plan.results.append(Result(kind, index, aval, v.aval, sharding))

    def _copied(self, v: Value) -> int:
        """Memory of its own for a result: that of the argument it is, if that is donated, or else a copy."""
        givers = {b.donor for b in self.table if isinstance(b, Output)}
        donor = v.position if v.kind == "input" and self.donated[v.position] and v.position not in givers else -1
        if donor < 0 and v.nbytes:
            self.emitted.append(Copy(Place(len(self.table)), self.place(v), v.nbytes))
        self.table.append(Output(v.nbytes, donor, v))
        return len(self.table) - 1


def plan_program(
    closed: ClosedJaxpr,
    donated: tuple[bool, ...] = (),
    in_shardings: tuple = (),
    default: Any = None,
    fresh: bool = True,
) -> Plan:
    """The plan of a Jaxpr.

    donated: arguments whose memory results may take. in_shardings, default: see `compiler.graph.build.build_graph`.
    fresh: whether each result has memory of its own, so that it can be deleted or donated, even if it is an argument, a
    constant or another result.
    """
    for aval in (*closed.in_avals, *closed.out_avals):
        if any(isinstance(d, DimExpr) for d in aval.shape):
            raise ValueError(
                f"A program is compiled for sizes that are numbers, and it has a value of type {aval.str_short()}. "
                "Export it (mpijax.export.export): calls of the exported program give names their sizes."
            )
    exact = same_bits.rewritten(closed) if config.values.mpijax_same_bits else None
    if exact is None:
        return _planned(closed, donated, in_shardings, default, fresh)
    with config.enable_x64(True):  # its sums are float64
        return _planned(exact, donated, in_shardings, default, fresh)


def _planned(closed: ClosedJaxpr, donated: tuple[bool, ...], in_shardings: tuple, default: Any, fresh: bool) -> Plan:
    graph = build_graph(closed, in_shardings, default)
    if config.values.jax_enable_checks:
        nodes.verify(graph)
    found = Program(graph, closed.out_avals, donated, fresh).plan
    if config.values.jax_enable_checks:
        plan.verify(found)
    return found
