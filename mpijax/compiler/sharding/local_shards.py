"""`shard_map` over several devices of one process: all shards at once, as examples of a `vmap` over the mesh's axes.

Collectives are then what they are under `vmap`: sums, permutations and concatenations along array axes. Cutting
operands into blocks and putting results together only changes how they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.compiler.sharding.partitioner import GraphBuilder, Partitioner
from mpijax.core.avals import NO_AXES
from mpijax.core.jaxpr import ClosedJaxpr, Literal
from mpijax.core.memo import memo_on_jaxpr
from mpijax.core.registry import registry
from mpijax.core.sharding.context import in_body, under
from mpijax.core.trace import named_axes
from mpijax.transforms.batching import AxisData, batch_jaxpr
from mpijax.transforms.blocks import Blocks

Axes = tuple[tuple[Any, int], ...]


def run(p: Partitioner, closed, params: dict[str, Any], inputs, source) -> list:
    """The results of the body on all shards of the operands, which are whole."""
    mesh = params["mesh"]
    axes: Axes = tuple((n, s) for n, s in mesh.shape.items() if n in params["newly_manual_axes"])
    blocks = _GraphBlocks(p.graph, axes, source)
    in_splits = [spec.split(v.aval.ndim) for spec, v in zip(params["in_specs"], inputs, strict=True)]

    with named_axes(dict(axes)), under(in_body(mesh.abstract_mesh, params["newly_manual_axes"])):
        batched, leading = _over(closed, axes, [blocks.named(split) for split in in_splits])
    operands = [blocks.apart(v, split) for v, split in zip(inputs, in_splits, strict=True)]
    with p.in_body_over(mesh):
        outs = p.graph.inline(batched, operands, source)
    placed = zip(outs, leading, params["out_specs"], strict=True)
    return [blocks.together(v, names, spec.split(v.aval.ndim - len(names))) for v, names, spec in placed]


def _over(closed, axes: Axes, in_names: Sequence[tuple]) -> tuple[Any, list[tuple]]:
    """The body over all of `axes`, and for each result the axes it differs along: these lead, in order."""
    closed = without_varying(closed)
    out_names: list[tuple] = [()] * len(closed.out_avals)
    for name, size in reversed(axes):
        flags = tuple(name in names for names in in_names)
        closed, differs = batch_jaxpr(closed, AxisData(name, size), flags, False)
        out_names = [(name, *names) if d else names for names, d in zip(out_names, differs, strict=True)]
    return closed, out_names


@memo_on_jaxpr
def without_varying(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program, to be traced again where shards are not tracked: its types do not say over which mesh axes a
    value varies, and functions of the host are called shard by shard."""
    known: dict[Any, Any] = {}

    def atom(v):
        aval = v.aval.update(vma=NO_AXES)
        if type(v) is Literal:
            return Literal(v.val, aval)
        if v not in known:
            known[v] = type(v)(aval)
        return known[v]

    def parameter(x):
        if isinstance(x, ClosedJaxpr):
            return without_varying(x)
        return type(x)(map(parameter, x)) if type(x) in (tuple, list) else x

    def equation(e):
        params = {name: parameter(x) for name, x in e.params.items()}
        if params.get("vmap_method", "") is None:
            params["vmap_method"] = "sequential"
        return e.replace(invars=[*map(atom, e.invars)], outvars=[*map(atom, e.outvars)], params=params)

    jaxpr = closed.jaxpr
    eqns = [equation(e) for e in jaxpr.eqns]
    constvars, invars, outvars = (list(map(atom, vs)) for vs in (jaxpr.constvars, jaxpr.invars, jaxpr.outvars))
    return ClosedJaxpr(
        jaxpr.replace(constvars=constvars, invars=invars, outvars=outvars, eqns=eqns), closed.consts
    )


class _GraphBlocks(Blocks):
    """Blocks of values of a graph."""

    def __init__(self, graph: GraphBuilder, axes: Axes, source):
        super().__init__(axes)
        self.graph, self.source = graph, source

    def shape(self, x) -> tuple[int, ...]:
        return x.aval.shape

    def apply(self, name: str, x, to: tuple[int, ...], params: dict[str, Any]):
        aval = x.aval.update(shape=to)
        if x.scalar is not None:
            return self.graph.literal(x.scalar, aval)
        return self.graph.node(registry[name], params, [self.graph.local(x)], [aval], self.source)[0]
