"""Builds the graph of a program whose arrays are split over ranks: each value is this rank's shard.

The builder of whole arrays (`compiler.graph.build`) runs each equation. This one looks at its operands first. If they
are shards, it runs the equation by its sharding rule, or makes them whole. It records the shards that results are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from mpijax.compiler.graph import flow, normalize, regions
from mpijax.compiler.graph.build import GraphBuilder, decomposed
from mpijax.compiler.graph.inline import InlinedJaxpr, inlined
from mpijax.compiler.graph.nodes import Graph, Value
from mpijax.compiler.sharding import asked, constraints, messages, partition
from mpijax.compiler.sharding.called_once import called_once
from mpijax.compiler.sharding.carries import CutLoop
from mpijax.compiler.sharding.partitioner import JaxprFrame, Partitioner, verify
from mpijax.compiler.sharding.redistribute import gathered, recut
from mpijax.core.base import config
from mpijax.core.base.source import UNKNOWN, Source
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Var
from mpijax.core.rules.lowering import Communication, ControlFlow, Decompose, Partitioned, Reshard, Structural
from mpijax.core.types import effects as fx
from mpijax.core.types.array_api import is_whole
from mpijax.core.types.avals import ShapedArray


class ShardBuilder(GraphBuilder):
    """Runs a Jaxpr symbolically on this rank's shards.

    partitioner: the shardings of values; None until the first value that is split over ranks or devices.
    """

    parent: ShardBuilder | None

    def __init__(self, parent: ShardBuilder | None = None, leaves: bool = False):
        super().__init__(parent, leaves)
        self.frame: JaxprFrame | None = None
        self.partitioner: Partitioner | None = None
        if parent is not None and parent.partitioner is not None:
            self.over_ranks()

    def over_ranks(self) -> Partitioner:
        """The partitioner of this region; created on first use."""
        if self.partitioner is None:
            self.partitioner = Partitioner(self, self.parent.over_ranks() if self.parent else None)
        return self.partitioner

    def const(self, value: Any, aval: ShapedArray) -> Value:
        known = super().const(value, aval)
        if self.parent is not None:
            return self.parent.whole(known, UNKNOWN)
        return known if self.partitioner is None else partition.constant(self.partitioner, known)

    def new_const(self, value: Any, aval: ShapedArray) -> Value:
        if is_whole(value):
            return super().new_const(value, aval)
        sharding = value._sharding
        known = super().new_const(value, aval.update(shape=sharding.planned_shape(aval.shape)))
        self.over_ranks().record_sharding(known, sharding, aval.shape, lambda: "a constant")
        return known

    # ------------------------------------------------------------ regions

    def argument_as(self, aval: ShapedArray, part: Any) -> Value:
        if part is None:
            return self.argument(aval)
        value = self.argument(aval.update(shape=part.local_shape))
        return self.over_ranks().held_as(value, part, part.sharding, True, UNKNOWN)

    def brought_in(self, v: Value) -> Value:
        found = super().brought_in(v)
        if self.partitioner is not None:
            self.partitioner.alike(v, found)
        return found

    def leaving(self, v: Value, part: Any, source: Source) -> Value:
        return self.whole(v, source) if part is None else recut(self.over_ranks(), v, part.mesh, part.cuts, source)

    def whole(self, v: Value, source: Source) -> Value:
        """The whole array of `v`, on every rank: gathered if `v` is this rank's shard."""
        return v if self.partitioner is None else gathered(self.partitioner, v, source)

    def global_aval(self, v: Value) -> ShapedArray:
        return v.aval if self.partitioner is None else self.partitioner.global_aval(v)

    def has_parts(self, inputs: list[Value]) -> bool:
        """Whether any operand is this rank's shard of an array."""
        return self.partitioner is not None and any(self.partitioner.blocks_of(v) is not None for v in inputs)

    def tables(self) -> list[Any]:
        p = self.partitioner
        own = [] if p is None else [p.views, p.moved, p.summed, p.known.gathers, p.known.placements, p.known.inspected]
        return own + super().tables()

    # ------------------------------------------------------------ running a Jaxpr

    def run(
        self,
        program: InlinedJaxpr,
        consts: list[Value],
        args: list[Value],
        source: Source,
        asked_for: asked.Asked | None = None,
    ) -> list[Value]:
        """Add the operations of a program; return its results. asked_for: cuts that its constraints request."""
        outer, self.frame = self.frame, JaxprFrame(program.closed.jaxpr, asked_for)
        try:
            return super().run(program, consts, args, source)
        finally:
            self.frame = outer

    def variables(self, program: InlinedJaxpr, consts: list[Value], args: list[Value]) -> dict[Any, Value]:
        assert self.frame is not None
        self.frame.values = super().variables(program, consts, args)
        return self.frame.values

    def equation(self, eqn: Eqn, inputs: list[Value], source: Source) -> list[Value]:
        assert self.frame is not None
        self.frame.at, first = eqn, len(self.graph.nodes)
        if self.partitioner is None:
            outs = self.apply(eqn, inputs, source)
        else:
            outs = partition.done(self.partitioner, eqn, inputs, source)
        if self.partitioner is None and not ShapedArray.any_split:
            return outs
        return partition.placed(self.over_ranks(), eqn, inputs, outs, first, source)

    def apply(self, eqn: Eqn, inputs: list[Value], source: Source) -> list[Value]:
        lower = eqn.primitive.lower
        if isinstance(lower, Partitioned):
            return partition.run_shards(self.over_ranks(), eqn.params[lower.param], eqn.params, inputs, source)
        return super().apply(eqn, inputs, source)

    def lowered(self, eqn: Eqn, inputs: list[Value], avals, source: Source) -> list[Value]:
        lower = eqn.primitive.lower
        if isinstance(lower, Reshard):
            return constraints.with_requested_sharding(self.over_ranks(), eqn, inputs[0], source)
        if not avals and self.partitioner is not None:
            shown = partition.shown(self.partitioner, eqn, inputs, source)
            if shown is not None:
                return shown
        if self.has_parts(inputs):
            p = self.over_ranks()
            outs = self._spread(p, eqn, inputs, avals, source)
            if outs is not None:
                return outs
            inputs = partition.made_whole(p, eqn, inputs, source)
        if isinstance(lower, Communication):
            p = self.over_ranks()
            return messages.communicate(p, eqn.primitive, eqn.params, inputs, avals, source, eqn.effects)
        if self.partitioner is not None and fx.pins(eqn.effects):
            outs = called_once(self.partitioner, eqn, inputs, avals, source)
            if outs is not None:
                return outs
        return super().lowered(eqn, inputs, avals, source)

    def _spread(self, p: Partitioner, eqn: Eqn, inputs: list[Value], avals, source: Source) -> list[Value] | None:
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
            return self.inline(decomposed(eqn.primitive, whole, eqn.params), inputs, source)
        if isinstance(lower, ControlFlow) and not self.is_inlined(eqn):
            return self.control_flow(eqn, inputs, avals, source)
        return None

    def control_flow(self, eqn: Eqn, inputs: list[Value], avals, source: Source) -> list[Value]:
        p = self.partitioner
        held = next((b for v in inputs if (b := p.blocks_of(v)) is not None), None) if p is not None else None
        if p is None or held is None:
            return super().control_flow(eqn, inputs, avals, source)
        return flow.control_node(CutLoop(self, eqn, source, p, held.mesh), inputs, avals)

    def pure(self, primitive, params, inputs: list[Value], avals, source: Source) -> list[Value]:
        """Add a pure operation; on shards, each rank computes its shard. avals: types of the whole results."""
        if not self.has_parts(inputs):
            return super().pure(primitive, params, inputs, avals, source)
        eqn = Eqn(primitive, [Var(v.aval) for v in inputs], [Var(a) for a in avals], params, fx.no_effects, source)
        return self.apply(eqn, inputs, source)


