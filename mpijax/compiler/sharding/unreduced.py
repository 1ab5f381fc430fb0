"""Delays sums over ranks: each rank keeps its partial result while that sends fewer bytes.

A product over a split axis, or a sum along one, leaves a partial result on each rank; a reduction over ranks completes
it. If only one operation reads the result (transposes aside), the reduction may follow that operation:
- after a sum along other axes the message is smaller;
- after an addition of two partial results one message replaces two;
- if another operand, or a constraint, needs only this rank's part, a reduce-scatter sends half as much.

The last also applies if the result has an axis of an operand that was split over the same mesh axes before it was
gathered. For example, the gradient of attention keys is split as the keys are.
"""

from __future__ import annotations

from typing import Any

from mpijax.compiler.sharding.blocks import Blocks
from mpijax.compiler.sharding.messages import combined, communicate_here
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import Eqn, Jaxpr, Literal
from mpijax.core.rules.lowering import Combiner, Elementwise, OverRanks, Reduction, Reshard, ReshardKind, Structural
from mpijax.core.sharding.cuts import count, even_cut, uncut
from mpijax.ops.collectives.gather_scatter import reduce_scatter_p


@dataclass(frozen=True)
class Unreduced:
    """Marks a value as partial: its sum over the mesh axes `over` is the result."""

    mesh: Any
    over: tuple[Any, ...]


@memo_on_jaxpr
def readers(jaxpr: Jaxpr) -> dict[Any, Any]:
    """For each variable read once, the equation that reads it; None for results and for variables read more often."""
    found: dict[Any, Any] = {}
    reads = [(v, eqn) for eqn in jaxpr.eqns for v in eqn.invars] + [(v, None) for v in jaxpr.outvars]
    for v, reader in reads:
        if type(v) is not Literal:
            found[v] = None if v in found else reader
    return found


def _reader(jaxpr: Jaxpr, v: Any) -> Any:
    """The only equation that reads a variable, looking through transposes and reshapes; else None."""
    found = readers(jaxpr).get(v)
    while found is not None and _moves(found):
        found = readers(jaxpr).get(found.outvars[0])
    return found


def may_wait(p: Partitioner, eqn: Eqn, mesh) -> bool:
    """Whether the sum over ranks that completes an operation can wait until after the operation that reads the result.

    If operands are pending sums, the result waits with them.
    """
    if p.waiting is not None:
        return True
    frame = p.graph.frame
    if frame is None or frame.at is not eqn or mesh.is_explicit:
        return False
    reader = _reader(frame.jaxpr, eqn.outvars[0])
    if reader is None:
        return False
    lower = reader.primitive.lower
    if isinstance(lower, Elementwise):
        return sum(v.aval.shape == reader.outvars[0].aval.shape for v in reader.invars) > 1
    return _is_sum(reader) or (isinstance(lower, Reshard) and lower.kind is ReshardKind.CONSTRAINT)


def _is_sum(eqn) -> bool:
    return isinstance(eqn.primitive.lower, Reduction) and eqn.primitive.lower.op is Combiner.ADD


def _moves(eqn) -> bool:
    """Whether an operation only reorders the elements of its operand."""
    if not isinstance(eqn.primitive.lower, Structural) or not len(eqn.invars) == len(eqn.outvars) == 1:
        return False
    return eqn.invars[0].aval.size == eqn.outvars[0].aval.size


def _adds(eqn) -> bool:
    return isinstance(eqn.primitive.lower, Elementwise) and eqn.primitive.lower.additive


def wait(p: Partitioner, v, mesh, over: tuple[Any, ...]) -> Unreduced:
    """Mark `v` as a partial result."""
    found = p.known.unreduced[v] = Unreduced(mesh, over)
    return found


def go_on(p: Partitioner, eqn, out, operands: Unreduced, source) -> Any:
    """The result of an operation on partial results: summed now over their mesh axes and its own, or left pending."""
    own = p.known.unreduced.get(out)
    over = operands.over if own is None else tuple(dict.fromkeys((*operands.over, *own.over)))
    waiting = wait(p, out, operands.mesh, over)
    return out if may_wait(p, eqn, operands.mesh) else finished(p, out, waiting, None, source)


def ready(p: Partitioner, eqn, inputs: list[Any], source) -> tuple[list[Any], Unreduced | None]:
    """Operands that the operation can read, and the pending sum of its result, if any."""
    waiting = [p.known.unreduced.get(v) for v in inputs]
    first = next((w for w in waiting if w is not None), None)
    if first is None:
        return inputs, None
    if _is_sum(eqn) or _moves(eqn):
        return inputs, first
    if _adds(eqn) and all(w is not None and (w.mesh, w.over) == (first.mesh, first.over) for w in waiting):
        if len({p.blocks_of(v) for v in inputs}) == 1:
            return inputs, first
    wanted = _wanted(p, eqn, inputs, waiting)
    return [
        v if w is None else finished(p, v, w, want, source)
        for v, w, want in zip(inputs, waiting, wanted, strict=True)
    ], None


def _wanted(p: Partitioner, eqn, inputs, waiting) -> list[Any]:
    """For each operand, the array axis along which the operation needs only this rank's part; else None."""
    lower = eqn.primitive.lower
    if isinstance(lower, Reshard):
        sharding = eqn.params[lower.param]
        held = () if not hasattr(sharding, "mesh") else sharding.spec.split(eqn.invars[0].aval.ndim)
        return [_along(held, w) for w in waiting]
    others = [b for v, w in zip(inputs, waiting, strict=True) if w is None and (b := p.blocks_of(v))]
    found: list[Any] = []
    for w in waiting:
        dims = [] if w is None else [_along([() if c is None else c.axes for c in b.cuts], w) for b in others]
        found.append(next((d for d in dims if d is not None), None))
    return found


def _along(split, w: Unreduced | None) -> int | None:
    """The array axis that is split over exactly the mesh axes of a pending sum."""
    return next((d for d, axes in enumerate(split) if w is not None and axes == w.over), None)


def finished(p: Partitioner, v, w: Unreduced, dim: int | None, source) -> Any:
    """The sum over ranks: whole, or only this rank's part along array axis `dim`. Computed once for each value."""
    if dim is None and not w.mesh.is_explicit:
        dim = _along([() if c is None else c.axes for c in p.known.lost.get(v, ())], w)
    key = (v, dim)
    if key not in p.summed:
        p.summed[key] = _summed(p, v, w, dim, source)
    return p.summed[key]


def _summed(p: Partitioner, v, w: Unreduced, dim: int | None, source) -> Any:
    blocks = p.blocks_of(v) or Blocks(w.mesh, v.aval.shape, uncut(v.aval.shape))
    parts = count(w.over, w.mesh.processes_along)
    if dim is None or blocks.cuts[dim] is not None or blocks.shape[dim] % parts:
        out = combined(p, v, w.over, OverRanks.SUM, w.mesh, source)
        sharding = p.sharding_held(v) or blocks.sharding
        return p.held_as(out, blocks, sharding, True, source)
    cut = even_cut(blocks.shape[dim], w.over, parts)
    params = {
        "axis_name": w.over, "scatter_dimension": dim, "axis_index_groups": None, "axis_size": parts, "tiled": True
    }  # fmt: skip
    shape = [n // parts if d == dim else n for d, n in enumerate(v.aval.shape)]
    out = communicate_here(p, w.mesh, reduce_scatter_p, params, v, shape, source)
    after = blocks.recut((*blocks.cuts[:dim], cut, *blocks.cuts[dim + 1 :]))
    return p.held_as(out, after, after.sharding, True, source)
