"""Lowers operations that write parts of an array: concatenate, pad, dynamic_update_slice, scatter.

Each becomes a `Begin` (the array starts as a copy of an operand; no copy if that operand dies here) and one kernel per
part written. Parts are expressions of their sources, so producers are fused into the write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.compiler.fusion.expr import Expr, KnownNumber
from mpijax.compiler.fusion.kernel import Begin, Cumulate, Kernel, KernelStore, Member, MemberKind, Reduce, checked
from mpijax.compiler.fusion.reader import ElementReader, NodeReader, is_extended
from mpijax.compiler.graph.nodes import Node, Value, is_narrow
from mpijax.core.rules.index_maps import clamped
from mpijax.core.rules.lowering import Cumulative, Writes
from mpijax.core.shapes.index import Lin, LoopVar, linearized, var

FLOAT32 = np.dtype(np.float32)
INT64, UINT64 = np.dtype(np.int64), np.dtype(np.uint64)


def lower(node: Node, roots) -> list[Begin | Kernel]:
    """The steps of one update."""

    def stored(v: Value) -> bool:
        return id(v) in roots.ids

    if isinstance(node.primitive.lower, Cumulative):
        return _cumulative(node, stored)
    return _WRITERS[node.primitive.lower.writes](node, stored)


class _WrittenPart:
    """A part of an operation's result that one kernel writes: its loops, and expressions of elements."""

    def __init__(self, node: Node, stored: Callable[[Value], bool], sizes: Iterable[int]):
        self.node, self.out = node, node.outputs[0]
        self.reader = ElementReader(stored)
        self.scope = NodeReader(self.reader, node)
        self.variables = [LoopVar(d, f"i{a}") for a, d in enumerate(sizes)]
        self.index = tuple(map(var, self.variables))

    def element(self, value: Value, index: tuple[Lin, ...] | None = None) -> Expr:
        """The element of a value at an index; by default at the loop variables."""
        return self.reader.element(value, self.index if index is None else index)

    def step(self, target: Iterable[Lin], expr: Expr, combine=None, guard=None, **fields: Any) -> Kernel:
        """The kernel that writes an expression to the element at `target`."""
        store = KernelStore(self.out, linearized(tuple(target), self.out.shape), expr, combine=combine, guard=guard)
        name = self.node.primitive.name.replace("-", "_")
        return checked(
            Kernel(self.variables, inner=(store,), source=self.node.source, name=name, **fields)
        )


def _cumulative(node: Node, stored) -> list[Begin | Kernel]:
    """The kernel of a cumulative operation; floats of fewer than 32 bits are accumulated in float32."""
    out, [operand] = node.outputs[0], node.inputs
    axis, op = node.params["axis"], node.primitive.lower.op
    if out.size == 0:
        return [Begin(None, out)]
    part = _WrittenPart(node, stored, out.shape)
    element = part.element(operand)
    if out.shape[axis] == 1:
        return [part.step(part.index, element)]
    wide = FLOAT32 if is_narrow(out.element) else out.element
    element = part.scope.convert(element, wide)
    member = Member(out, MemberKind.REDUCE, part.index, element, 0)
    running = part.reader.table.reduced(member, wide)
    reduces, cumulate = (Reduce(member, op, element, 0, wide),), Cumulate(running, node.params["reverse"])
    result = part.scope.convert(running, out.element)
    return [part.step(part.index, result, axes=(axis,), reduces=reduces, cumulate=cumulate)]


def _concatenate(node: Node, stored) -> list[Begin | Kernel]:
    axis, at = node.params["dimension"], 0
    steps: list[Begin | Kernel] = [Begin(None, node.outputs[0])]
    for v in node.inputs:
        if v.size:
            part = _WrittenPart(node, stored, v.shape)
            target = [i + at if a == axis else i for a, i in enumerate(part.index)]
            steps.append(part.step(target, part.element(v)))
        at += v.shape[axis]
    return steps


def _pad(node: Node, stored) -> list[Begin | Kernel]:
    """Fills the borders slab by slab and writes the operand into its place."""
    operand, filler = node.inputs
    out, config = node.outputs[0], node.params["padding_config"]
    n = len(config)
    spread = [(d - 1) * (i + 1) + 1 if d else 0 for d, (_, _, i) in zip(operand.shape, config, strict=False)]
    # The range of the result along each axis that the (dilated) operand covers.
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
    steps: list[Begin | Kernel] = [Begin(None, out)]
    for slab in slabs:
        if all(b < e for b, e in slab):
            part = _WrittenPart(node, stored, [*(e - b for b, e in slab), *out.shape[n:]])
            value = part.element(filler, part.index[n:] if is_extended(out) else ())
            inside = [i + b for i, (b, _) in zip(part.index, slab, strict=False)]
            steps.append(part.step([*inside, *part.index[n:]], value))
    return steps + _pad_interior(node, stored, config) if covered else steps