def build_shards(closed: ClosedJaxpr, in_shardings: tuple[Any, ...] = (), default: Any = None) -> Graph:
    """The graph of a Jaxpr, with `users` filled in.

    in_shardings: for each argument, its sharding if it is split over ranks or is on several devices of this process,
    else None. default: the sharding of results if no argument has one.
    """
    builder = ShardBuilder()
    shardings = in_shardings or (None,) * len(closed.jaxpr.invars)
    program = inlined(closed)
    constraints_asked = list(asked.constraints_in(program.closed.jaxpr))
    if any(shardings) or constraints_asked:  # exchanges added for an operation stay, even if it is dead
        program = replace(program, closed=regions.needed(program.closed))
    args = [_argument(builder, closed.jaxpr, i, sharding) for i, sharding in enumerate(shardings)]
    consts, wishes = builder.constants(program), None
    if constraints_asked:
        mesh_of = partial(constraints.devices_of, builder.over_ranks())
        wishes = asked.asked_of(program.closed.jaxpr, constraints_asked, mesh_of)
    outs = builder.run(program, consts, args, UNKNOWN, wishes)
    others = others_sharding(shardings) or default
    if builder.partitioner is not None:
        return _finished(builder, builder.partitioner, outs, others)
    return replace(builder.finish(outs), shardings=tuple([_for_axes(others, v.aval.ndim) for v in outs]))


