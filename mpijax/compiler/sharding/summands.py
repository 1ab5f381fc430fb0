"""Converts unreduced values where they enter and leave the body of a `shard_map`.

Outside of bodies, an unreduced array stores its sum. Inside, the shards are summands: the first shard along the axes is
the sum, and the others are zero. Where an unreduced result leaves a body, the ranks compute the sum.
"""

from __future__ import annotations

from typing import Any

from mpijax.core.programs.jaxpr import ClosedJaxpr, eval_jaxpr
from mpijax.core.sharding.context import in_body, under
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.trace import named_axes
from mpijax.ops.collectives.position import axis_index
from mpijax.ops.collectives.reductions import psum
from mpijax.ops.elementwise.select import select
from mpijax.ops.rules import full_like


def cross(params: dict[str, Any]) -> bool:
    """Whether an argument or a result of a `shard_map` is unreduced."""
    return any(spec.unreduced for name in ("in_specs", "out_specs") for spec in params[name])


def of_stored_sums(inner: ClosedJaxpr, params: dict[str, Any]) -> ClosedJaxpr:
    """The body of a `shard_map`, for arguments and results that store sums. inner: the body, without varying axes in
    its types."""
    mesh, manual = params["mesh"], params["newly_manual_axes"]
    sums_in, sums_out = (
        [tuple(n for n in mesh.axis_names if n in spec.unreduced & manual) for spec in params[name]]
        for name in ("in_specs", "out_specs")
    )

    def body(*args):
        shards = [_summand(x, names) if names else x for x, names in zip(args, sums_in, strict=True)]
        outs = eval_jaxpr(inner.jaxpr, inner.consts, *shards)
        return [psum(x, names) if names else x for x, names in zip(outs, sums_out, strict=True)]

    with named_axes(dict(mesh.shape)), under(in_body(mesh.abstract_mesh, manual)):
        return trace_to_closed_jaxpr(body, inner.in_avals)


def _summand(x: Any, names: tuple) -> Any:
    return select(axis_index(names) == 0, x, full_like(x, 0))
