"""The program as a graph of values, made from a Jaxpr: calls inlined, equal work merged, dead work dropped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from mpijax.compiler.graph import flow, normalize, regions
from mpijax.compiler.graph.nodes import Graph, Value, operation_of
from mpijax.compiler.graph.simplify import ADDED, KNOWN, Op, simplified
from mpijax.compiler.sharding import asked, constraints, explicit, messages, partition, unreduced
from mpijax.compiler.sharding.blocks import blocks_by
from mpijax.core import effects as fx
from mpijax.core.avals import ShapedArray, ShapeDtypeStruct
from mpijax.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Literal, Var
from mpijax.core.lowering import (
    STATUS_BYTES,
    Communication,
    ControlFlow,
    Decompose,
    Inline,
    Layout,
    Native,
    Partitioned,
    Structural,
)
from mpijax.core.source import UNKNOWN, Source, sources_from
from mpijax.core.trace import trace_to_closed_jaxpr


class _Frame:
    """A Jaxpr whose operations are being done: `doing` is the one at hand (operation, inputs, number of nodes, line).

    readers: for variables that one operation reads, which one; found when it is first asked for.
    asked: how operands that are whole are to be cut before operations.

    outside: for a call that is apart, the work done outside of it: equal work inside is not merged with that, or its
    results would have to be kept until here.
    """

    __slots__ = ("jaxpr", "env", "eqns", "source", "doing", "outside", "readers", "asked")

    def __init__(self, jaxpr: Jaxpr, consts: list[Value], args: list[Value], source: Source):
        self.jaxpr = jaxpr
        self.env: dict[Any, Value] = dict(zip(jaxpr.constvars, consts, strict=True))
        self.env.update(zip(jaxpr.invars, args, strict=True))
        self.eqns = iter(jaxpr.eqns)
        self.source = source
        self.doing: Any = None
        self.outside: dict[Any, list[Value]] | None = None
        self.readers: dict[Any, Any] | None = None
        self.asked: asked.Asked | None = None


class _Builder:
    """Runs a Jaxpr symbolically, adding nodes.

    Outside of `shard_map` bodies a value may be one rank's shard of a global array (`shards` says how it is laid
    out), and so are operations on it where there is a rule for that; others gather it first.
    """

    def __init__(self, parent: _Builder | None = None, leaves: bool = False):
        self.graph = Graph()
        self.parent = parent
        # Whether work on values from outside of this region may be done there.
        self.leaves = leaves
        self.owned: set[int] = set()
        self.captured: list[tuple[Value, Value]] = []
        self.inside: dict[int, Value] = {}
        self.shards: dict[int, Any] = {}
        # The meshes of devices that stand for those in types.
        self.devices: dict[Any, Any] = {}
        # Where blocks are not what a sharding says: which part of an array a value is.
        self.blocks: dict[int, Any] = {}
        # Slices whose halos are read from the array that they are slices of.
        self.views: dict[int, Any] = {}
        # Values cut otherwise, by value, mesh and cuts: none is sent twice.
        self.moved: dict[Any, Value] = {}
        # How results of bodies of loops come out, by the Jaxpr and the cuts of what it reads.
        self.tried: dict[Any, Any] = parent.tried if parent else {}
        # Partial results that wait for their sum over ranks, and the sums of those that waited.
        self.unreduced: dict[int, Any] = parent.unreduced if parent else {}
        self.summed: dict[Any, Value] = {}
        # What the operation at hand reads of these.
        self.waiting: Any = None
        # The Jaxpr at hand.
        self.frame: _Frame | None = None
        # Values that are whole here, with what is said of them: replicated on purpose, or over devices of this process.
        self.placed: dict[int, Any] = {}
        self.meshes: list[Any] = parent.meshes if parent else []
        self.literals: dict[Any, Value] = parent.literals if parent else {}
        # Arrays that operations made whole: bytes, type, operation and line, in order.
        self.gathers: dict[tuple, None] = parent.gathers if parent else {}
        # How results lie over the ranks: type, operation, line, mesh and cuts, in order.
        self.placements: dict[tuple, None] = parent.placements if parent else {}
        self.const_ids: dict[int, Value] = {}
        # The work already done, in the scope it was done in: a value of a body is a shard, and stays inside.
        self.seen: dict[Any, list[Value]] = {}

    def literal(self, val: Any, aval: ShapedArray) -> Value:
        scalar = np.asarray(val, aval.dtype)[()]
        key = (aval, scalar.tobytes())
        if key not in self.literals:
            self.literals[key] = Value(aval, "literal", scalar=scalar)
        return self.literals[key]

    def const(self, value: Any, aval: ShapedArray) -> Value:
        if self.parent is not None:
            return self.parent.whole(self.parent.const(value, aval), UNKNOWN)
        known = self.const_ids.get(id(value))
        if known is None:
            if isinstance(value, ShapeDtypeStruct):  # which programs that are not run may have
                raise TypeError(
                    "A ShapeDtypeStruct does not have a value and cannot be used as a constant in a JAX function: "
                    f"{value}. Make it an argument, or use an array."
                )
            layout = None if getattr(value, "_is_whole", True) else value._sharding
            whole = aval
            if layout is not None:
                aval = aval.update(shape=layout.process_shape(aval.shape))
            known = Value(aval, "const", position=len(self.graph.consts))
            self.graph.consts.append(value)
            self.graph.const_values.append(known)
            self.const_ids[id(value)] = known
            if layout is not None:
                self.shards[id(known)] = layout
                self.blocks[id(known)] = blocks_by(layout, whole.shape)
        if self.meshes and id(known) in self.shards:
            return self._constant_in_body(known)
        return known

    def _constant_in_body(self, known: Value) -> Value:
        """The whole of a constant of which this rank has a part: bodies of `shard_map` read all of it."""
        outside, self.meshes = self.meshes, []
        try:
            return self.whole(known, UNKNOWN)
        finally:
            self.meshes = outside

    @contextmanager
    def in_body_over(self, mesh: Any) -> Iterator[None]:
        """What is added meanwhile works on this rank's parts, as in the body of a `shard_map` over `mesh`."""
        self.meshes.append(mesh)
        try:
            yield
        finally:
            self.meshes.pop()

    # ------------------------------------------------------------ regions

    def child(self, leaves: bool) -> _Builder:
        """A builder for a body inside this graph."""
        return _Builder(self, leaves)

    def owns(self, v: Value) -> bool:
        """Whether a value is an argument or a result of this region's own operations."""
        return id(v) in self.owned

    def argument(self, aval: ShapedArray) -> Value:
        """A new argument of the region."""
        value = Value(aval, "input", position=len(self.graph.inputs))
        self.graph.inputs.append(value)
        self.owned.add(id(value))
        return value

    def local(self, v: Value) -> Value:
        """What stands for a value in this region: a capture, or for index maps, the same map once more."""
        if self.parent is None or v.scalar is not None or v.kind == "const" or self.owns(v):
            return v
        found = self.inside.get(id(v))
        if found is None:
            if regions.stays_view(v):
                node = operation_of(v)
                inputs = [self.local(w) for w in node.inputs]
                found = self.node(node.primitive, node.params, inputs, [v.aval], node.source, node.effects)[0]
            else:
                found = Value(v.aval, "input", position=-1)
                found.outside = v
                self.owned.add(id(found))
                self.captured.append((self.parent.local(v), found))
            partition.known_alike(self, v, found)
            self.inside[id(v)] = found
        return found

    def whole(self, v: Value, source: Source) -> Value:
        """A value as every rank has it: gathered, if it is this rank's shard."""
        return partition.gathered(self, v, source)

    def done(self, primitive, params, inputs, avals) -> list[Value] | None:
        """The results of an operation where it has been done already."""
        key = _work_key(primitive, inputs, params, avals)
        return None if key is None else self.seen.get(key)

    def node(self, primitive, params, inputs, avals, source, effects=fx.no_effects) -> list[Value]:
        """Add an operation."""
        return self.add(Op(primitive, params, inputs, avals, source, effects))

    def add(self, op: Op) -> list[Value]:
        """Add an operation, or what it is simplified to."""
        found = simplified(self, op, ADDED)
        if isinstance(found, list):
            return found
        node = found.node()
        self.graph.nodes.append(node)
        if self.parent is not None:
            self.owned.update(map(id, node.outputs))
        return node.outputs

    def control(self, eqn, operands: list[Value], bodies: list, avals, source: Source) -> list[Value]:
        """Add a loop or branch with its bodies."""
        inputs = [self.local(v) for v in operands]
        seen = {id(v) for v in inputs}
        for v in (v for body in bodies for v in body.captures):
            if id(v) not in seen:
                seen.add(id(v))
                inputs.append(v)
        outputs = self.node(eqn.primitive, eqn.params, inputs, avals, source, eqn.effects)
        self.graph.nodes[-1].regions = tuple(bodies)
        return outputs

    def finish(self, outputs: list[Value]) -> Graph:
        """The region's graph."""
        self.graph.outputs = outputs
        self.graph.shardings = [None] * len(outputs)
        self.graph.finish()
        return self.graph

    # ------------------------------------------------------------ running a Jaxpr

    def run(self, jaxpr: Jaxpr, consts: list[Value], args: list[Value], source: Source = UNKNOWN) -> list[Value]:
        return self._run([_Frame(jaxpr, consts, args, source)])

    def program(
        self, closed: ClosedJaxpr, consts: list[Value], args: list[Value], asked_for: list[Any]
    ) -> list[Value]:
        """Run the Jaxpr of the whole program; shardings that it asks for decide how operands before are cut."""
        frame = _Frame(closed.jaxpr, consts, args, UNKNOWN)
        frame.asked = asked.asked_of(closed.jaxpr, asked_for, lambda layout: constraints.devices_of(self, layout))
        return self._run([frame])

    def _run(self, frames: list[_Frame]) -> list[Value]:
        outer = self.frame
        try:
            while True:
                frame = frames[-1]
                outs = self._go_on(frame, frames)
                if outs is None:
                    continue
                frames.pop()
                if frame.outside is not None:
                    self.seen = frame.outside
                if not frames:
                    return outs
                self._done(frames[-1], outs)
        finally:
            self.frame = outer
            for frame in reversed(frames):
                if frame.outside is not None:
                    self.seen = frame.outside

    def _go_on(self, frame: _Frame, frames: list[_Frame]) -> list[Value] | None:
        """Do operations of a Jaxpr up to a call that is inlined, which becomes a frame, or to its end: its results."""

        def read(atom):
            return self.literal(atom.val, atom.aval) if type(atom) is Literal else frame.env[atom]

        for eqn in frame.eqns:
            where = eqn.source if eqn.source.file else frame.source
            frame.doing = eqn, [read(v) for v in eqn.invars], len(self.graph.nodes), where
            lower = eqn.primitive.lower
            if isinstance(lower, Inline):
                closed: ClosedJaxpr = eqn.params[lower.param]
                consts = [self.const(c, v.aval) for c, v in zip(closed.consts, closed.jaxpr.constvars, strict=True)]
                called = _Frame(closed.jaxpr, consts, frame.doing[1], where)
                called.asked = frame.asked and frame.asked.calls.get(id(eqn))
                if lower.is_apart(eqn.params):
                    called.outside, self.seen = self.seen, {}
                frames.append(called)
                return None
            self._done(frame, self._with_sums(eqn, frame, where))
        return [read(v) for v in frame.jaxpr.outvars]

    def _with_sums(self, eqn, frame: _Frame, source: Source) -> list[Value]:
        """The results of an operation that may read partial results of ranks."""
        self.frame = frame
        inputs = frame.doing[1]
        if frame.asked is not None and id(eqn) in frame.asked.operands:
            inputs = partition.cut_as_asked(self, inputs, frame.asked.operands[id(eqn)], frame.asked.mesh, source)
        if not self.unreduced:
            return self.apply(eqn, inputs, source)
        inputs, self.waiting = unreduced.ready(self, eqn, inputs, source)
        if self.waiting is None:
            return self.apply(eqn, inputs, source)
        [out] = self.apply(eqn, inputs, source)
        waiting, self.waiting = self.waiting, None
        return [unreduced.go_on(self, eqn, out, waiting, source)]

    def sum_may_wait(self, eqn, mesh) -> bool:
        """Whether the operation that reads a partial result can finish it."""
        return unreduced.may_wait(self, eqn, mesh)

    def sum_waits(self, v: Value, mesh, over: tuple) -> None:
        """Note that the result of an operation is partial over mesh axes."""
        unreduced.wait(self, v, mesh, over)

    def _done(self, frame: _Frame, outs: list[Value]) -> None:
        """Enter the results of the operation that a frame was at."""
        eqn, inputs, first, where = frame.doing
        if self.placed and not self.meshes:
            outs = partition.followed(self, eqn, inputs, outs, where)
        if ShapedArray.any_split and not self.meshes and self.parent is None:
            outs = explicit.as_typed(self, eqn, outs, first, where)
        frame.env.update(zip(eqn.outvars, outs, strict=True))

    def inline(self, closed: ClosedJaxpr, inputs: list[Value], source: Source) -> list[Value]:
        consts = [self.const(c, v.aval) for c, v in zip(closed.consts, closed.jaxpr.constvars, strict=True)]
        return self.run(closed.jaxpr, consts, inputs, source)

    def apply(self, eqn, inputs: list[Value], source: Source) -> list[Value]:
        """The results of an operation: on this rank's parts, inlined, or added."""
        lower = eqn.primitive.lower
        if isinstance(lower, Partitioned):
            return partition.run_shards(self, eqn.params[lower.param], eqn.params, inputs, source)
        avals = [v.aval for v in eqn.outvars]
        if self.parent is not None:
            if self._is_done_outside(eqn, inputs, avals):
                return self.parent.apply(eqn, inputs, source)
            if not isinstance(lower, ControlFlow):
                inputs = [self.local(v) for v in inputs]
        if isinstance(lower, Layout):
            return [constraints.laid_out(self, eqn, inputs[0], source)]
        if not self.meshes and any(partition.blocks_of(self, v) is not None for v in inputs):
            outs = self._spread(eqn, inputs, avals, source)
            if outs is not None:
                return outs
            for k in range(len(inputs)):
                partition.remember_gather(self, eqn, k, inputs, source)
            inputs = [self.whole(v, source) for v in inputs]
        if isinstance(lower, Communication):
            return messages.communicate(self, eqn.primitive, eqn.params, inputs, avals, source, eqn.effects)
        if isinstance(lower, Decompose) or _is_written_out(lower, eqn.params):
            return self.inline(_decomposed(eqn.primitive, [v.aval for v in inputs], eqn.params), inputs, source)
        if isinstance(lower, ControlFlow):
            return regions.control_node(self, eqn, inputs, avals, source)
        if lower is None:
            raise NotImplementedError(f"primitive {eqn.primitive.name} has no lowering")
        return self._merged(Op(eqn.primitive, eqn.params, inputs, avals, source, eqn.effects))

    def _is_done_outside(self, eqn, inputs: list[Value], avals) -> bool:
        """Whether an operation of a body depends on nothing in it, and is better done outside."""
        if not self.leaves or any(self.owns(v) for v in inputs) or all(v.scalar is not None for v in inputs):
            return False
        return regions.leaves_region(eqn, avals)

    def _merged(self, op: Op) -> list[Value]:
        """The results of an operation: those of an equal one that has been done, or of a new one."""
        found = simplified(self, op, KNOWN)
        if isinstance(found, list):
            return found
        op = found
        key = None if fx.pins(op.effects) else _work_key(op.primitive, op.inputs, op.params, op.avals)
        if key is not None and key in self.seen:
            return self.seen[key]
        if isinstance(op.primitive.lower, Native):
            # The status bytes are one more result, which nobody reads.
            status = ShapedArray((STATUS_BYTES,), np.uint8)
            outputs = self.add(replace(op, avals=[*op.avals, status]))[:-1]
        else:
            outputs = self.add(op)
        if key is not None:
            self.seen[key] = outputs
        return outputs

    def _spread(self, eqn, inputs: list[Value], avals, source: Source) -> list[Value] | None:
        """An operation on parts of arrays; None where it needs whole operands."""
        lower = eqn.primitive.lower
        if isinstance(lower, Structural):
            simpler = normalize.simplified(self, eqn.primitive, eqn.params, inputs, avals, source)
            if simpler is not None:
                return simpler
        outs = partition.spread(self, eqn, inputs, avals, source)
        if outs is not None:
            return outs
        if isinstance(lower, Decompose):
            whole = [partition.global_aval(self, v) for v in inputs]
            return self.inline(_decomposed(eqn.primitive, whole, eqn.params), inputs, source)
        if isinstance(lower, ControlFlow) and not _is_written_out(lower, eqn.params):
            return flow.spread(self, eqn, inputs, avals, source)
        return None

    def pure(self, primitive, params, inputs: list[Value], avals, source: Source) -> list[Value]:
        """Add a pure operation; on parts of arrays, to each rank its part. avals: types of the whole results."""
        if self.meshes or all(partition.blocks_of(self, v) is None for v in inputs):
            return self.node(primitive, params, inputs, avals, source, fx.no_effects)
        eqn = Eqn(primitive, [Var(v.aval) for v in inputs], [Var(a) for a in avals], params, fx.no_effects, source)
        return self.apply(eqn, inputs, source)


