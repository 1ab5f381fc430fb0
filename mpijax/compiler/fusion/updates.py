"""Operations that write parts of an array: concatenate, pad, dynamic_update_slice, scatter.

Each becomes a `Begin` (the array starts as a copy of an operand, elided where that operand dies) and one kernel per
part written. Parts are expressions of their sources, so what feeds them is computed in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.compiler.fusion.expr import Expr
from mpijax.compiler.fusion.kernel import Begin, Cumulate, Kernel, Member, Reduce, Store, checked
from mpijax.compiler.fusion.reader import NodeReader, Reader, is_key
from mpijax.compiler.graph.nodes import Node, is_narrow
from mpijax.core.index import Lin, LoopVar, linearized, var
from mpijax.core.index_maps import clamped
from mpijax.core.lowering import Cumulative, Writes

FLOAT32 = np.dtype(np.float32)
INT64, UINT64 = np.dtype(np.int64), np.dtype(np.uint64)


def lower(node: Node, roots) -> list[Begin | Kernel]:
    """The steps of one update."""
    stored = _stored_by(roots)
    if isinstance(node.primitive.lower, Cumulative):
        return _cumulative(node, stored)
    return _WRITERS[node.primitive.lower.writes](node, stored)


def _stored_by(roots):
    return lambda v: id(v) in roots.ids


def _cumulative(node: Node, stored) -> list[Begin | Kernel]:
    """The kernel of a running combination; floats of fewer than 32 bits are accumulated in float32."""
    out, [operand] = node.outputs[0], node.inputs
    axis, op = node.params["axis"], node.primitive.lower.op
    if out.size == 0:
        return [Begin(None, out)]
    reader = Reader(stored)
    scope = NodeReader(reader, node)
    variables = [LoopVar(d, f"i{a}") for a, d in enumerate(out.shape)]
    index = tuple(var(v) for v in variables)
    element = reader.element(operand, index)
    position = linearized(index, out.shape)
    if out.shape[axis] == 1:
        return [_part_kernel(node, variables, position, element)]
    wide = FLOAT32 if is_narrow(out.element) else out.element
    element = scope.convert(element, wide)
    member = Member(out, "reduce", index, element, 0)
    running = reader.table.make("acc", (), wide, member, out)
    reduced = Reduce(member, op, element, 0, wide)
    store = Store(out, position, scope.convert(running, out.element))
    cumulate = Cumulate(running, node.params["reverse"])
    return [_kernel(node, variables, store, axes=(axis,), reduces=(reduced,), cumulate=cumulate)]


def _part_kernel(node: Node, variables: list[LoopVar], position: Lin, expr: Expr) -> Kernel:
    """The kernel that writes a part of the result."""
    return _kernel(node, variables, Store(node.outputs[0], position, expr))


def _kernel(node: Node, variables: list[LoopVar], store: Store, **fields: Any) -> Kernel:
    name = node.primitive.name.replace("-", "_")
    return checked(Kernel(variables, inner=(store,), source=node.source, name=name, **fields))


def _concatenate(node: Node, stored) -> list[Begin | Kernel]:
    out = node.outputs[0]
    axis = node.params["dimension"]
    steps: list[Begin | Kernel] = [Begin(None, out)]
    at = 0
    for v in node.inputs:
        if v.size:
            reader = Reader(stored)
            variables = [LoopVar(d) for d in v.shape]
            index = tuple(var(x) for x in variables)
            target = tuple(i + at if a == axis else i for a, i in enumerate(index))
            steps.append(
                _part_kernel(node, variables, linearized(target, out.shape), reader.element(v, index))
            )
        at += v.shape[axis]
    return steps


def _pad(node: Node, stored) -> list[Begin | Kernel]:
    """The borders are filled slab by slab, the operand is written into its place."""
    operand, filler = node.inputs
    out = node.outputs[0]
    config = list(node.params["padding_config"])
    steps: list[Begin | Kernel] = [Begin(None, out)]
    n = len(config)
    words = out.shape[n:]
    spread = [(d - 1) * (i + 1) + 1 if d else 0 for d, (_, _, i) in zip(operand.shape, config, strict=False)]
    # The part of the result along each axis that the (dilated) operand covers.
    low = [max(lo, 0) for lo, _, _ in config]
    high = [min(lo + s, out.shape[a]) for a, ((lo, _, _), s) in enumerate(zip(config, spread, strict=True))]
    high = [max(h, lo) for h, lo in zip(high, low, strict=True)]
    dilated = any(i for _, _, i in config)
    covered = 0 not in operand.shape and all(h > lo for lo, h in zip(low, high, strict=True))
    if dilated or not covered:
        slabs = [tuple((0, d) for d in out.shape[:n])]
    else:
        slabs = []
        for a in range(n):
            before = [(low[b], high[b]) for b in range(a)]
            after = [(0, out.shape[b]) for b in range(a + 1, n)]
            slabs += [(*before, (0, low[a]), *after), (*before, (high[a], out.shape[a]), *after)]
    for slab in slabs:
        if any(e <= b for b, e in slab):
            continue
        reader = Reader(stored)
        variables = [LoopVar(e - b) for b, e in slab] + [LoopVar(d) for d in words]
        starts = [b for b, _ in slab] + [0] * len(words)
        index = tuple(var(v) + b for v, b in zip(variables, starts, strict=True))
        value = reader.element(filler, tuple(var(v) for v in variables[n:]) if is_key(out) else ())
        steps.append(_part_kernel(node, variables, linearized(index, out.shape), value))
    if covered:
        interior = _pad_interior(node, stored, config)
        if interior is not None:
            steps.append(interior)
    return steps


def _pad_interior(node: Node, stored, config) -> Kernel | None:
    operand, out = node.inputs[0], node.outputs[0]
    ranges = []
    for a, (lo, _, inner) in enumerate(config):
        step = inner + 1
        first = max(0, -(lo // step)) if lo < 0 else 0
        while first * step + lo < 0:
            first += 1
        last = operand.shape[a] - 1
        while last >= 0 and last * step + lo >= out.shape[a]:
            last -= 1
        if last < first:
            return None
        ranges.append((first, last - first + 1, step, lo))
    reader = Reader(stored)
    variables = [LoopVar(n) for _, n, _, _ in ranges] + [LoopVar(d) for d in out.shape[len(config) :]]
    words = tuple(var(v) for v in variables[len(config) :])
    source = tuple(var(v) + r[0] for v, r in zip(variables, ranges, strict=False)) + words
    target = tuple((var(v) + r[0]) * r[2] + r[3] for v, r in zip(variables, ranges, strict=False)) + words
    return _part_kernel(node, variables, linearized(target, out.shape), reader.element(operand, source))


def _static_update(node: Node, stored) -> list[Begin | Kernel]:
    operand, window = node.inputs
    out = node.outputs[0]
    reader = Reader(stored)
    scope = NodeReader(reader, node)
    variables = [LoopVar(d) for d in window.shape]
    index = tuple(var(v) for v in variables)
    start = (*node.params["start"], *(0,) * (len(out.shape) - len(node.params["start"])))
    position = linearized(tuple(i + s for i, s in zip(index, start, strict=True)), out.shape)
    value = reader.element(window, index)
    if node.params["combine"] is not None:
        value = scope.op(node.params["combine"], reader.table.load(out, position), value)
    return [Begin(operand, out), _part_kernel(node, variables, position, value)]


def _dynamic_update_slice(node: Node, stored) -> list[Begin | Kernel]:
    operand, update, *starts = node.inputs
    out = node.outputs[0]
    steps: list[Begin | Kernel] = [Begin(operand, out)]
    if update.size == 0:
        return steps
    reader = Reader(stored)
    scope = NodeReader(reader, node)
    variables = [LoopVar(d) for d in update.shape]
    index = tuple(var(v) for v in variables)
    target = list(index)
    for a, start in enumerate(starts):
        room = out.shape[a] - update.shape[a]
        if room:
            first = clamped(scope, reader.element(start, ()), 0, room)
            target[a] = index[a] + scope.as_index(first, room + 1)
    steps.append(
        _part_kernel(node, variables, linearized(tuple(target), out.shape), reader.element(update, index))
    )
    return steps


def _scatter(node: Node, stored) -> list[Begin | Kernel]:
    operand, indices, updates = node.inputs
    out = node.outputs[0]
    steps: list[Begin | Kernel] = [Begin(operand, out)]
    if updates.size == 0 or out.size == 0:
        return steps
    dn = node.params["dimension_numbers"]
    mode = node.params["mode"].name
    reader = Reader(stored)
    scope = NodeReader(reader, node)
    variables = [LoopVar(d) for d in updates.shape]
    index = tuple(var(v) for v in variables)
    words = index[len(updates.aval.shape) :]
    logical = index[: len(updates.aval.shape)]
    window = set(dn.update_window_dims)
    batch = tuple(i for d, i in enumerate(logical) if d not in window)
    removed = set(dn.inserted_window_dims) | set(dn.operand_batching_dims)
    window_dims = [d for d in range(len(operand.aval.shape)) if d not in removed]
    target: list[Lin] = [Lin(0)] * len(operand.aval.shape)
    sizes = [1] * len(operand.aval.shape)
    for d, u in zip(window_dims, dn.update_window_dims, strict=True):
        target[d] = logical[u]
        sizes[d] = updates.shape[u]
    for op_dim, idx_dim in zip(dn.operand_batching_dims, dn.scatter_indices_batching_dims, strict=True):
        target[op_dim] = batch[idx_dim]
    guard = None
    for k, d in enumerate(dn.scatter_dims_to_operand_dims):
        room = max(operand.shape[d] - sizes[d], 0)
        raw = reader.element(indices, (*batch, Lin(k)))
        if mode != "CLIP":
            # Also where they are promised to be in bounds: JAX drops the others, and clamping costs as much.
            wide = scope.convert(raw, INT64)
            # Without a sign, negative ones are beyond the end.
            inside = scope.op("le", scope.convert(wide, UINT64), scope.const(room, UINT64))
            guard = inside if guard is None else scope.op("and", guard, inside)
            # Nothing is written where the guard fails, so the index needs no clamping.
            start = wide
        else:
            start = clamped(scope, raw, 0, room)
        target[d] = target[d] + scope.as_index(start, room + 1)
    if guard is not None and guard.op == "const":
        guard = None
    position = linearized((*target, *words), out.shape)
    element = reader.element(updates, index)
    store = Store(out, position, element, combine=node.primitive.lower.combine, guard=guard)
    return [*steps, _kernel(node, variables, store, ordered=True)]


_WRITERS = {
    Writes.CONCATENATE: _concatenate,
    Writes.PAD: _pad,
    Writes.WINDOW: _static_update,
    Writes.DYNAMIC_UPDATE_SLICE: _dynamic_update_slice,
    Writes.SCATTER: _scatter,
}
