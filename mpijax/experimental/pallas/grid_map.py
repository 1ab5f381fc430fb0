"""A grid of independent programs with elementwise operations and reductions, as one program on whole arrays.

If no two programs write the same block, and no program reads what another one wrote, their order does not matter. Each
axis of an operand is then split into an axis for the number of the block and an axis of the block, and the kernel is
mapped over the former. The compiler makes loop nests over the whole array from it, on all threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core.programs.jaxpr import Jaxpr, Literal, subjaxprs
from mpijax.core.rules.lowering import Elementwise, InlineJaxpr, Reduction, Structural
from mpijax.core.types.array_api import Array
from mpijax.experimental.pallas.blocks import BlockedOperand
from mpijax.experimental.pallas.kernels import GridKernel
from mpijax.experimental.pallas.specs import Element
from mpijax.transforms.vmap import vmap


def run(kernel: GridKernel, sizes: Sequence[Any], arrays: Sequence[Any], scratch: Sequence[Any]) -> list[Any] | None:
    """The results, padded, after all programs; None if the grid must be a loop."""
    if any(isinstance(s, Array) or s == 0 for s in sizes) or kernel.num_scalars or math.prod(sizes) == 1:
        return None
    divided = [*kernel.inputs, *kernel.outputs]
    layouts = [a for b in divided if (a := _layout(b, sizes)) is not None]
    if len(layouts) < len(divided) or not _is_independent(kernel, layouts, sizes):
        return None
    if not all(_is_free(e) for e in _equations(kernel.closed.jaxpr)):
        return None
    count = len(kernel.inputs)

    def program(ids, blocks):
        buffers = [lax.reshape(x, b.shape) for x, b in zip(blocks, divided, strict=True)]
        after = kernel.run(ids, (), (), [*buffers, *scratch])
        return [lax.reshape(x, b.sizes) for x, b in zip(after[count : len(divided)], kernel.outputs, strict=True)]

    places = [np.arange(n, dtype=np.int32) for n in sizes]
    blocks = [lax.reshape(x, _split(b, layout)) for x, b, layout in zip(arrays, divided, layouts, strict=True)]
    found = _mapped(program, layouts, layouts[count:], len(sizes))(places, blocks)
    return [lax.reshape(x, b.padded_shape) for x, b in zip(found, kernel.outputs, strict=True)]


def _layout(blocks: BlockedOperand, sizes: Sequence[int]) -> list[int | None] | None:
    """For each axis of the array, the axis of the grid that counts its blocks, or None for one block. None if the
    layout is another."""
    jaxpr = blocks.index_map.jaxpr
    found: list[int | None] = []
    for var, n, size, dim in zip(jaxpr.outvars, blocks.padded_shape, blocks.sizes, blocks.dims, strict=True):
        if n == size:
            found.append(None)
            continue
        if isinstance(dim, Element) or isinstance(var, Literal) or var not in jaxpr.invars:
            return None
        axis = jaxpr.invars.index(var)
        if axis in found or n != size * sizes[axis]:
            return None
        found.append(axis)
    return found


def _is_independent(kernel: GridKernel, layouts: Sequence[Any], sizes: Sequence[int]) -> bool:
    """Whether each program writes only its own blocks of results, and reads nothing that another program wrote."""
    count, total = len(kernel.inputs), len(kernel.inputs) + len(kernel.outputs)
    longer = {i for i, n in enumerate(sizes) if n > 1}
    own_blocks = all(longer <= set(layout) for layout in layouts[count:])
    handed_on = any(r and w for r, w in zip(kernel.reads[total:], kernel.writes[total:], strict=True))
    return own_blocks and not any(kernel.writes[:count]) and not handed_on


def _equations(jaxpr: Jaxpr) -> Iterator[Any]:
    """The equations of a program and of those that it calls in place."""
    for eqn in jaxpr.eqns:
        if isinstance(eqn.primitive.lower, InlineJaxpr):
            for inner in subjaxprs(eqn.params):
                yield from _equations(inner)
        else:
            yield eqn


def _is_free(eqn: Any) -> bool:
    lower = eqn.primitive.lower
    if isinstance(lower, Structural):  # it moves elements by an index map alone, to places known when compiling
        known = lower.read is not None and lower.window is None and not (lower.cost or lower.words)
        return lower.view is not None or known
    return isinstance(lower, (Elementwise, Reduction)) and not eqn.effects


def _split(blocks: BlockedOperand, layout: Sequence[int | None]) -> list[int]:
    """The shape of the array with an axis for the blocks before each axis that has several."""
    shape: list[int] = []
    for n, size, axis in zip(blocks.padded_shape, blocks.sizes, layout, strict=True):
        shape += [size] if axis is None else [n // size, size]
    return shape


def _mapped(program: Any, operands: Sequence[Any], results: Sequence[Any], rank: int) -> Any:
    """`program(ids, blocks)` over all axes of the grid, the first one outermost."""
    for axis in reversed(range(rank)):
        places = [0 if i == axis else None for i in range(rank)]
        ins, outs = ([_place(layout, axis) for layout in layouts] for layouts in (operands, results))
        program = vmap(program, in_axes=(places, ins), out_axes=outs)
    return program


def _place(layout: Sequence[int | None], axis: int) -> int | None:
    """Where the blocks' axis for an axis of the grid is, when those of the axes before it are mapped over already."""
    place = 0
    for found in layout:
        if found == axis:
            return place
        place += 1 if found is None or found < axis else 2
    return None
