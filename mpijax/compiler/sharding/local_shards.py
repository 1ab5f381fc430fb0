"""`shard_map` for a process with several devices: runs their shards together, as a `vmap` over the mesh axes.

Collectives then follow their `vmap` rules: sums, permutations and concatenations along array axes. Cutting operands
into blocks and joining results only changes index maps.

If a mesh axis spans several processes with several devices each, the body names two axes instead of it: one over the
processes, where collectives are messages, and `Within` over the devices of a process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mpijax.compiler.graph.build import GraphBuilder
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Literal, bound, eval_jaxpr, map_jaxprs
from mpijax.core.rules.lowering import Communication, Exchange
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.context import in_body, under
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.trace import named_axes
from mpijax.core.types.avals import NO_AXES
from mpijax.ops.collectives.position import axis_index
from mpijax.ops.collectives.scope import names_of
from mpijax.ops.shapes.stacked_shards import MeshBlocks
from mpijax.transforms.batching import AxisData, batch_jaxpr

Axes = tuple[tuple[Any, int], ...]


@dataclass(frozen=True)
class Within:
    """The part of a mesh axis inside one process, if the axis also spans other processes."""

    axis: Any


def run(p: Partitioner, closed, params: dict[str, Any], inputs, for_all: bool, source) -> list:
    """The results of the body on the shards of this process. inputs: this process's shards.

    for_all: run the shards of all devices, on whole operands.
    """
    mesh = params["mesh"]
    manual = [n for n in mesh.axis_names if n in params["newly_manual_axes"]]
    processes = {} if for_all else {n: mesh.processes_along[n] for n in manual if mesh.processes_along[n] > 1}
    here = {n: Within(n) if n in processes else n for n in manual if n not in processes or mesh.within[n] > 1}
    axes: Axes = tuple((name, mesh.shape[n] // processes.get(n, 1)) for n, name in here.items())
    blocks = _GraphBlocks(p.graph, axes, source)

    def split(spec, ndim: int):
        return tuple(tuple(here[a] for a in names if a in here) for names in spec.split(ndim))

    in_splits = [split(spec, v.aval.ndim) for spec, v in zip(params["in_specs"], inputs, strict=True)]
    with named_axes(dict(axes) | processes), under(in_body(mesh.abstract_mesh, params["newly_manual_axes"])):
        body = _AxisDivision({n: here[n] for n in processes if n in here}).divided(without_varying(closed))
        batched, leading = batched_over(body, axes, [blocks.named(split) for split in in_splits])
    operands = [blocks.apart(v, split) for v, split in zip(inputs, in_splits, strict=True)]
    with p.in_body_over(mesh):
        outs = p.graph.inline(batched, operands, source)
    placed = zip(outs, leading, params["out_specs"], strict=True)
    return [blocks.together(v, names, split(spec, v.aval.ndim - len(names))) for v, names, spec in placed]


class _AxisDivision:
    """A body in which some axis names become two. inner: the second name, keyed by the first."""

    def __init__(self, inner: dict[Any, Within]):
        self.inner = inner

    def divided(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """The program with divided axis names; must be traced with all axes in scope."""
        if not self.inner:
            return closed
        run = partial(eval_jaxpr, closed.jaxpr, closed.consts, apply=self._equation)
        return trace_to_closed_jaxpr(run, closed.in_avals)

    def _equation(self, eqn: Eqn, args: list[Any]) -> Sequence[Any]:
        params = {name: map_jaxprs(x, self.divided) for name, x in eqn.params.items()}
        lower = eqn.primitive.lower
        if isinstance(lower, Communication) and lower.exchange is Exchange.POSITION:
            return [axis_index(self._names(params["axis_name"]))]
        params |= {name: self._names(params[name]) for name in ("axes", "axis_name") if name in params}
        return bound(eqn.replace(params=params), args)

    def _names(self, given: Any) -> Any:
        """Axis names, each divided name replaced by two: the process axis first."""
        names = names_of(given)
        if not any(n in self.inner for n in names if not isinstance(n, int)):
            return given
        return tuple(a for n in names for a in ((n, self.inner[n]) if n in self.inner else (n,)))


def batched_over(closed, axes: Axes, in_names: Sequence[tuple]) -> tuple[Any, list[tuple]]:
    """The body batched over all `axes`, and for each result the axes along which it differs, which lead in order."""
    out_names: list[tuple] = [()] * len(closed.out_avals)
    for name, size in reversed(axes):
        flags = tuple(name in names for names in in_names)
        closed, differs = batch_jaxpr(closed, AxisData(name, size), flags, False)
        out_names = [(name, *names) if d else names for names, d in zip(out_names, differs, strict=True)]
    return closed, out_names


@memo_on_jaxpr
def without_varying(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without varying, unreduced and reduced axes in its types, for retracing where shards are not tracked.
    Host functions are called once per shard.

    Ordered effects stay ordered as in any compiled program: `vmap` rejects them, but shards are not its examples."""
    known: dict[Any, Any] = {}

    def atom(v):
        aval = v.aval.update(vma=NO_AXES, split=None if v.aval.split is None else v.aval.split.outside)
        if type(v) is Literal:
            return Literal(v.val, aval)
        if v not in known:
            known[v] = type(v)(aval)
        return known[v]

    def equation(e):
        params = {name: map_jaxprs(x, without_varying) for name, x in e.params.items()}
        if params.get("vmap_method", "") is None:
            params["vmap_method"] = "sequential"
        if "ordered" in params:
            params["ordered"] = False
        return e.replace(invars=[*map(atom, e.invars)], outvars=[*map(atom, e.outvars)], params=params)

    jaxpr = closed.jaxpr
    eqns = [equation(e) for e in jaxpr.eqns]
    constvars, invars, outvars = (list(map(atom, vs)) for vs in (jaxpr.constvars, jaxpr.invars, jaxpr.outvars))
    return ClosedJaxpr(jaxpr.replace(constvars=constvars, invars=invars, outvars=outvars, eqns=eqns), closed.consts)


class _GraphBlocks(MeshBlocks):
    """Cuts and joins blocks of graph values."""

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
