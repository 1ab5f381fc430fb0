"""Reads rows of a split array at positions in any order: each rank requests the rows of its part of the result.

A rank sorts the positions that it needs, which groups them by owner, and sends them to the owners. The owners send back
the rows. A rank sends about as many bytes as its part of the result has, and of each position it sends one integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules.registry import registry
from mpijax.core.rules.sharding_rules import Operation, Plan
from mpijax.core.sharding.cuts import Cut
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.counted import counted_all_to_all
from mpijax.ops.collectives.exchange import all_to_all
from mpijax.ops.elementwise import binary
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.elementwise.select import select
from mpijax.ops.indexing.by_owner import is_inside
from mpijax.ops.indexing.slicing import concatenate, slice_in_dim
from mpijax.ops.ranks.loops import loop_map
from mpijax.ops.rules import full_like
from mpijax.ops.shapes.creation import full, iota
from mpijax.ops.shapes.reshape import broadcast_in_dim, expand_dims, reshape, transpose
from mpijax.ops.sorting.searchsorted import search
from mpijax.transforms.batching import move_dim

# Elements of the result from which on rows are requested in several passes, and the parts of the result that the
# buffers of a pass may have.
PASS = 1 << 18
FEW = 4


def plan(s: Operation) -> Plan | None:
    """The plan of a gather that reads rows at positions along one split axis; None for other gathers.

    The result is split along an axis of the positions. Some rank may have to send as many rows as the result has, so
    the result must not have more rows than the operand.
    """
    numbers, (shape, at), (operand, indices) = s.params["dimension_numbers"], s.shapes, s.cuts
    if len(numbers.start_index_map) != 1 or numbers.operand_batching_dims:
        return None
    [dim] = numbers.start_index_map
    cut, sizes = operand[dim], s.params["slice_sizes"]
    whole = all(n == m for d, (n, m) in enumerate(zip(shape, sizes, strict=True)) if d != dim)
    if cut is None or tuple(numbers.collapsed_slice_dims) != (dim,) or not whole or not s.numeric:
        return None
    axis = next((j for j, c in enumerate(indices[:-1]) if c is not None and c.axes == cut.axes), None)
    if axis is None:
        axis = next((j for j, n in enumerate(at[:-1]) if n >= cut.parts), None)
    if axis is None or math.prod(at[:-1]) > shape[dim]:
        return None
    known = indices[axis]
    split = known if known is not None and known.axes == cut.axes else s.even(at[axis], cut.axes)
    of_indices = tuple(split if j == axis else None for j in range(len(at)))
    out = _placed(s, (*operand[:dim], *operand[dim + 1 :]), of_indices[:-1])
    return Plan([operand, of_indices], [out], s.params, program=_program(s, dim, cut, axis, split))


def _placed(s: Operation, window: Sequence[Any], batch: Sequence[Any]) -> tuple[Any, ...]:
    """Entries for the axes of a row and of the positions, in the order of the result's axes."""
    offsets = s.params["dimension_numbers"].offset_dims
    rows, rest = iter(window), iter(batch)
    return tuple(next(rows if d in offsets else rest) for d in range(len(s.results[0])))


def _program(s: Operation, dim: int, cut: Cut, axis: int, split: Cut) -> Callable:
    drops = s.params["mode"].name == "FILL_OR_DROP"
    low, high = s.span(split)
    others = math.prod(n for j, n in enumerate(s.shapes[1][:-1]) if j != axis)

    def program(x: Any, indices: Any) -> Any:
        at = wide(reshape(indices, typeof(indices).shape[:-1]))
        inside = is_inside(at, 0, s.shapes[0][dim])
        flat = reshape(positions(at, inside, s.shapes[0][dim], drops), ((high - low) * others,))
        rows = _in_passes(s, move_dim(x, dim, 0), flat, cut, split.widest * others)
        found = reshape(rows, (*typeof(at).shape, *typeof(rows).shape[1:]))
        batch, ndim = typeof(at).ndim, typeof(found).ndim
        order = _placed(s, range(batch, ndim), range(batch))
        found = transpose(found, order)
        if not drops:
            return found
        given, shape = s.params["fill_value"], typeof(found).shape
        outside = np.asarray(dtypes.out_of_bounds(x.dtype) if given is None else given, x.dtype)
        flags = broadcast_in_dim(inside, shape, [order.index(j) for j in range(batch)])
        return select(flags, found, broadcast_in_dim(outside, shape, ()))

    return program


