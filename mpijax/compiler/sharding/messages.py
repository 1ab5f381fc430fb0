"""Lowers collectives of a body to messages: finds the ranks, and puts operands in the order that MPI takes.

MPI's allgather, alltoall and reduce_scatter use one contiguous block per rank. Where a collective names another array
axis, the operand is transposed so that this axis leads, and the result is transposed back.
"""

from __future__ import annotations

import math

import numpy as np

from mpijax.compiler.graph.build import GraphBuilder
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.core.base.source import UNKNOWN, sources_from
from mpijax.core.rules.lowering import Communication, Exchange, OverRanks, Reshard, Structural
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.shapes.index import Lin
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.trace import named_axes
from mpijax.core.types import effects as fx
from mpijax.ops.collectives.reductions import psum_p
from mpijax.ops.reductions.standard import reduce_max_p, reduce_min_p, reduce_sum_p
from mpijax.ops.shapes.reshape import reshape_p, transpose_p

# The reason for a message that the compiler adds, by the kind of message.
_WHY = {
    Exchange.ALLGATHER: "{} needs the whole of a sharded array",
    Exchange.PERMUTE: "{} reads elements of other ranks",
    Exchange.ALLTOALL: "{} needs the array sharded along another axis",
}
_WHY_COMBINED = "{} combines values of the ranks"

rank_index_p = Primitive(
    "rank_index",
    type_rule=Unsupported("only the compiler makes this primitive"),
    reference=lambda *, position: np.int32(position),
    lower=Structural(lambda r, index, avals, params: r.convert(r.index(Lin(params["position"])), np.dtype(np.int32))),
    jvp=Unsupported("only the compiler makes this primitive"),
    transpose=Unsupported("only the compiler makes this primitive"),
    batch=Unsupported("only the compiler makes this primitive"),
    register=False,
)

_made: dict[OverRanks, Primitive] = {}
# The primitives that combine elements of one rank in the same way.
ON_ONE_RANK = {OverRanks.SUM: reduce_sum_p, OverRanks.MAX: reduce_max_p, OverRanks.MIN: reduce_min_p}


def reduction_p(op: OverRanks) -> Primitive:
    """The primitive for MPI's allreduce with `op`; made here if users have no such primitive."""
    if op is OverRanks.SUM:
        return psum_p
    if op not in _made:
        reason = Unsupported("only the compiler makes this primitive")
        _made[op] = Primitive(
            f"allreduce_{op}", type_rule=reason, reference=lambda x, **_: x,
            lower=Communication(Exchange.ALLREDUCE, op), jvp=reason, transpose=reason, batch=reason, register=False,
            effects=psum_p.effects,
        )  # fmt: skip
    return _made[op]


def communicate_here(p: Partitioner, mesh, primitive, params, v, shape, source):
    """A collective, outside of `shard_map` bodies, on this rank's part of an array. shape: of the result."""
    with p.in_body_over(mesh), p.graph.because(_reason(p, primitive.lower.exchange, source)):
        [out] = communicate(
            p, primitive, params, [v], [v.aval.update(shape=tuple(shape))], source, primitive.effects(params)
        )
    return out


def combined(p: Partitioner, v, over: tuple, op: OverRanks, mesh, source):
    """The reduction of the ranks' partial results. Communicates one allreduce."""
    params = {"axes": over, "axis_index_groups": None}
    return communicate_here(p, mesh, reduction_p(op), params, v, v.aval.shape, source)


def computed_together(p: Partitioner, mesh, program, operands, name: str, source) -> list:
    """The results of a function of this rank's parts, which may communicate. name: what the ranks compute with it."""

    def listed(*args):
        out = program(*args)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    with p.in_body_over(mesh), p.graph.because(f"the ranks compute {name} together"):
        with named_axes(dict(mesh.processes_along)), sources_from(source):
            closed = trace_to_closed_jaxpr(listed, [v.aval for v in operands])
        outs = p.graph.inline(closed, operands, source)
        return [p.graph.local(v) for v in outs]


def _reason(p: Partitioner, exchange: Exchange, source) -> str:
    """The reason for a message of the current operation, or of the final sharding of results."""
    if source is UNKNOWN:
        return "results are returned in equal shards"
    while p.graph.frame is None and p.outer is not None:  # in a body without a frame, use the loop or branch around it
        p = p.outer
    assert p.graph.frame is not None and p.graph.frame.at is not None
    primitive = p.graph.frame.at.primitive
    if isinstance(primitive.lower, Reshard):
        return "the program asks for this sharding"
    return _WHY.get(exchange, _WHY_COMBINED).format(primitive.name)


