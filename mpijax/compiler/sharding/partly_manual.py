"""`shard_map` over some axes of a mesh, on arrays that are split over the other axes.

The body stays a program on global arrays as far as the other axes are concerned. So it becomes one: `vmap` over the
manual axes gives it an array axis for each of them, which is split over that mesh axis. Collectives follow their `vmap`
rules: a `psum` is a sum along such an array axis. The partitioner then runs this program like any other, on shards over
all mesh axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.sharding.blocks import sharding_over, split_of
from mpijax.compiler.sharding.local_shards import Axes, batched_over, without_varying
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.compiler.sharding.redistribute import moved_to
from mpijax.core.programs.jaxpr import ClosedJaxpr
from mpijax.core.sharding.context import in_body, under
from mpijax.core.sharding.cuts import count
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.trace import named_axes
from mpijax.core.types import effects as fx
from mpijax.ops.shapes.stacked_shards import MeshBlocks


def applies(p: Partitioner, closed: ClosedJaxpr, mesh: Mesh, manual: frozenset, inputs: Sequence[Value]) -> bool:
    """Whether an operand is split over Auto axes of the mesh that stay global in the body."""
    rest = set(mesh.auto_axes) - manual
    if p.in_body or not rest or fx.one_sided in closed.effects:
        return False
    return any(not rest.isdisjoint(a) for v in inputs for a in _axes_of(p, v, mesh))


def _axes_of(p: Partitioner, v: Value, mesh: Mesh) -> tuple[tuple[Any, ...], ...]:
    """For each array axis of a value, the axes of this mesh over which it is split."""
    sharding, ndim = p.sharding_held(v), p.global_aval(v).ndim
    return split_of(sharding, ndim) if getattr(sharding, "mesh", None) == mesh else ((),) * ndim


def run(p: Partitioner, closed: ClosedJaxpr, params: dict[str, Any], inputs: Sequence[Value], source) -> list[Value]:
    """The results of the body, as global arrays. inputs: the operands, split in any way."""
    mesh, manual = params["mesh"], params["newly_manual_axes"]
    axes: Axes = tuple((n, mesh.shape[n]) for n in mesh.axis_names if n in manual)
    blocks = MeshBlocks(axes)

    def part_of(spec: PartitionSpec, ndim: int) -> tuple[tuple[Any, ...], ...]:
        return tuple(tuple(a for a in names if a in manual) for names in spec.split(ndim))

    def inlined(program: Callable[..., Any], v: Value) -> Value:
        [out] = p.graph.inline(trace_to_closed_jaxpr(lambda x: [program(x)], [p.global_aval(v)]), [v], source)
        return out

    def stacked(v: Value, spec: PartitionSpec) -> Value:
        split = part_of(spec, p.global_aval(v).ndim)
        return _held(p, inlined(lambda x: blocks.apart(x, split), v), mesh, blocks.named(split), source)

    def whole(v: Value, names: tuple, spec: PartitionSpec) -> Value:
        v = _held(p, v, mesh, names, source)
        split = part_of(spec, p.global_aval(v).ndim - len(names))
        v = inlined(lambda x: blocks.together(x, names, split), v)
        have = zip(split, _axes_of(p, v, mesh), strict=True)
        return _split(p, v, mesh, [(*said, *(a for a in held if a not in manual)) for said, held in have], source)

    splits = [part_of(spec, p.global_aval(v).ndim) for spec, v in zip(params["in_specs"], inputs, strict=True)]
    with named_axes(dict(axes)), under(in_body(mesh.abstract_mesh, manual)):
        batched, leading = batched_over(without_varying(closed), axes, [blocks.named(split) for split in splits])
    operands = [stacked(v, spec) for v, spec in zip(inputs, params["in_specs"], strict=True)]
    outs = p.graph.inline(batched, operands, source)
    return [whole(v, names, spec) for v, names, spec in zip(outs, leading, params["out_specs"], strict=True)]


def _held(p: Partitioner, v: Value, mesh: Mesh, names: tuple, source) -> Value:
    """A value with its leading axes split over these mesh axes; its other axes stay split as they are."""
    if not names:
        return v
    rest = _axes_of(p, v, mesh)[len(names) :]
    kept = [tuple(a for a in axes if a not in names) for axes in rest]
    return _split(p, v, mesh, [*((n,) for n in names), *kept], source)


def _split(p: Partitioner, v: Value, mesh: Mesh, wanted: Sequence[tuple[Any, ...]], source) -> Value:
    """A value split over these axes of the mesh; along an array axis that they do not divide, it becomes whole."""
    sizes = zip(p.global_aval(v).shape, wanted, strict=True)
    split = tuple(axes if n % count(axes, mesh.shape) == 0 else () for n, axes in sizes)
    return moved_to(p, v, sharding_over(mesh, split), source)