def wide(at: Any) -> Any:
    """Positions in a signed type of at least 32 bits."""
    dtype = typeof(at).dtype
    fits = dtype.itemsize < 4 or dtype == np.dtype(np.int32)
    return convert_element_type(at, np.dtype(np.int32 if fits else np.int64))


def positions(at: Any, inside: Any, size: int, drops: bool) -> Any:
    """Positions between 0 and `size`; a position that is dropped is `size`, which no rank has."""
    clipped = binary.min(binary.max(at, full_like(at, 0)), full_like(at, size - 1))
    at = select(inside, at, full_like(at, size)) if drops else clipped
    return convert_element_type(at, np.dtype(np.int32)) if size < 2**31 else at


def _in_passes(s: Operation, rows: Any, at: Any, cut: Cut, longest: int) -> Any:
    """The rows of the whole array at the positions `at`. Large results are requested in several passes.

    All ranks may request their rows of one rank. The buffers of a pass, which have room for that, are no larger than
    `PASS` elements or a few times this rank's part of the result. longest: the most positions of any rank.
    """
    here, total = typeof(at).shape[0], math.prod(s.shapes[1][:-1])
    part = math.prod(s.results[0]) // cut.parts
    passes = max(1, math.prod(s.results[0]) // max(PASS, FEW * part, 1))
    width = -(-longest // passes)
    most, usual = _requests(s, cut, min(total, width * cut.parts)), total / cut.parts / passes
    if passes == 1:
        return _requested(s, rows, at, cut, most, usual)
    nowhere = full((passes * width - here,), cut.size, typeof(at).dtype)
    chunks = reshape(concatenate([at, nowhere], 0), (passes, width))
    found = loop_map(lambda chunk: _requested(s, rows, chunk, cut, most, usual), chunks)
    return slice_in_dim(reshape(found, (passes * width, *typeof(found).shape[2:])), 0, here)


def _requested(s: Operation, rows: Any, at: Any, cut: Cut, most: int, usual: float) -> Any:
    """The rows of the whole array at the positions `at`, rows of zeros where no rank has the position.

    rows: this rank's part, along the first axis. most, usual: the number of rows that ranks request of this one at
    most, and on average. Communicates one alltoall and two alltoallv.
    """
    here, (low, high) = typeof(at).shape[0], s.span(cut)
    numbers = iota(np.dtype(np.int32), here)
    asked, order = registry["sort"].bind(at, numbers, dimension=0, is_stable=True, num_keys=1)
    borders = np.append(cut.lows, cut.size).astype(typeof(at).dtype)
    places = search(asked, borders, "left", np.dtype(np.int32))
    send = binary.sub(slice_in_dim(places, 1, None), slice_in_dim(places, 0, -1))
    receive = all_to_all(send, cut.axes, 0, 0, tiled=True)
    wanted = counted_all_to_all(asked, send, receive, cut.axes, most)
    if high > low:
        local = binary.sub(wanted, full_like(wanted, low))
        inside = binary.min(binary.max(local, full_like(local, 0)), full_like(local, high - low - 1))
        answers = _taken_by(s, rows, inside)
    else:
        answers = full((most, *typeof(rows).shape[1:]), 0, typeof(rows).dtype)
    got = counted_all_to_all(answers, receive, send, cut.axes, here, usual / most if most else 1.0)
    _, inverse = registry["sort"].bind(order, numbers, dimension=0, is_stable=True, num_keys=1)
    return _taken_by(s, got, inverse)


def _requests(s: Operation, cut: Cut, most: int) -> int:
    """The number of rows that ranks request of this one at most, of `most` requests."""
    low, high = s.span(cut)
    once = s.params["unique_indices"] and s.params["mode"].name != "CLIP"  # clipped positions are not unique
    return min(high - low, most) if once else most


def _taken_by(s: Operation, rows: Any, at: Any) -> Any:
    return taken(rows, at, type(s.params["dimension_numbers"]), type(s.params["mode"]))


def taken(rows: Any, at: Any, numbers: Any, mode: Any) -> Any:
    """Rows of an array on this rank. numbers, mode: the types of a gather's parameters."""
    shape = typeof(rows).shape
    if not shape[0]:
        return rows
    return registry["gather"].bind(
        rows, expand_dims(at, (1,)), slice_sizes=(1, *shape[1:]), fill_value=None, indices_are_sorted=False,
        dimension_numbers=numbers(tuple(range(1, len(shape))), (0,), (0,)), unique_indices=False,
        mode=mode.PROMISE_IN_BOUNDS,
    )  # fmt: skip