def _argument(builder: ShardBuilder, jaxpr: Jaxpr, i: int, sharding: Any) -> Value:
    """An argument of the program. sharding: None for an array of this process alone."""
    aval = jaxpr.invars[i].aval
    if sharding is None:
        return builder.argument(aval)
    value = builder.argument(aval.update(shape=sharding.planned_shape(aval.shape)))
    builder.over_ranks().record_sharding(value, sharding, aval.shape, partial(_described, jaxpr, i))
    return value


def _described(jaxpr: Jaxpr, i: int) -> str:
    """An argument as errors name it."""
    names = () if jaxpr.debug_info is None else jaxpr.debug_info.arg_names or ()
    known = len(names) == len(jaxpr.invars) and names[i]
    name = f"argument {names[i]} of {jaxpr.debug_info.func_name}" if known else "an argument"
    return f"{name} with shape {jaxpr.invars[i].aval.str_short(False)} and"


def _finished(builder: ShardBuilder, p: Partitioner, outs: list[Value], others: Any) -> Graph:
    """The graph, with the shardings of its results. others: the sharding of results that have none."""
    results = [partition.as_result(p, v) for v in outs]
    elsewhere = p.known.over if p.known.over is not None and p.known.over.is_elsewhere else None
    others = whole_by(p.known.over) or others
    shardings = [
        None if v in p.known.own else p.sharding_held(result) or _for_axes(others, v.aval.ndim)
        for v, result in zip(outs, results, strict=True)
    ]
    constraints.show(p, others)
    if config.values.jax_enable_checks:
        verify(p)
    return replace(
        builder.finish(results),
        shardings=tuple(shardings),
        elsewhere=elsewhere,
        gathers=tuple(p.known.gathers),
        placements=tuple(p.known.placements),
    )


def _for_axes(sharding: Any, ndim: int) -> Any:
    """The sharding for a whole array of rank `ndim`; over Explicit axes the spec needs an entry for each array axis."""
    mesh = getattr(sharding, "mesh", None)
    return sharding if mesh is None or not mesh.is_explicit else sharding.update(spec=sharding.spec.padded(ndim))


def others_sharding(shardings: tuple[Any, ...]) -> Any:
    """The sharding of values that depend on no sharded argument: replicated over the devices of the first one."""
    return whole_by(next((x for x in shardings if x is not None), None))


def whole_by(sharding: Any) -> Any:
    """A sharding that replicates values over the devices of `sharding`."""
    return sharding.update(spec=type(sharding.spec)()) if hasattr(sharding, "mesh") else sharding
