"""Builds the graph of values from a Jaxpr: inlines calls, merges equal operations, drops dead ones.

Here every value is a whole array. `compiler.sharding.build_shards` extends the builder for values that are split over
ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np

from mpijax.compiler.graph import flow, regions
from mpijax.compiler.graph.inline import InlinedJaxpr, inlined
from mpijax.compiler.graph.nodes import Graph, OpenGraph, Value, ValueKind, operation_of
from mpijax.compiler.graph.simplify import ADDED, KNOWN, Op, simplified
from mpijax.compiler.graph.views import is_view, reads_by_index
from mpijax.core.base.source import UNKNOWN, Source, sources_from
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Literal
from mpijax.core.rules.lowering import STATUS_BYTES, ControlFlow, Decompose, Native
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.types import effects as fx
from mpijax.core.types.avals import ShapedArray, ShapeDtypeStruct


class GraphBuilder:
    """Runs a Jaxpr symbolically, adding nodes.

    parent: the builder of the graph around a loop or branch body. leaves: whether operations that read only values from
    outside this region may be hoisted out of it.
    """

    def __init__(self, parent: GraphBuilder | None = None, leaves: bool = False):
        self.graph = OpenGraph()
        self.parent = parent
        self.leaves = leaves
        self.why: str = parent.why if parent else ""
        self.owned: set[Value] = set()
        self.captured: list[tuple[Value, Value]] = []
        self.inside: dict[Value, Value] = {}
        # For each value of this region that is an index map of outer values: the equation, its operands, its line.
        self.outer_views: dict[Value, tuple[Eqn, list[Value], Source]] = {}
        self.literals: dict[Any, Value] = parent.literals if parent else {}
        self.const_ids: dict[int, Value] = {}
        # Results of earlier operations, per region: a value in a body is a shard, which outer code must not read.
        self.seen: dict[Any, list[Value]] = {}

    def literal(self, val: Any, aval: ShapedArray) -> Value:
        scalar = np.asarray(val, aval.dtype)[()]
        key = (aval, scalar.tobytes())
        if key not in self.literals:
            self.literals[key] = Value(aval, ValueKind.LITERAL, scalar=scalar)
        return self.literals[key]

    def const(self, value: Any, aval: ShapedArray) -> Value:
        if self.parent is not None:
            return self.parent.const(value, aval)
        known = self.const_ids.get(id(value))
        if known is None:
            if isinstance(value, ShapeDtypeStruct):  # allowed in programs that are only lowered, never run
                raise TypeError(
                    "A ShapeDtypeStruct does not have a value and cannot be used as a constant in a JAX function: "
                    f"{value}. Make it an argument, or use an array."
                )
            known = self.const_ids[id(value)] = self.new_const(value, aval)
            self.graph.consts.append(value)
            self.graph.const_values.append(known)
        return known

    def new_const(self, value: Any, aval: ShapedArray) -> Value:
        return Value(aval, ValueKind.CONST, position=len(self.graph.consts))

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Disables merging with operations outside of this context."""
        outside, self.seen = self.seen, {}
        try:
            yield
        finally:
            self.seen = outside

    @contextmanager
    def because(self, why: str) -> Iterator[None]:
        """Sets the reason for operations that this context adds. An inner context overrides it."""
        outside, self.why = self.why, why
        try:
            yield
        finally:
            self.why = outside

    # ------------------------------------------------------------ regions

    def child(self, leaves: bool) -> Self:
        """A builder for a body inside this graph."""
        return type(self)(self, leaves)

    def owns(self, v: Value) -> bool:
        """Whether a value is an argument or a result of this region's own operations."""
        return v in self.owned

    def argument(self, aval: ShapedArray) -> Value:
        """A new argument of the region."""
        value = Value(aval, ValueKind.INPUT, position=len(self.graph.inputs))
        self.graph.inputs.append(value)
        self.owned.add(value)
        return value

    def argument_as(self, aval: ShapedArray, part: Any) -> Value:
        """A new argument. aval: the type of the whole array. part: the part of it that the argument is; None: all."""
        return self.argument(aval)

    def local(self, v: Value) -> Value:
        """This region's value for an outer value: a capture, or a copy of the index map if it is a view."""
        if self.parent is None or v.scalar is not None or v.kind is ValueKind.CONST or self.owns(v):
            return v
        found = self.inside.get(v)
        if found is None:
            found = self.inside[v] = self.brought_in(v)
        return found

    def brought_in(self, v: Value) -> Value:
        """A new value of this region for an outer value."""
        assert self.parent is not None
        if regions.stays_view(v):
            node = operation_of(v)
            inputs = [self.local(w) for w in node.inputs]
            return self.node(node.primitive, node.params, inputs, [v.aval], node.source, node.effects)[0]
        found = Value(v.aval, ValueKind.INPUT, position=-1, outside=v)
        self.owned.add(found)
        self.captured.append((self.parent.local(v), found))
        return found

    def leaving(self, v: Value, part: Any, source: Source) -> Value:
        """A value as a result of this region. part: the part of the whole array that the result is; None: all."""
        return v

    def global_aval(self, v: Value) -> ShapedArray:
        """The type of the whole array, also if `v` is a shard of it."""
        return v.aval

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
        node = found.node(self.why)
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
        own = [self.graph.nodes, self.captured, self.seen, self.inside, self.outer_views]
        return own + (self.parent.tables() if self.parent else [])

    def finish(self, outputs: list[Value]) -> Graph:
        """The graph with these results."""
        return self.graph.closed(outputs, [inside for _, inside in self.captured])

    # ------------------------------------------------------------ running a Jaxpr

    def inline(self, closed: ClosedJaxpr, inputs: list[Value], source: Source) -> list[Value]:
        """The results of a Jaxpr. source: the line for equations that have none."""
        program = inlined(closed)
        return self.run(program, self.constants(program), inputs, source)

    def constants(self, program: InlinedJaxpr) -> list[Value]:
        closed = program.closed
        return [self.const(c, v.aval) for c, v in zip(closed.consts, closed.jaxpr.constvars, strict=True)]

    def run(self, program: InlinedJaxpr, consts: list[Value], args: list[Value], source: Source) -> list[Value]:
        """Add the operations of a program; return its results."""
        jaxpr, outside, env = program.closed.jaxpr, self.seen, self.variables(program, consts, args)

        def read(atom):
            return self.literal(atom.val, atom.aval) if type(atom) is Literal else env[atom]

        seen = {0: outside}
        try:
            for eqn in jaxpr.eqns:
                if program.apart and eqn.outvars:
                    self.seen = seen.setdefault(program.apart.get(eqn.outvars[0], 0), {})
                outs = self.equation(eqn, [read(v) for v in eqn.invars], eqn.source.within(source))
                env.update(zip(eqn.outvars, outs, strict=True))
            return [read(v) for v in jaxpr.outvars]
        finally:
            self.seen = outside

    def variables(self, program: InlinedJaxpr, consts: list[Value], args: list[Value]) -> dict[Any, Value]:
        """The values of a program's variables, to which each equation adds its results."""
        jaxpr = program.closed.jaxpr
        return dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def equation(self, eqn: Eqn, inputs: list[Value], source: Source) -> list[Value]:
        """The results of an equation of the running program."""
        return self.apply(eqn, inputs, source)

    def apply(self, eqn: Eqn, inputs: list[Value], source: Source) -> list[Value]:
        """The results of an operation: in a body, hoisted out of it if that saves work."""
        avals = [v.aval for v in eqn.outvars]
        if self.parent is None:
            return self.lowered(eqn, inputs, avals, source)
        reads_outer = not any(self.owns(v) and v not in self.outer_views for v in inputs)
        if self.leaves and reads_outer and not all(v.scalar is not None for v in inputs):
            if regions.leaves_region(eqn, inputs, avals):
                return self.parent.apply(eqn, [self._outside(v) for v in inputs], source)
        own = inputs if isinstance(eqn.primitive.lower, ControlFlow) else [self.local(v) for v in inputs]
        outs = self.lowered(eqn, own, avals, source)
        if reads_outer and reads_by_index(eqn.primitive):
            self.outer_views.update((v, (eqn, inputs, source)) for v in outs if self._is_view_of_outer(v))
        return outs

    def _is_view_of_outer(self, v: Value) -> bool:
        """Whether a value of this region is an index map of outer values alone, made without communication."""
        if not self.owns(v) or v.producer is None or not is_view(v.producer):
            return False
        return all(w.outside is not None or w in self.outer_views or not self.owns(w) for w in v.producer.inputs)

    def _outside(self, v: Value) -> Value:
        """A value that reads no argument of this region, computed outside of it."""
        assert self.parent is not None
        made: dict[Value, Value] = {}
        stack = [v]
        while stack:
            u = stack[-1]
            if u in made or u not in self.outer_views:
                made.setdefault(u, u)
                stack.pop()
                continue
            eqn, inputs, source = self.outer_views[u]
            missing = [w for w in inputs if w not in made]
            stack += missing
            if not missing:
                [made[u]] = self.parent.apply(eqn, [made[w] for w in inputs], source)
        return made[v]

    def lowered(self, eqn: Eqn, inputs: list[Value], avals, source: Source) -> list[Value]:
        """The results of an operation of this region: inlined, or added as a node."""
        lower = eqn.primitive.lower
        if self.is_inlined(eqn):
            return self.inline(decomposed(eqn.primitive, [v.aval for v in inputs], eqn.params), inputs, source)
        if isinstance(lower, ControlFlow):
            return self.control_flow(eqn, inputs, avals, source)
        if lower is None:
            raise NotImplementedError(f"primitive {eqn.primitive.name} has no lowering")
        return self._merged(Op(eqn.primitive, eqn.params, inputs, avals, source, eqn.effects))

    def is_inlined(self, eqn: Eqn) -> bool:
        """Whether an operation is replaced by the operations that it consists of, as an unrolled loop is."""
        lower = eqn.primitive.lower
        if isinstance(lower, ControlFlow):
            return lower.written_out is not None and lower.written_out(eqn.params)
        return isinstance(lower, Decompose)

    def control_flow(self, eqn: Eqn, inputs: list[Value], avals, source: Source) -> list[Value]:
        """The results of a loop or branch."""
        return flow.control_node(flow.FlowBuilder(self, eqn, source), inputs, avals)

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

    def pure(self, primitive, params, inputs: list[Value], avals, source: Source) -> list[Value]:
        """Add a pure operation. avals: types of the whole results."""
        return self.node(primitive, params, inputs, avals, source, fx.no_effects)


