"""Defines the sharding rule of `dot_general` where a large operand would be gathered: its blocks go round a ring.

In each step a rank multiplies with the block that it has, while it receives the next one from its neighbour. That sends
as many bytes as an allgather, but a rank holds two blocks of the operand instead of all of it. Blocks have equal sizes.
Operands that are no larger than the result, or than this rank's part of the other operand, are gathered: the memory of
a rank hardly grows, and loops over large intermediate arrays (`compiler/graph/by_parts.py`) take plain products only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules import sharding_rules as rules
from mpijax.core.rules.product_rules import dot_general
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.cuts import Cut, part_number
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.ranks.loops import fori_loop
from mpijax.ops.rules import const_like
from mpijax.ops.shapes.reshape import broadcast_in_dim

# Elements of the operand from which on its blocks are sent round.
LARGE = 1 << 18


def around_a_ring(s: rules.Operation) -> rules.Plan | None:
    """The plan of `dot_general` for a large operand that would be gathered."""
    plan = dot_general(s)
    assert plan is not None
    return next((ring for k in (0, 1) if (ring := _around(s, plan, k)) is not None), plan)


def _around(s: rules.Operation, plan: rules.Plan, k: int) -> rules.Plan | None:
    """The plan that sends the blocks of operand `k` round; None if `plan` does not gather it, or it saves no memory."""
    gathered = [d for d, c in enumerate(s.cuts[k]) if c is not None and plan.operands[k][d] is None]
    if len(gathered) != 1 or any(plan.operands[k]) or plan.over:
        return None
    [dim] = gathered
    cut = s.cuts[k][dim]
    assert cut is not None
    if not cut.is_even or not any(c is not None and c.axes == cut.axes for c in plan.operands[1 - k]):
        return None
    contract, batch = s.params["dimension_numbers"]
    if dim in batch[k] or s.cuts[k] != tuple(cut if d == dim else None for d in range(len(s.shapes[k]))):
        return None
    result = math.prod(s.results[0]) / math.prod(c.parts for c in plan.results[0] if c is not None)
    size = math.prod(s.shapes[k])
    made = result if dim in contract[k] else result / cut.parts
    beside = max(result, rules.share(s, s.shapes[1 - k], plan.operands[1 - k]))
    if size < LARGE or beside >= size or made + 2 * size / cut.parts >= size:
        return None
    operands = [s.cuts[k] if i == k else plan.operands[i] for i in (0, 1)]
    program = _program(s, plan, k, dim, cut)
    return rules.Plan(operands, plan.results, s.params, program=program, plain=plan)


def _program(s: rules.Operation, plan: rules.Plan, k: int, dim: int, cut: Cut) -> Callable[..., Any]:
    contract, batch = s.params["dimension_numbers"]
    me, width = part_number(cut.axes, s.sizes, s.place), cut.widest
    neighbours = tuple(((r + 1) % cut.parts, r) for r in range(cut.parts))
    shape = s.local(s.results[0], plan.results[0])

    def product(block: Any, other: Any, wide: Any) -> Any:
        params = {**s.params, "preferred_element_type": wide}
        return registry["dot_general"].bind(*((block, other) if k == 0 else (other, block)), **params)

    def program(*operands: Any) -> Any:
        asked = s.params["preferred_element_type"]
        dtype = np.dtype(typeof(operands[0]).dtype if asked is None else asked)
        # Sums of narrow floats are rounded once.
        narrow = dtypes.issubdtype(dtype, np.floating) and dtype.itemsize < 4
        wide = np.dtype(np.float32) if narrow and dim in contract[k] else dtype

        def with_block(owner: Any, block: Any, total: Any) -> Any:
            """The result so far, with the product of one block."""
            at, other = owner * const_like(owner, width), operands[1 - k]
            if dim in contract[k]:
                facing = contract[1 - k][list(contract[k]).index(dim)]
                return total + product(block, part_at(other, at, facing, width), wide)
            starts = _starts(at, _axis_of_result(s, contract, batch, k, dim), len(shape))
            return registry["dynamic_update_slice"].bind(total, product(block, other, wide), *starts)

        def step(k: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            block, total = carry
            following = registry["ppermute"].bind(block, axis_name=cut.axes, perm=neighbours)
            owner = registry["rem"].bind(k + const_like(k, me), const_like(k, cut.parts))
            return following, with_block(owner, block, total)

        nothing = broadcast_in_dim(np.zeros((), wide), shape, ())
        block, total = fori_loop(0, cut.parts - 1, step, (operands[k], nothing))
        last = np.int32((me - 1) % cut.parts)
        return convert_element_type(with_block(last, block, total), dtype)

    return program


def part_at(x: Any, at: Any, axis: int, width: int) -> Any:
    """The part of an array that begins at `at` along one axis and is `width` long; whole along the others."""
    sizes = tuple(width if d == axis else n for d, n in enumerate(typeof(x).shape))
    return registry["dynamic_slice"].bind(x, *_starts(at, axis, len(sizes)), slice_sizes=sizes)


def _starts(at: Any, axis: int, ndim: int) -> list[Any]:
    """The start of a window that begins at `at` along one axis, and at 0 along the others."""
    return [at if d == axis else const_like(at, 0) for d in range(ndim)]


def _axis_of_result(s: rules.Operation, contract: Any, batch: Any, k: int, dim: int) -> int:
    """The result axis that a free axis of operand `k` becomes."""

    def free(i: int) -> list[int]:
        return [d for d in range(len(s.shapes[i])) if d not in (*contract[i], *batch[i])]

    return len(batch[0]) + (len(free(0)) if k == 1 else 0) + free(k).index(dim)
