"""Values that go from one body of `shard_map` to another: each has an axis along which shards are put side by side."""

from __future__ import annotations

from collections.abc import Sequence

from mpijax.core.programs.jaxpr import ClosedJaxpr, eval_jaxpr
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr


def with_ranked_residuals(
    makes: ClosedJaxpr, reads: ClosedJaxpr, n: int, forwarded: Sequence[int | None]
) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """Scalar residuals leave and enter the bodies with an axis. The scope is that of the bodies.

    makes: the body that returns `n` results and then the residuals. reads: the one whose first arguments are residuals,
    one for each of `forwarded`: which argument of the first body it is, or None for the next that this body returns.
    """
    scalar = [a.ndim == 0 for a in makes.out_avals[n:]]
    if not any(scalar):
        return makes, reads

    def out_fun(*args):
        outs = eval_jaxpr(makes.jaxpr, makes.consts, *args)
        wide = [
            registry["broadcast_in_dim"].bind(r, shape=(1,), broadcast_dimensions=(), sharding=None) if s else r
            for r, s in zip(outs[n:], scalar, strict=True)
        ]
        return outs[:n] + wide

    flags = iter(scalar)
    widened = [next(flags) if i is None else False for i in forwarded]
    m = len(widened)

    def in_fun(*args):
        narrow = [
            registry["squeeze"].bind(r, dimensions=(0,)) if w else r for r, w in zip(args[:m], widened, strict=True)
        ]
        return eval_jaxpr(reads.jaxpr, reads.consts, *narrow, *args[m:])

    in_avals = [
        a.update(shape=(1,)) if w else a for a, w in zip(reads.in_avals[:m], widened, strict=True)
    ] + reads.in_avals[m:]
    return trace_to_closed_jaxpr(out_fun, makes.in_avals), trace_to_closed_jaxpr(in_fun, in_avals)