def communicate(p: Partitioner, primitive, params, inputs, avals, source, effects):
    """A communication over the ranks of its mesh axes; no message if their size is 1."""
    lower = primitive.lower
    if lower.on_communicator:
        if params.get("transposed"):  # the transpose of an allreduce is the identity
            return inputs
        return p.graph.node(primitive, params, inputs, avals, source, effects)
    names = params.get("axes", params.get("axis_name"))
    names = tuple(names) if isinstance(names, (tuple, list)) else (names,)
    if all(isinstance(n, int) for n in names):
        return _reduced(p, lower, names, inputs, avals, source)
    mesh = _mesh_with(p, names, primitive, source)
    if lower.exchange is Exchange.POSITION:
        at = dict(zip(mesh.axis_names, mesh.place, strict=True))
        return p.graph.node(rank_index_p, {"position": at[names[0]]}, [], avals, source, fx.no_effects)
    positional = tuple(n for n in names if isinstance(n, int))
    if positional:
        names = tuple(n for n in names if not isinstance(n, int))
        inputs = _reduced(p, lower, positional, inputs, avals, source)
    groups = params.get("axis_index_groups")
    size = math.prod(mesh.processes_along[n] for n in names) if groups is None else max(map(len, groups))
    message = _Message(p.graph, primitive, {**params, "mesh": mesh, "names": names}, size, source, effects)
    return message.send(lower, inputs[0], avals[0], *inputs[1:])


def _mesh_with(p: Partitioner, names, primitive, source):
    mesh_names = [n for n in names if not isinstance(n, int)]
    mesh = next((m for m in reversed(p.known.meshes) if all(n in m.axis_names for n in mesh_names)), None)
    if mesh is None:
        raise NameError(
            f"Found an unbound axis name: {names}. {primitive.name} at {source} runs outside of the shard_map or vmap "
            "that names the axis."
        )
    return mesh


def _reduced(p: Partitioner, lower: Communication, axes, inputs, avals, source):
    """A collective over batch axes, which is a local reduction."""
    assert lower.operation is not None  # over axes, not on a communicator
    params = {"axes": tuple(axes), "out_sharding": None}
    return p.graph.node(ON_ONE_RANK[lower.operation], params, inputs, avals, source, fx.no_effects)


class _Message:
    """One collective among `size` ranks."""

    def __init__(self, graph: GraphBuilder, primitive, params, size: int, source, effects):
        self.graph, self.primitive, self.params = graph, primitive, params
        self.size, self.source, self.effects = size, source, effects

    def send(self, lower: Communication, v, aval, *counts) -> list:
        alone = self.size == 1
        if lower.counted:
            return (
                [v]
                if alone
                else self.graph.node(self.primitive, self.params, [v, *counts], [aval], self.source, self.effects)
            )
        if lower.exchange is Exchange.PERMUTE:
            return [v] if alone and self.params["perm"] else [self._node(v, v.aval)]
        send = {
            Exchange.ALLGATHER: self._gather, Exchange.ALLTOALL: self._exchange, Exchange.REDUCE_SCATTER: self._scatter
        }.get(lower.exchange)  # fmt: skip
        if send is None:  # a reduction, or a broadcast
            return [v] if alone else [self._node(v, v.aval)]
        return [send(v, aval)]

    def _node(self, v, aval):
        [out] = self.graph.node(self.primitive, self.params, [v], [aval], self.source, self.effects)
        return out

    def _gather(self, v, aval):
        """An allgather along a new first axis, which is then transposed into place."""
        dim = self.params["all_gather_dimension"]
        shape = (self.size, *v.aval.shape)
        out = self._reshaped(v, shape) if self.size == 1 else self._node(v, v.aval.update(shape=shape))
        return self._reshaped(self._moved(out, 0, dim), aval.shape)

    def _exchange(self, v, aval):
        """An alltoall along a new first axis: blocks to the ranks, and blocks from the ranks."""
        if self.size == 1:
            return self._reshaped(v, aval.shape)
        ndim = len(v.aval.shape)
        split, concat = self.params["split_axis"] % ndim, self.params["concat_axis"] % ndim
        blocks = self._blocks_first(v, split)
        return self._reshaped(self._moved(self._node(blocks, blocks.aval), 0, concat), aval.shape)

    def _scatter(self, v, aval):
        """A reduce-scatter: operand blocks along a new first axis, one per rank; the result is this rank's sum."""
        if self.size == 1:
            return self._reshaped(v, aval.shape)
        blocks = self._blocks_first(v, self.params["scatter_dimension"])
        return self._reshaped(self._node(blocks, blocks.aval.update(shape=blocks.aval.shape[1:])), aval.shape)

    def _blocks_first(self, v, dim: int):
        shape = v.aval.shape
        v = self._reshaped(v, (*shape[:dim], self.size, shape[dim] // self.size, *shape[dim + 1 :]))
        return self._moved(v, dim, 0)

    def _reshaped(self, v, shape):
        if v.aval.shape == tuple(shape):
            return v
        params = {"new_sizes": tuple(shape), "dimensions": None, "sharding": None}
        return self._pure(reshape_p, params, v, shape)

    def _moved(self, v, origin: int, target: int):
        if origin == target:
            return v
        order = [i for i in range(len(v.aval.shape)) if i != origin]
        order.insert(target, origin)
        return self._pure(transpose_p, {"permutation": tuple(order)}, v, [v.aval.shape[i] for i in order])

    def _pure(self, primitive: Primitive, params, v, shape):
        aval = v.aval.update(shape=tuple(shape))
        return self.graph.node(primitive, params, [v], [aval], self.source, fx.no_effects)[0]