def _is_written_out(lower: Any, params: dict[str, Any]) -> bool:
    """Whether the turns of a loop take its place."""
    return isinstance(lower, ControlFlow) and lower.written_out is not None and lower.written_out(params)


def _work_key(primitive, inputs, params, avals):
    """Equal keys mean equal results."""
    key = (primitive, tuple(map(id, inputs)), tuple(sorted(params.items(), key=lambda kv: kv[0])), tuple(avals))
    try:
        hash(key)
    except TypeError:
        return None
    return key


_decompositions: dict[Any, ClosedJaxpr] = {}


def _decomposed(primitive, avals, params) -> ClosedJaxpr:
    """A composite primitive as a Jaxpr of simpler ones."""

    whole = primitive.lower.turns if isinstance(primitive.lower, ControlFlow) else primitive.lower.fun

    def fun(*args):
        with sources_from(UNKNOWN):  # of whoever has it first; in a program its line is that of the operation
            out = whole(*args, **params)
        return list(out) if primitive.multiple_results else [out]

    key = (primitive, primitive.lower, tuple(avals), tuple(sorted(params.items(), key=lambda kv: kv[0])))
    try:
        if key not in _decompositions:
            _decompositions[key] = trace_to_closed_jaxpr(fun, avals)
        return _decompositions[key]
    except TypeError:
        return trace_to_closed_jaxpr(fun, avals)


