"""A grid as a loop: programs run one after the other; the last axis of the grid changes fastest.

The loop carries the results, and each iteration writes its blocks into them in place. Operands that no program writes
are read in place, too. So the loop needs memory only for the blocks of one program. Programs write in the order of the
grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core.types.array_api import Array
from mpijax.experimental.pallas.kernels import GridKernel
from mpijax.experimental.pallas.memory import uninitialized


def run(
    kernel: GridKernel, sizes: Sequence[Any], scalars: Sequence[Any], arrays: Sequence[Any], scratch: Sequence[Any]
):
    """The results, padded, after all programs.

    sizes: sizes of the grid, ints or int32 scalars. arrays: operands and the initial contents of the results, padded.
    """
    divided = [*kernel.inputs, *kernel.outputs]
    computed = [s for s in sizes if isinstance(s, Array)]
    whole = [*arrays, *scratch]
    # Of the scratch memory, carry only the contents that the next program reads.
    carried = [
        i for i, (r, w) in enumerate(zip(kernel.reads, kernel.writes, strict=True)) if w and (r or i < len(arrays))
    ]

    def iteration(step, values):
        now = list(whole)
        for i, value in zip(carried, values, strict=True):
            now[i] = value
        ids = position(step, sizes)
        starts = [b.starts(ids, scalars) for b in divided]
        before = []
        for i, x in enumerate(now):
            if i >= len(arrays):
                before.append(x)
            elif kernel.reads[i] or not kernel.writes[i]:
                before.append(divided[i].read(x, starts[i]))
            else:
                before.append(uninitialized(divided[i].shape, x.dtype))
        after = kernel.run(ids, computed, scalars, before)
        return [
            divided[i].write(now[i], starts[i], after[i]) if i < len(arrays) else after[i] for i in carried
        ]  # fmt: skip

    final = list(whole)
    count = math.prod(sizes) if not computed else lax.convert_element_type(math.prod(sizes), np.int32)
    for i, value in zip(carried, lax.fori_loop(0, count, iteration, [whole[i] for i in carried]), strict=True):
        final[i] = value
    return final[len(kernel.inputs) : len(arrays)]


def position(step: Any, sizes: Sequence[Any]) -> list[Any]:
    """The position of program number `step` in the grid."""
    ids: list[Any] = []
    rest = lax.convert_element_type(step, np.int32)
    longer = [i for i, size in enumerate(sizes) if not (isinstance(size, int) and size == 1)]
    for i in reversed(range(len(sizes))):
        if i not in longer:
            ids.append(np.int32(0))
        elif i == longer[0]:
            ids.append(rest)
        else:
            size = sizes[i] if isinstance(sizes[i], Array) else np.int32(sizes[i])
            ids.append(lax.rem(rest, size))
            rest = lax.div(rest, size)
    return ids[::-1]
