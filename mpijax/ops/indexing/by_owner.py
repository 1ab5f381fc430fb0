"""Sharding rules of gathers and scatters along split axes: each rank handles the indices of the elements it owns.

Each rank reads or writes the positions inside its part. One allreduce combines the contributions of several ranks: to
the result of a gather, and to the sums of a scatter with split updates. If the indices of a gather are split like the
array, so is the result: a reduce-scatter then sends half as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules import shape_rules
from mpijax.core.rules.sharding_rules import Operation, Plan, Rule, share
from mpijax.core.sharding.cuts import Cut, Cuts, uncut
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.gather_scatter import psum_scatter
from mpijax.ops.collectives.reductions import pmax, pmin, psum
from mpijax.ops.elementwise.binary import add, max, min, sub
from mpijax.ops.elementwise.bitwise import bitwise_and
from mpijax.ops.elementwise.compare import ge, lt
from mpijax.ops.elementwise.select import select
from mpijax.ops.indexing.one_owner import bits, of_bits
from mpijax.ops.indexing.slicing import concatenate, slice_in_dim
from mpijax.ops.reductions.standard import extreme
from mpijax.ops.rules import full_like
from mpijax.ops.shapes.reshape import broadcast_in_dim

# How ranks combine their scattered contributions: the collective, and the operation that adds them to the operand.
_COMBINE: dict[str, tuple[Callable, Callable]] = {
    "add": (psum, add),
    "sub": (psum, add),
    "min": (pmin, min),
    "max": (pmax, max),
}


def _plain(s: Operation) -> Plan:
    plan = shape_rules.gather(s)
    assert plan is not None
    return plan


def gather(primitive_of: Callable[[], Any], on_request: Rule) -> Rule:
    """The plans of `gather`: by owner along an axis that indices address, if that sends less than the array.

    on_request: the rule by which ranks request rows, for split positions or about as many rows as the array has.
    """

    def rule(s: Operation) -> Plan | None:
        if not s.numeric:
            return None
        plain, asked = _plain(s), s.cuts[1]
        requested = on_request(s)
        if requested is not None and any(asked):
            return requested
        dim = _indexed(s, plain)
        if dim is None and any(c is not None for c in s.cuts[1]):
            # Send split indices to all ranks if the rows then need not be sent.
            known = replace(s, cuts=[s.cuts[0], uncut(s.shapes[1])])
            of_known = _plain(known)
            dim = _indexed(known, of_known)
            s, plain = (s, plain) if dim is None else (known, of_known)
        if dim is None:
            return requested or plain
        cut = s.cuts[0][dim]
        assert cut is not None
        operand = (*plain.operands[0][:dim], cut, *plain.operands[0][dim + 1 :])
        split = _split_alike(s, asked, cut)
        program = _gather_program(primitive_of(), s, plain, dim, cut, split)
        [result] = plain.results
        if split is not None:
            _, at = split
            result = (*result[:at], s.even(s.results[0][at], cut.axes), *result[at + 1 :])
        return Plan([operand, plain.operands[1]], [result], s.params, program=program)

    return rule


def _indexed(s: Operation, plain: Plan) -> int | None:
    """The split operand axis that indices address with single positions, if reading by owner is cheaper."""
    numbers, sizes = s.params["dimension_numbers"], s.params["slice_sizes"]
    used = {a for cuts in (*plain.operands, *plain.results) for c in cuts if c is not None for a in c.axes}
    for dim in numbers.start_index_map:
        cut = s.cuts[0][dim]
        if cut is None or sizes[dim] != 1 or dim not in numbers.collapsed_slice_dims or used & set(cut.axes):
            continue
        if 2 * share(s, s.results[0], plain.results[0]) <= math.prod(s.shapes[0]):
            return dim
    return None


def _split_alike(s: Operation, indices: Cuts, cut: Cut) -> tuple[int, int] | None:
    """The axis of the indices that is split over the mesh axes of `cut`, and the result axis that it becomes."""
    offsets = s.params["dimension_numbers"].offset_dims
    batch = [d for d in range(len(s.results[0])) if d not in offsets]
    split = enumerate(zip(batch, indices, strict=False))
    pairs = ((k, d) for k, (d, c) in split if c is not None and c.axes == cut.axes)
    return next(((k, d) for k, d in pairs if s.results[0][d] % cut.parts == 0), None)


def _gather_program(
    primitive: Any, s: Operation, plain: Plan, dim: int, cut: Cut, split: tuple[int, int] | None
) -> Callable:
    low, high = s.span(cut)
    size, column = s.shapes[0][dim], list(s.params["dimension_numbers"].start_index_map).index(dim)
    drops = s.params["mode"].name == "FILL_OR_DROP"
    offsets = s.params["dimension_numbers"].offset_dims

    def program(x: Any, indices: Any) -> Any:
        at = _column(indices, column)
        wanted = at if drops else min(max(at, full_like(at, 0)), full_like(at, size - 1))
        mine = is_inside(wanted, low, high)
        local = _with_column(indices, column, sub(wanted, full_like(wanted, low)))
        params = {**s.params, "slice_sizes": _local_sizes(s, plain, dim)}
        got = primitive.bind(x, local, **params) if high > low else None
        shape = s.local(s.results[0], plain.results[0])
        zero = broadcast_in_dim(np.zeros((), x.dtype), shape, ())
        found = zero if got is None else select(_over_windows(mine, shape, offsets), got, zero)
        found = bits(found)
        if split is None:
            total = psum(found, cut.axes)
        else:
            axis, at_result = split
            total = psum_scatter(found, cut.axes, scatter_dimension=at_result, tiled=True)
            shape = (*shape[:at_result], typeof(total).shape[at_result], *shape[at_result + 1 :])
            block = s.span(s.even(s.shapes[1][axis], cut.axes))
            at = slice_in_dim(at, *block, axis=axis)
        total = of_bits(total, x.dtype)
        if not drops:
            return total
        given = s.params["fill_value"]
        outside = np.asarray(dtypes.out_of_bounds(x.dtype) if given is None else given, x.dtype)
        fill = broadcast_in_dim(outside, shape, ())
        return select(_over_windows(is_inside(at, 0, size), shape, offsets), total, fill)

    return program


def _local_sizes(s: Operation, plain: Plan, dim: int) -> tuple[int, ...]:
    return tuple(1 if d == dim else n for d, n in enumerate(plain.params["slice_sizes"]))


def _column(indices: Any, column: int) -> Any:
    """The indices along one axis of the operand, with the last axis removed."""
    part = slice_in_dim(indices, column, column + 1, axis=indices.ndim - 1)
    return part.reshape(part.shape[:-1])


def _with_column(indices: Any, column: int, values: Any) -> Any:
    """Indices with the values along one operand axis replaced."""
    last = indices.ndim - 1
    parts = [slice_in_dim(indices, 0, column, axis=last), values.reshape((*values.shape, 1))]
    parts.append(slice_in_dim(indices, column + 1, indices.shape[last], axis=last))
    return concatenate([p for p in parts if p.shape[last]], last)


def is_inside(at: Any, low: int, high: int) -> Any:
    """Whether positions are in `[low, high)`."""
    return bitwise_and(ge(at, full_like(at, low)), lt(at, full_like(at, high)))


def _over_windows(flags: Any, shape: Sequence[int], offsets: Sequence[int]) -> Any:
    """Flags, one for each index, broadcast to the elements of the result."""
    return broadcast_in_dim(flags, tuple(shape), tuple(d for d in range(len(shape)) if d not in offsets))


# ---------------------------------------------------------------- scatter


def scatter(primitive_of: Callable[[], Any], op: str | None, to_owner: Callable[..., Plan | None]) -> Rule:
    """The plans of a scatter that combines with `op` (None: overwrites).

    to_owner: the plan by which ranks send rows to their owners, for split rows and unique positions.
    """

    def rule(s: Operation) -> Plan | None:
        sent = to_owner(s, primitive_of)
        if sent is not None:
            return sent
        return _partial_sums(s, op, primitive_of) or _at_owner(s, primitive_of)

    return rule


def windows_kept(s: Operation, taken: Sequence[Any]) -> tuple[Cuts, Cuts]:
    """The cuts of operand and updates along the axes that windows cover, over mesh axes other than `taken`."""
    free = [tuple(None if c is None or set(taken) & set(c.axes) else c for c in cuts) for cuts in s.cuts]
    plain = shape_rules.scatter(replace(s, cuts=free))
    assert plain is not None
    operand, _, updates = plain.operands
    return operand, updates


def _at_owner(s: Operation, primitive_of: Callable[[], Any]) -> Plan | None:
    """For an operand split along an axis that indices address: each rank writes the positions in its part."""
    n, (shape, *_), (operand, *_) = s.params["dimension_numbers"], s.shapes, s.cuts
    found = [d for d in n.scatter_dims_to_operand_dims if operand[d] is not None and d in n.inserted_window_dims]
    if len(found) != 1 or n.operand_batching_dims:
        return None
    [dim] = found
    cut, column = operand[dim], list(n.scatter_dims_to_operand_dims).index(dim)
    assert cut is not None
    windows, of_updates = windows_kept(s, cut.axes)
    kept = (*windows[:dim], cut, *windows[dim + 1 :])
    (low, high), clips = s.span(cut), s.params["mode"].name == "CLIP"

    def program(x: Any, indices: Any, updates: Any) -> Any:
        if high == low:
            return x
        at = _column(indices, column)
        at = min(max(at, full_like(at, 0)), full_like(at, shape[dim] - 1)) if clips else at
        # Positions outside this rank's part become out of bounds, and are dropped.
        mine = is_inside(at, low, high)
        local = select(mine, sub(at, full_like(at, low)), full_like(at, high - low))
        params = {**s.params, "mode": type(s.params["mode"]).FILL_OR_DROP}
        return primitive_of().bind(x, _with_column(indices, column, local), updates, **params)

    return Plan([kept, uncut(s.shapes[1]), of_updates], [kept], s.params, program=program)


def _partial_sums(s: Operation, op: str | None, primitive_of: Callable[[], Any]) -> Plan | None:
    """For split updates: each rank combines its own updates, and the operand receives the total."""
    n, (operand, indices, updates) = s.params["dimension_numbers"], s.cuts
    if op not in _COMBINE or n.operand_batching_dims:
        return None
    batch = [d for d in range(len(s.shapes[2])) if d not in n.update_window_dims]
    cuts = [_free(indices[k], updates[d]) for k, d in enumerate(batch)]
    split = [c for c in cuts if c is not None]
    if len(split) != 1:
        return None
    windows, new_windows = windows_kept(s, split[0].axes)
    if any(c is not None and kept is None for c, kept in zip(operand, windows, strict=True)):
        return None
    of_updates = list(new_windows)
    for d, c in zip(batch, cuts, strict=True):
        of_updates[d] = c
    collective, take_in = _COMBINE[op]

    def program(x: Any, at: Any, new: Any) -> Any:
        aval = typeof(x)
        neutral = 0 if op in ("add", "sub") else extreme(aval.dtype, largest=op == "min")
        mine = primitive_of().bind(full_like(x, neutral), at, new, **s.params)
        return take_in(x, collective(mine, split[0].axes))

    operands: list[Cuts] = [windows, (*cuts, None), tuple(of_updates)]
    return Plan(operands, [windows], s.params, program=program)


def _free(one: Cut | None, other: Cut | None) -> Cut | None:
    return one if one is not None else other


