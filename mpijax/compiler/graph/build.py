"""Builds the graph of values from a Jaxpr: inlines calls, merges equal operations, drops dead ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mpijax.compiler.graph import flow, normalize, regions
from mpijax.compiler.graph.inline import Program, inlined
from mpijax.compiler.graph.nodes import Graph, Value, operation_of
from mpijax.compiler.graph.simplify import ADDED, KNOWN, Op, simplified
from mpijax.compiler.graph.turns import in_turns
from mpijax.compiler.sharding import asked, constraints, messages, partition
from mpijax.compiler.sharding.partitioner import Frame, Partitioner
from mpijax.compiler.sharding.redistribute import gathered
from mpijax.core import effects as fx
from mpijax.core.array_api import is_whole
from mpijax.core.avals import ShapedArray, ShapeDtypeStruct
from mpijax.core.jaxpr import ClosedJaxpr, Eqn, Literal, Var
from mpijax.core.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.lowering import (
    STATUS_BYTES,
    Communication,
    ControlFlow,
    Decompose,
    Layout,
    Native,
    Partitioned,
    Structural,
)
from mpijax.core.source import UNKNOWN, Source, sources_from


class _Builder:
    """Runs a Jaxpr symbolically, adding nodes.

    partitioner: the shardings of values that are split over ranks or devices; None in a program without such values.
    """

    def __init__(self, parent: _Builder | None = None, leaves: bool = False):
        self.graph = Graph()
        self.parent = parent
        # Whether operations that read only values from outside this region may be hoisted out of it.
        self.leaves = leaves
        self.owned: set[Value] = set()
        self.captured: list[tuple[Value, Value]] = []
        self.inside: dict[Value, Value] = {}
        self.frame: Frame | None = None
        self.partitioner: Partitioner | None = None
        if parent is not None and parent.partitioner is not None:
            self.over_ranks()
        self.literals: dict[Any, Value] = parent.literals if parent else {}
        self.const_ids: dict[int, Value] = {}
        # Results of earlier operations, per region: a value in a body is a shard, which outer code must not read.
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
            if isinstance(value, ShapeDtypeStruct):  # allowed in programs that are only lowered, never run
                raise TypeError(
                    "A ShapeDtypeStruct does not have a value and cannot be used as a constant in a JAX function: "
                    f"{value}. Make it an argument, or use an array."
                )
            layout = None if is_whole(value) else value._sharding
            whole = aval
            if layout is not None:
                aval = aval.update(shape=layout.planned_shape(aval.shape))
            known = Value(aval, "const", position=len(self.graph.consts))
            self.graph.consts.append(value)
            self.graph.const_values.append(known)
            self.const_ids[id(value)] = known
            if layout is not None:
                self.over_ranks().laid_out(known, layout, whole.shape)
        return known if self.partitioner is None else partition.constant(self.partitioner, known)

    def over_ranks(self) -> Partitioner:
        """The partitioner of this region; created on first use."""
        if self.partitioner is None:
            self.partitioner = Partitioner(self, self.parent.over_ranks() if self.parent else None)
        return self.partitioner

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Disables merging with operations outside of this context."""
        outside, self.seen = self.seen, {}
        try:
            yield
        finally:
            self.seen = outside

    # ------------------------------------------------------------ regions

    def child(self, leaves: bool) -> _Builder:
        """A builder for a body inside this graph."""
        return _Builder(self, leaves)

    def owns(self, v: Value) -> bool:
        """Whether a value is an argument or a result of this region's own operations."""
        return v in self.owned

    def argument(self, aval: ShapedArray) -> Value:
        """A new argument of the region."""
        value = Value(aval, "input", position=len(self.graph.inputs))
        self.graph.inputs.append(value)
        self.owned.add(value)
        return value

    def local(self, v: Value) -> Value:
        """This region's value for an outer value: a capture, or a copy of the index map if it is a view."""
        if self.parent is None or v.scalar is not None or v.kind == "const" or self.owns(v):
            return v
        found = self.inside.get(v)
        if found is None:
            if regions.stays_view(v):
                node = operation_of(v)
                inputs = [self.local(w) for w in node.inputs]
                found = self.node(node.primitive, node.params, inputs, [v.aval], node.source, node.effects)[0]
            else:
                found = Value(v.aval, "input", position=-1)
                found.outside = v
                self.owned.add(found)
                self.captured.append((self.parent.local(v), found))
            if self.partitioner is not None:
                self.partitioner.alike(v, found)
            self.inside[v] = found
        return found

    def whole(self, v: Value, source: Source) -> Value:
        """The whole array of `v`, on every rank: gathered if `v` is this rank's shard."""
        return v if self.partitioner is None else gathered(self.partitioner, v, source)

    def global_aval(self, v: Value) -> ShapedArray:
        """The type of the whole array, also if `v` is a shard of it."""
        return v.aval if self.partitioner is None else self.partitioner.global_aval(v)

    def has_parts(self, inputs: list[Value]) -> bool:
        """Whether any operand is this rank's shard of an array."""
        return self.partitioner is not None and any(self.partitioner.blocks_of(v) is not None for v in inputs)

    def done(self, primitive, params, inputs, avals) -> list[Value] | None:
        """The results of an equal operation that the graph already has; None if there is none."""
        key = _work_key(primitive, inputs, params, avals)
        return None if key is None else self.seen.get(key)

    def once(self, what, params, inputs, avals, make: Callable[[], list[Value]]) -> list[Value]:
        """The results of equal earlier work, else those of `make`. what: identifies the work; holds the primitive."""
        key = _work_key(what, inputs, params, avals)
        found = None if key is None else self.seen.get(key)
        if found is None:
            found = make()
            if key is not None:
                self.seen[key] = found
        return found

    def node(self, primitive, params, inputs, avals, source, effects=fx.no_effects) -> list[Value]:
        """Add an operation."""
        return self.add(Op(primitive, params, inputs, avals, source, effects))

    def add(self, op: Op) -> list[Value]:
        """Add an operation or its simplified form."""
        found = simplified(self, op, ADDED)
        if isinstance(found, list):
            return found
        node = found.node()
        self.graph.nodes.append(node)
        if self.parent is not None:
            self.owned.update(node.outputs)
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

    def tables(self) -> list[Any]:
        """The lists and dicts that grow when operations are added, of this region and the regions around it."""
        p = self.partitioner
        own = [self.graph.nodes, self.captured, self.seen, self.inside]
        own += [] if p is None else [p.views, p.moved, p.summed, p.known.gathers, p.known.placements, p.known.inspected]
        return own + (self.parent.tables() if self.parent else [])

    def finish(self, outputs: list[Value]) -> Graph:
        """The region's graph."""
        self.graph.outputs = outputs
        self.graph.shardings = [None] * len(outputs)
        self.graph.finish()
        return in_turns(self.graph)

    # ------------------------------------------------------------ running a Jaxpr

    def inline(self, closed: ClosedJaxpr, inputs: list[Value], source: Source) -> list[Value]:
        """The results of a Jaxpr. source: the line for equations that have none."""
        program = inlined(closed)
        return self.run(program, self.constants(program), inputs, source)

    def constants(self, program: Program) -> list[Value]:
        closed = program.closed
        return [self.const(c, v.aval) for c, v in zip(closed.consts, closed.jaxpr.constvars, strict=True)]

    def run(
        self,
        program: Program,
        consts: list[Value],
        args: list[Value],
        source: Source,
        asked_for: asked.Asked | None = None,
    ) -> list[Value]:
        """Add the operations of a program; return its results."""
        jaxpr, outer, outside = program.closed.jaxpr, self.frame, self.seen
        env: dict[Any, Value] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

        def read(atom):
            return self.literal(atom.val, atom.aval) if type(atom) is Literal else env[atom]

        frame, seen = Frame(jaxpr, asked_for), {0: outside}
        try:
            for eqn in jaxpr.eqns:
                inputs, first = [read(v) for v in eqn.invars], len(self.graph.nodes)
                where = eqn.source.within(source)
                self.frame, frame.at = frame, eqn
                if program.apart and eqn.outvars:
                    self.seen = seen.setdefault(program.apart.get(eqn.outvars[0], 0), {})
                if self.partitioner is None:
                    outs = self.apply(eqn, inputs, where)
                else:
                    outs = partition.done(self.partitioner, eqn, inputs, where)
                if self.partitioner is not None or ShapedArray.any_split:
                    outs = partition.placed(self.over_ranks(), eqn, inputs, outs, first, where)
                env.update(zip(eqn.outvars, outs, strict=True))
            return [read(v) for v in jaxpr.outvars]
        finally:
            self.frame, self.seen = outer, outside

    def apply(self, eqn, inputs: list[Value], source: Source) -> list[Value]:
        """The results of an operation: run on this rank's shards, inlined, or added as a node."""
        lower = eqn.primitive.lower
        if isinstance(lower, Partitioned):
            return partition.run_shards(self.over_ranks(), eqn.params[lower.param], eqn.params, inputs, source)
        avals = [v.aval for v in eqn.outvars]
        if self.parent is not None:
            if self._is_done_outside(eqn, inputs, avals):
                return self.parent.apply(eqn, inputs, source)
            if not isinstance(lower, ControlFlow):
                inputs = [self.local(v) for v in inputs]
        if isinstance(lower, Layout):
            return constraints.laid_out(self.over_ranks(), eqn, inputs[0], source)
        if not avals and self.partitioner is not None:
            outs = partition.shown(self.partitioner, eqn, inputs, source)
            if outs is not None:
                return outs
        if self.has_parts(inputs):
            p = self.over_ranks()
            outs = self._spread(p, eqn, inputs, avals, source)
            if outs is not None:
                return outs
            inputs = partition.made_whole(p, eqn, inputs, source)
        if isinstance(lower, Communication):
            p = self.over_ranks()
            return messages.communicate(p, eqn.primitive, eqn.params, inputs, avals, source, eqn.effects)
        if isinstance(lower, Decompose) or _is_written_out(lower, eqn.params):
            return self.inline(_decomposed(eqn.primitive, [v.aval for v in inputs], eqn.params), inputs, source)
        if isinstance(lower, ControlFlow):
            return flow.control_node(self, eqn, inputs, avals, source)
        if lower is None:
            raise NotImplementedError(f"primitive {eqn.primitive.name} has no lowering")
        return self._merged(Op(eqn.primitive, eqn.params, inputs, avals, source, eqn.effects))

    def _is_done_outside(self, eqn, inputs: list[Value], avals) -> bool:
        """Whether an operation of a body reads nothing computed in it and is cheaper before the loop."""
        if not self.leaves or any(self.owns(v) for v in inputs) or all(v.scalar is not None for v in inputs):
            return False
        return regions.leaves_region(eqn, avals)

    def _merged(self, op: Op) -> list[Value]:
        """The results of an operation: those of an equal earlier one, else of a new one."""
        found = simplified(self, op, KNOWN)
        if isinstance(found, list):
            return found
        if fx.pins(found.effects):
            return self._added(found)
        return self.once(found.primitive, found.params, found.inputs, found.avals, partial(self._added, found))

    def _added(self, op: Op) -> list[Value]:
        if not isinstance(op.primitive.lower, Native):
            return self.add(op)
        # The status bytes are an extra result that no operation reads.
        return self.add(replace(op, avals=[*op.avals, ShapedArray((STATUS_BYTES,), np.uint8)]))[:-1]

    def _spread(self, p: Partitioner, eqn, inputs: list[Value], avals, source: Source) -> list[Value] | None:
        """The results of an operation on shards; None if it needs whole operands."""
        lower = eqn.primitive.lower
        if isinstance(lower, Structural):
            simpler = normalize.simplified(self, eqn.primitive, eqn.params, inputs, avals, source)
            if simpler is not None:
                return simpler
        outs = partition.spread(p, eqn, inputs, avals, source)
        if outs is not None:
            return outs
        if isinstance(lower, Decompose):
            whole = [p.global_aval(v) for v in inputs]
            return self.inline(_decomposed(eqn.primitive, whole, eqn.params), inputs, source)
        if isinstance(lower, ControlFlow) and not _is_written_out(lower, eqn.params):
            return flow.control_node(self, eqn, inputs, avals, source)
        return None

    def pure(self, primitive, params, inputs: list[Value], avals, source: Source) -> list[Value]:
        """Add a pure operation; on shards, each rank computes its shard. avals: types of the whole results."""
        if not self.has_parts(inputs):
            return self.node(primitive, params, inputs, avals, source, fx.no_effects)
        eqn = Eqn(primitive, [Var(v.aval) for v in inputs], [Var(a) for a in avals], params, fx.no_effects, source)
        return self.apply(eqn, inputs, source)