def build_graph(closed: ClosedJaxpr, in_shardings: tuple[Any, ...] = (), default: Any = None) -> Graph:
    """The graph of a Jaxpr, with `users` filled in.

    in_shardings: for arguments of which this rank holds one shard, or that lie on several devices of this process,
    how they are laid out (else None). default: how results are if no argument says it.
    """
    builder = _Builder()
    graph = builder.graph
    layouts = in_shardings or (None,) * len(closed.jaxpr.invars)
    asked_for = list(asked.constraints_in(closed.jaxpr))
    if any(layouts) or asked_for:  # once parts are exchanged for an operation, it stays
        closed = regions.needed(closed)
    for i, (v, layout) in enumerate(zip(closed.jaxpr.invars, layouts, strict=True)):
        aval = v.aval if layout is None else v.aval.update(shape=layout.process_shape(v.aval.shape))
        value = Value(aval, "input", position=i)
        graph.inputs.append(value)
        if layout is not None:
            (builder.placed if layout.keeps_whole else builder.shards)[id(value)] = layout
            if not layout.keeps_whole:
                builder.blocks[id(value)] = blocks_by(layout, v.aval.shape)
    consts = [builder.const(c, v.aval) for c, v in zip(closed.consts, closed.jaxpr.constvars, strict=True)]
    outs = builder.program(closed, consts, graph.inputs, asked_for)
    graph.outputs = [partition.as_result(builder, v) for v in outs]
    other = others_layout(layouts) or default
    graph.shardings = [
        builder.shards.get(id(v)) or builder.placed.get(id(v)) or _for_axes(other, v.aval.ndim) for v in graph.outputs
    ]
    graph.gathers = list(builder.gathers)
    graph.placements = list(builder.placements)
    graph.finish()
    return graph


def _for_axes(layout: Any, ndim: int) -> Any:
    """A layout of whole arrays; over Explicit axes it says so of each axis of the array."""
    mesh = getattr(layout, "mesh", None)
    return layout if mesh is None or not mesh.is_explicit else layout.update(spec=layout.spec.padded(ndim))


def others_layout(layouts: tuple[Any, ...]) -> Any:
    """Where values lie that depend on no laid out argument of a program: whole on the devices of the first one."""
    first = next((x for x in layouts if x is not None), None)
    return first if first is None or not hasattr(first, "mesh") else first.update(spec=type(first.spec)())
