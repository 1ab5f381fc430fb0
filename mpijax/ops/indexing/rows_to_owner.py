"""Writes rows of a split array to unique positions of another: each rank sends its rows to the ranks that own them.

The gradient of a permutation of rows is such a write. A rank sorts its positions, which groups them by owner, and sends
positions and rows, one alltoallv each. It sends about as many bytes as its part of the rows has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.rules.registry import registry
from mpijax.core.rules.sharding_rules import Operation, Plan
from mpijax.core.sharding.cuts import Cut
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.counted import counted_all_to_all
from mpijax.ops.collectives.exchange import all_to_all
from mpijax.ops.elementwise import binary
from mpijax.ops.elementwise.compare import lt
from mpijax.ops.elementwise.select import select
from mpijax.ops.indexing.by_owner import is_inside, windows_kept
from mpijax.ops.indexing.gather import GatherDimensionNumbers, GatherScatterMode
from mpijax.ops.indexing.rows_on_request import positions, taken, wide
from mpijax.ops.indexing.slicing import slice_in_dim
from mpijax.ops.reductions.standard import reduce_sum
from mpijax.ops.rules import full_like
from mpijax.ops.shapes.creation import iota
from mpijax.ops.shapes.reshape import broadcast_in_dim, expand_dims, reshape
from mpijax.ops.sorting.searchsorted import search
from mpijax.transforms.batching import move_dim


def plan(s: Operation, primitive_of: Callable[[], Any]) -> Plan | None:
    """The plan of a scatter of split rows, as many as the operand has, to unique positions; None for other scatters."""
    numbers, (shape, at, new), (operand, _, updates) = s.params["dimension_numbers"], s.shapes, s.cuts
    if len(numbers.scatter_dims_to_operand_dims) != 1 or numbers.operand_batching_dims or len(at) != 2:
        return None
    [dim] = numbers.scatter_dims_to_operand_dims
    [axis] = [d for d in range(len(new)) if d not in numbers.update_window_dims]
    rows = tuple(n for d, n in enumerate(shape) if d != dim) == tuple(n for d, n in enumerate(new) if d != axis)
    if tuple(numbers.inserted_window_dims) != (dim,) or not rows or new[axis] != shape[dim] or not s.numeric:
        return None
    split, own = updates[axis], operand[dim]
    known = s.params["unique_indices"] and s.params["mode"] is not GatherScatterMode.CLIP
    if split is None or not known:
        return None
    windows, of_updates = windows_kept(s, split.axes)
    if any(c is not None and d != dim and windows[d] is None for d, c in enumerate(operand)):
        return None
    cut = split if own is None or own.axes != split.axes else own
    result = (*windows[:dim], cut, *windows[dim + 1 :])
    of_updates = (*of_updates[:axis], split, *of_updates[axis + 1 :])
    program = _program(s, primitive_of, dim, cut, axis)
    return Plan([result, (split, None), of_updates], [result], s.params, program=program)


def _program(s: Operation, primitive_of: Callable[[], Any], dim: int, cut: Cut, axis: int) -> Callable[..., Any]:
    (low, high), size = s.span(cut), s.shapes[0][dim]
    int32 = np.dtype(np.int32)

    def program(x: Any, indices: Any, updates: Any) -> Any:
        at = wide(reshape(indices, typeof(indices).shape[:1]))
        at = positions(at, is_inside(at, 0, size), size, True)
        numbers = iota(int32, typeof(at).shape[0])
        at, order = registry["sort"].bind(at, numbers, dimension=0, is_stable=True, num_keys=1)
        rows = taken(move_dim(updates, axis, 0), order, GatherDimensionNumbers, GatherScatterMode)
        borders = np.append(cut.lows, cut.size).astype(typeof(at).dtype)
        places = search(at, borders, "left", int32)
        send = binary.sub(slice_in_dim(places, 1, None), slice_in_dim(places, 0, -1))
        receive = all_to_all(send, cut.axes, 0, 0, tiled=True)
        at, rows = (counted_all_to_all(v, send, receive, cut.axes, high - low) for v in (at, rows))
        if high == low:
            return x
        # Rows past the received ones have a position beside this rank's part, and are dropped.
        received = lt(iota(int32, high - low), broadcast_in_dim(reduce_sum(receive, (0,)), (high - low,), ()))
        local = select(received, binary.sub(at, full_like(at, low)), full_like(at, high - low))
        params = {**s.params, "mode": GatherScatterMode.FILL_OR_DROP, "unique_indices": False}
        return primitive_of().bind(x, expand_dims(local, (1,)), move_dim(rows, 0, axis), **params)

    return program
