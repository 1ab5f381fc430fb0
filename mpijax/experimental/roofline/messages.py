"""Rules of collectives: each mesh axis is a ring of devices with links both ways, and several axes are a torus."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core.types.avals import ShapedArray
from mpijax.experimental.roofline.results import RooflineResult, RooflineRuleContext, RooflineShape


def _sizes(ctx: RooflineRuleContext, axes: Sequence[Any]) -> dict[str, int]:
    if ctx.mesh is None:
        raise ValueError(f"{ctx.primitive} over the axes {tuple(axes)} can be estimated with a mesh only: pass `mesh`")
    return {axis: ctx.mesh.shape[axis] for axis in axes if isinstance(axis, str)}


def _alike(axes: Sequence[str], nbytes: float, hops: float) -> RooflineResult:
    """The same on each axis."""
    return RooflineResult(
        ici_bytes=dict.fromkeys(axes, int(nbytes)), ici_latency=dict.fromkeys(axes, int(hops))
    )


def _around(ctx: RooflineRuleContext, axes: Sequence[Any], nbytes: float) -> RooflineResult:
    """Shards of `nbytes` go round the rings, one axis after the other; on each the data is split among the axes."""
    sizes = _sizes(ctx, axes)
    if math.prod(sizes.values()) <= 1:
        return _alike(list(sizes), 0, 0)
    order = sorted(sizes, key=lambda axis: -sizes[axis])
    share, total = nbytes // len(order), 0.0
    for axis in order:
        total += share * (sizes[axis] - 1)
        share *= sizes[axis]
    return _alike(order, total, sizes[order[0]] * len(order))


def _gather(ctx: RooflineRuleContext, *args: RooflineShape, axis_name: Sequence[Any], **params: Any) -> RooflineResult:
    return _around(ctx, axis_name, RooflineShape.total_bytes(ctx.avals_in))


def _reduce_scatter(
    ctx: RooflineRuleContext, *args: RooflineShape, axis_name: Sequence[Any], **params: Any
) -> RooflineResult:
    ranks = math.prod(_sizes(ctx, axis_name).values())
    return _around(ctx, axis_name, RooflineShape.total_bytes(ctx.avals_in) / ranks)


def _sum(ctx: RooflineRuleContext, *args: RooflineShape, axes: Sequence[Any], **params: Any) -> RooflineResult:
    """A reduce-scatter, then an all-gather."""
    return _reduce_scatter(ctx, axis_name=axes) * 2


def _extremum(ctx: RooflineRuleContext, *args: RooflineShape, axes: Sequence[Any], **params: Any) -> RooflineResult:
    """As JAX counts it: of one element."""
    one = [ShapedArray((1,), aval.dtype) for aval in ctx.avals_in]
    return _around(ctx, axes, RooflineShape.total_bytes(one))


def _all_to_all(
    ctx: RooflineRuleContext, *args: RooflineShape, axis_name: Sequence[Any], **params: Any
) -> RooflineResult:
    """On average half of the data crosses the middle of the torus."""
    sizes = _sizes(ctx, axis_name)
    ranks = math.prod(sizes.values())
    if ranks <= 1:
        return _alike(list(sizes), 0, 0)
    least = min(sizes.values())
    links = least ** (len(sizes) - 1) * (2 if least > 2 else 1)  # a ring of two has one link
    nbytes = RooflineShape.total_bytes(ctx.avals_in) * ranks / 2 / links
    return _alike(list(sizes), nbytes, sum(size / 2 for size in sizes.values()))


def _permute(
    ctx: RooflineRuleContext, *args: RooflineShape, axis_name: Sequence[Any], perm: Sequence[tuple[int, int]],
    **params: Any,
) -> RooflineResult:  # fmt: skip
    """Each shard takes the shorter way along each axis; the busiest link counts."""
    sizes = _sizes(ctx, axis_name)
    if math.prod(sizes.values()) <= 1:
        return _alike(list(sizes), 0, 0)
    links: Counter[frozenset] = Counter()
    longest = 0
    for source, target in perm:
        here, there = (tuple(map(int, np.unravel_index(d, tuple(sizes.values())))) for d in (source, target))
        hops = 0
        for i, size in enumerate(sizes.values()):
            forward = (there[i] - here[i]) % size
            step, way = (1, forward) if forward <= size - forward else (-1, size - forward)
            stops = [(*here[:i], (here[i] + step * k) % size, *here[i + 1 :]) for k in range(way + 1)]
            links.update(frozenset(pair) for pair in zip(stops, stops[1:], strict=False))
            hops += way
        longest = max(longest, hops)
    shard = RooflineShape.total_bytes(ctx.avals_in)
    return _alike(list(sizes), shard * max(links.values(), default=0), longest)


RULES: dict[str, Callable[..., RooflineResult]] = {
    "all_gather": _gather,
    "reduce_scatter": _reduce_scatter,
    "psum": _sum,
    "psum_invariant": _sum,
    "pmin": _extremum,
    "pmax": _extremum,
    "all_to_all": _all_to_all,
    "ppermute": _permute,
}
