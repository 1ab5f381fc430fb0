"""Sums over ranks that wait: each rank keeps its partial result while that saves bytes.

A product over a split axis, or a sum along one, gives each rank a partial result; one reduction over ranks finishes it.
Where a single operation reads the result, perhaps in another order, the reduction may come after that operation:

- a sum along other axes makes the message smaller;
- a sum of two partial results makes one message of two;
- an operand beside the result, or a constraint, may want this rank's part only: a reduce-scatter sends half as much.

So it is where the result has the axis of an operand that was split over the same mesh axes before it was gathered: the
gradient of keys that all queries read is split as the keys are.
"""

from __future__ import annotations

from typing import Any

from mpijax.compiler.sharding.blocks import Blocks
from mpijax.compiler.sharding.messages import combined, communicate_here
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.core.jaxpr import Eqn, Jaxpr, Literal
from mpijax.core.lazy_dataclass import dataclass
from mpijax.core.lowering import Elementwise, Layout, Reduction, Structural
from mpijax.core.memo import memo_on_jaxpr
from mpijax.core.registry import registry
from mpijax.core.sharding.cuts import count, even_cut, uncut


@dataclass(frozen=True)
class Unreduced:
    """What is said of a value that is partial: its sum over the mesh axes `over` is the result."""

    mesh: Any
    over: tuple[Any, ...]


@memo_on_jaxpr
def readers(jaxpr: Jaxpr) -> dict[Any, Any]:
    """For each variable that is read once, the equation that reads it; None for a result and for others."""
    found: dict[Any, Any] = {}
    reads = [(v, eqn) for eqn in jaxpr.eqns for v in eqn.invars] + [(v, None) for v in jaxpr.outvars]
    for v, reader in reads:
        if type(v) is not Literal:
            found[v] = None if v in found else reader
    return found


def _reader(jaxpr: Jaxpr, v: Any) -> Any:
    """The equation that alone reads a variable, perhaps in another order."""
    found = readers(jaxpr).get(v)
    while found is not None and _moves(found):
        found = readers(jaxpr).get(found.outvars[0])
    return found


def may_wait(p: Partitioner, eqn: Eqn, mesh) -> bool:
    """Whether the sum over ranks that finishes an operation can be left to the operation that reads the result.

    That of an operation on partial results waits for theirs.
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
    return _is_sum(reader) or (isinstance(lower, Layout) and lower.kind == "constraint")


def _is_sum(eqn) -> bool:
    return isinstance(eqn.primitive.lower, Reduction) and eqn.primitive.lower.op == "add"


def _moves(eqn) -> bool:
    """Whether an operation only puts the elements of its operand into another order."""
    if not isinstance(eqn.primitive.lower, Structural) or not len(eqn.invars) == len(eqn.outvars) == 1:
        return False
    return eqn.invars[0].aval.size == eqn.outvars[0].aval.size


def _adds(eqn) -> bool:
    return isinstance(eqn.primitive.lower, Elementwise) and eqn.primitive.lower.additive


def wait(p: Partitioner, v, mesh, over: tuple[Any, ...]) -> Unreduced:
    """Note that `v` is a partial result."""
    found = p.known.unreduced[v] = Unreduced(mesh, over)
    return found


def go_on(p: Partitioner, eqn, out, operands: Unreduced, source) -> Any:
    """The result of an operation on partial results: summed over their mesh axes and its own at once, or later."""
    own = p.known.unreduced.get(out)
    over = operands.over if own is None else tuple(dict.fromkeys((*operands.over, *own.over)))
    waiting = wait(p, out, operands.mesh, over)
    return out if may_wait(p, eqn, operands.mesh) else finished(p, out, waiting, None, source)


def ready(p: Partitioner, eqn, inputs: list[Any], source) -> tuple[list[Any], Unreduced | None]:
    """Operands as the operation can take them; with what is still to be summed of its result."""
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
    """For each operand the array axis along which the operation wants this rank's part only (else None)."""
    lower = eqn.primitive.lower
    if isinstance(lower, Layout):
        layout = eqn.params[lower.param]
        held = () if not hasattr(layout, "mesh") else layout.spec.split(eqn.invars[0].aval.ndim)
        return [_along(held, w) for w in waiting]
    others = [b for v, w in zip(inputs, waiting, strict=True) if w is None and (b := p.blocks_of(v))]
    found: list[Any] = []
    for w in waiting:
        dims = [] if w is None else [_along([() if c is None else c.axes for c in b.cuts], w) for b in others]
        found.append(next((d for d in dims if d is not None), None))
    return found


def _along(split, w: Unreduced | None) -> int | None:
    """The array axis that is split over the mesh axes of a sum, and over no other."""
    return next((d for d, axes in enumerate(split) if w is not None and axes == w.over), None)


def finished(p: Partitioner, v, w: Unreduced, dim: int | None, source) -> Any:
    """The sum over ranks: all of it, or along array axis `dim` this rank's part. Once for each value."""
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
        out = combined(p, v, w.over, "sum", w.mesh, source)
        layout = p.layout_held(v) or blocks.sharding
        return p.held_as(out, blocks, layout, True, source)
    cut = even_cut(blocks.shape[dim], w.over, parts)
    params = {
        "axis_name": w.over, "scatter_dimension": dim, "axis_index_groups": None, "axis_size": parts, "tiled": True
    }  # fmt: skip
    shape = [n // parts if d == dim else n for d, n in enumerate(v.aval.shape)]
    out = communicate_here(p, w.mesh, registry["reduce_scatter"], params, v, shape, source)
    after = blocks.recut((*blocks.cuts[:dim], cut, *blocks.cuts[dim + 1 :]))
    return p.held_as(out, after, after.sharding, True, source)