def _is_written_out(lower: Any, params: dict[str, Any]) -> bool:
    """Whether a loop is unrolled."""
    return isinstance(lower, ControlFlow) and lower.written_out is not None and lower.written_out(params)


def _work_key(primitive, inputs, params, avals):
    """A key that is equal only for operations with equal results; None if parameters are not hashable."""
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
        with sources_from(UNKNOWN):  # the cached Jaxpr serves many call sites; each call sets its own line
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

    in_shardings: for each argument, its sharding if it is split over ranks or is on several devices of this process,
    else None. default: the sharding of results if no argument has one.
    """
    builder = _Builder()
    graph = builder.graph
    layouts = in_shardings or (None,) * len(closed.jaxpr.invars)
    program = inlined(closed)
    constraints_asked = list(asked.constraints_in(program.closed.jaxpr))
    if any(layouts) or constraints_asked:  # exchanges added for an operation stay, even if it is dead
        program = replace(program, closed=regions.needed(program.closed))
    for i, (v, layout) in enumerate(zip(closed.jaxpr.invars, layouts, strict=True)):
        aval = v.aval if layout is None else v.aval.update(shape=layout.planned_shape(v.aval.shape))
        value = Value(aval, "input", position=i)
        graph.inputs.append(value)
        if layout is not None:
            builder.over_ranks().laid_out(value, layout, v.aval.shape)
    consts, wishes = builder.constants(program), None
    if constraints_asked:
        mesh_of = partial(constraints.devices_of, builder.over_ranks())
        wishes = asked.asked_of(program.closed.jaxpr, constraints_asked, mesh_of)
    outs = builder.run(program, consts, graph.inputs, UNKNOWN, wishes)
    p, other = builder.partitioner, others_layout(layouts) or default
    if p is None:
        graph.outputs, graph.shardings = outs, [_for_axes(other, v.aval.ndim) for v in outs]
    else:
        graph.outputs = [partition.as_result(p, v) for v in outs]
        graph.elsewhere = p.known.over if p.known.over is not None and p.known.over.is_elsewhere else None
        other = whole_by(graph.elsewhere) or other
        graph.shardings = [
            None if v in p.known.own else p.layout_held(result) or _for_axes(other, v.aval.ndim)
            for v, result in zip(outs, graph.outputs, strict=True)
        ]
        graph.gathers, graph.placements = list(p.known.gathers), list(p.known.placements)
        constraints.show(p, other)
    graph.finish()
    return in_turns(graph)


def _for_axes(layout: Any, ndim: int) -> Any:
    """The layout for a whole array of rank `ndim`; over Explicit axes the spec needs an entry for each array axis."""
    mesh = getattr(layout, "mesh", None)
    return layout if mesh is None or not mesh.is_explicit else layout.update(spec=layout.spec.padded(ndim))


def others_layout(layouts: tuple[Any, ...]) -> Any:
    """The layout of values that depend on no sharded argument: replicated over the devices of the first one."""
    return whole_by(next((x for x in layouts if x is not None), None))


def whole_by(layout: Any) -> Any:
    """A layout that replicates values over the devices of `layout`."""
    return layout if layout is None or not hasattr(layout, "mesh") else layout.update(spec=type(layout.spec)())