def _work_key(primitive, inputs, params, avals):
    """A key that is equal only for operations with equal results; None if parameters are not hashable."""
    key = (primitive, tuple(map(id, inputs)), tuple(sorted(params.items(), key=lambda kv: kv[0])), tuple(avals))
    try:
        hash(key)
    except TypeError:
        return None
    return key


_decompositions: dict[Any, ClosedJaxpr] = {}
_MAX_DECOMPOSITIONS = 1024


def decomposed(primitive, avals, params) -> ClosedJaxpr:
    """A composite primitive as a Jaxpr of simpler ones."""

    whole: Any = primitive.lower.unrolled if isinstance(primitive.lower, ControlFlow) else primitive.lower.fun

    def fun(*args):
        with sources_from(UNKNOWN):  # the cached Jaxpr serves many call sites; each call sets its own line
            out = whole(*args, **params)
        return list(out) if primitive.multiple_results else [out]

    key = (primitive, primitive.lower, tuple(avals), tuple(sorted(params.items(), key=lambda kv: kv[0])))
    try:
        found = _decompositions.get(key)
        if found is None:
            found = trace_to_closed_jaxpr(fun, avals)
            if len(_decompositions) >= _MAX_DECOMPOSITIONS:
                _decompositions.clear()
            _decompositions[key] = found
        return found
    except TypeError:
        return trace_to_closed_jaxpr(fun, avals)


def build_graph(closed: ClosedJaxpr) -> Graph:
    """The graph of a Jaxpr of whole arrays."""
    builder, program = GraphBuilder(), inlined(closed)
    args = [builder.argument(v.aval) for v in closed.jaxpr.invars]
    return builder.finish(builder.run(program, builder.constants(program), args, UNKNOWN))
