"""Computes matrix products of 8-bit integers with BLAS in float32, which represents all integers up to 2^24.

BLAS multiplies floats faster than loop nests multiply integers. Longer sums are split; the parts are added as integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax import lax
from mpijax.compiler.graph.conversions import converted
from mpijax.compiler.graph.products import dims_of, sizes_of
from mpijax.core import dtypes

if TYPE_CHECKING:
    from mpijax.compiler.graph.nodes import Node, Value

SINGLE, WHOLE = np.dtype(np.float32), np.dtype(np.int32)
# float32 represents every integer up to this one.
EXACT = 1 << 24
# Smaller products are loop nests: converting operands to floats for BLAS costs more than it saves.
SMALL = 1 << 17
THIN = 8
# A sum is split into at most this many parts.
PARTS = 64


def product(builder: Any, node: Node) -> Value | None:
    """The result of a matrix product of small integers; None if BLAS cannot compute it exactly, or is slower."""
    length = _exact_length(node)
    if length == 0:
        return None
    params = {**node.params, "preferred_element_type": SINGLE}
    [aval] = [v.aval for v in node.outputs]
    wide = [converted(builder, v, SINGLE, node.source) for v in node.inputs]
    (left, right), _ = params["dimension_numbers"]
    *_, size = sizes_of(node)
    total = None
    for first in range(0, size, length):
        parts = wide
        if length < size:
            axes = (left[0], right[0])
            parts = [_part(builder, v, a, first, length, node) for v, a in zip(wide, axes, strict=True)]
        [out] = builder.node(node.primitive, params, parts, [aval.update(dtype=SINGLE)], node.source)
        out = converted(builder, out, WHOLE, node.source)
        total = out if total is None else builder.node(lax.add_p, {}, [total, out], [out.aval], node.source)[0]
    assert total is not None  # _exact_length is 0 for sums of length 0
    return converted(builder, total, aval.dtype, node.source)


def _exact_length(node: Node) -> int:
    """How many products of two elements float32 sums exactly; 0 if the product should not go to BLAS."""
    elements = [v.element for v in node.inputs]
    if not all(dtypes.issubdtype(d, np.integer) for d in (*elements, node.outputs[0].element)):
        return 0
    largest = 1
    for limits in map(dtypes.iinfo, elements):
        largest *= max(int(limits.max), -int(limits.min))
    length = EXACT // largest
    _, m, n, k = sizes_of(node)
    most = length * (PARTS if len(dims_of(node).lhs_contract) == 1 else 1)
    if min(m, n, k) < THIN or m * n * k < SMALL or k > most:
        return 0
    return min(k, length)


def _part(builder: Any, v: Value, axis: int, first: int, length: int, node: Node) -> Value:
    """At most `length` positions of an axis, from `first` on."""
    shape = list(v.aval.shape)
    starts, limits = [0] * len(shape), list(shape)
    starts[axis], limits[axis] = first, min(first + length, shape[axis])
    shape[axis] = limits[axis] - first
    params = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": None}
    return builder.node(lax.slice_p, params, [v], [v.aval.update(shape=tuple(shape))], node.source)[0]