def _pad_interior(node: Node, stored, config) -> list[Begin | Kernel]:
    """Writes the operand into its place, without elements that negative padding cuts off."""
    operand, out = node.inputs[0], node.outputs[0]
    ranges = []
    for size, room, (lo, _, inner) in zip(operand.shape, out.shape, config, strict=False):
        step = inner + 1
        first, last = max(0, -(lo // step)), min(size - 1, (room - 1 - lo) // step)
        if last < first:
            return []
        ranges.append((first, last - first + 1, step, lo))
    part = _WrittenPart(node, stored, [*(n for _, n, _, _ in ranges), *out.shape[len(config) :]])
    words, inside = part.index[len(config) :], list(zip(part.index, ranges, strict=False))
    source = (*(i + first for i, (first, _, _, _) in inside), *words)
    target = (*((i + first) * step + lo for i, (first, _, step, lo) in inside), *words)
    return [part.step(target, part.element(operand, source))]


def _static_update(node: Node, stored) -> list[Begin | Kernel]:
    operand, window = node.inputs
    part = _WrittenPart(node, stored, window.shape)
    start = (*node.params["start"], *(0,) * (len(window.shape) - len(node.params["start"])))
    target = tuple(i + s for i, s in zip(part.index, start, strict=True))
    value = part.element(window)
    if node.params["combine"] is not None:
        old = part.reader.table.load(part.out, linearized(target, part.out.shape))
        value = part.scope.op(node.params["combine"], old, value)
    return [Begin(operand, part.out), part.step(target, value)]


def _dynamic_update_slice(node: Node, stored) -> list[Begin | Kernel]:
    operand, update, *starts = node.inputs
    part = _WrittenPart(node, stored, update.shape)
    begin = Begin(operand, part.out)
    if update.size == 0:
        return [begin]
    target = list(part.index)
    for a, start in enumerate(starts):
        room = part.out.shape[a] - update.shape[a]
        if room:
            first = clamped(part.scope, part.element(start, ()), 0, room)
            target[a] = target[a] + part.scope.as_index(first, room + 1)
    return [begin, part.step(target, part.element(update))]


def _scatter(node: Node, stored) -> list[Begin | Kernel]:
    operand, indices, updates = node.inputs
    part = _WrittenPart(node, stored, updates.shape)
    begin = Begin(operand, part.out)
    if updates.size == 0 or part.out.size == 0:
        return [begin]
    dn, ndim = node.params["dimension_numbers"], len(operand.aval.shape)
    logical, words = part.index[: len(updates.aval.shape)], part.index[len(updates.aval.shape) :]
    batch = tuple(i for d, i in enumerate(logical) if d not in dn.update_window_dims)
    window_dims = [d for d in range(ndim) if d not in (*dn.inserted_window_dims, *dn.operand_batching_dims)]
    target, sizes = [Lin(0)] * ndim, [1] * ndim
    for d, u in zip(window_dims, dn.update_window_dims, strict=True):
        target[d], sizes[d] = logical[u], updates.shape[u]
    for op_dim, idx_dim in zip(dn.operand_batching_dims, dn.scatter_indices_batching_dims, strict=True):
        target[op_dim] = batch[idx_dim]
    guard = None
    for k, d in enumerate(dn.scatter_dims_to_operand_dims):
        room = max(operand.shape[d] - sizes[d], 0)
        raw = part.element(indices, (*batch, Lin(k)))
        if node.params["mode"].name == "CLIP":
            start = clamped(part.scope, raw, 0, room)
        else:
            # Also for indices promised to be in bounds: JAX drops invalid ones, and clamping would cost as much.
            # Nothing is written where the guard fails, so the index needs no clamping.
            start = part.scope.convert(raw, INT64)
            # As unsigned integers, negative indices are beyond the end too.
            unsigned = part.scope.convert(start, UINT64)
            inside = part.scope.op(lax.le_p, unsigned, part.scope.const(room, UINT64))
            guard = inside if guard is None else part.scope.op(lax.and_p, guard, inside)
        target[d] = target[d] + part.scope.as_index(start, room + 1)
    if isinstance(guard, KnownNumber):
        guard = None
    element, combine = part.element(updates), node.primitive.lower.combine
    return [begin, part.step((*target, *words), element, combine, guard, ordered=True)]


_WRITERS = {
    Writes.CONCATENATE: _concatenate,
    Writes.PAD: _pad,
    Writes.WINDOW: _static_update,
    Writes.DYNAMIC_UPDATE_SLICE: _dynamic_update_slice,
    Writes.SCATTER: _scatter,
}
