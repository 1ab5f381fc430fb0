"""Brings the residuals of branches to one format: all branches must return the same types.

Residuals of the same type share a position. A branch returns arbitrary values at the positions of other
branches' residuals; its derivative does not read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import provided
from mpijax.core.programs.jaxpr import ClosedJaxpr, eval_jaxpr
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.memory_space import Space
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.control_flow.signatures import spread
from mpijax.ops.control_flow.varying import vary
from mpijax.ops.families import NOT_LINEAR
from mpijax.ops.shapes.creation import full
from mpijax.transforms.zeros import zeros


def _empty_reference(*, dtype: Any, memory_space: Space) -> np.ndarray:
    if isinstance(dtype, dtypes.ExtendedDType):
        return np.zeros(dtype.physical_shape, dtype.physical_dtype)
    return np.zeros((), dtype)


def _empty_program(*, dtype: Any, memory_space: Space) -> Any:
    return full((), 0, dtype) if isinstance(dtype, dtypes.ExtendedDType) else zeros(ShapedArray((), dtype))


empty2_p = Primitive(
    "empty2",
    type_rule=lambda *, dtype, memory_space: ShapedArray((), dtype),
    reference=_empty_reference,
    lower=Decompose(_empty_program),
    jvp=NOT_LINEAR,
    transpose=NOT_LINEAR,
    batch=NOT_LINEAR,
)


def empty(aval: ShapedArray) -> Any:
    """An array with arbitrary contents, which nobody reads."""
    if aval.is_high:
        return provided.raised(aval, [empty(a) for a in aval.lo_ty()])
    scalar = vary(empty2_p.bind(dtype=aval.dtype, memory_space=Space.Device), aval.vma)
    if not aval.shape:
        return scalar
    return registry["broadcast_in_dim"].bind(scalar, shape=aval.shape, broadcast_dimensions=(), sharding=None)


def merge(types: Sequence[Sequence[ShapedArray]]) -> tuple[list[ShapedArray], list[list[int]]]:
    """Types that can hold the residuals of any branch, and for each branch the positions of its own.

    [x], [y], [x, x] become [x, y, x] with the places [0], [1], [0, 2].
    """
    place: dict[tuple[ShapedArray, int], int] = {}
    places = []
    for own in types:
        seen: Counter = Counter()
        row = []
        for aval in own:
            row.append(place.setdefault((aval, seen[aval]), len(place)))
            seen[aval] += 1
        places.append(row)
    return [aval for aval, _ in place], places


def return_all(closed: ClosedJaxpr, places: list[int], avals: list[ShapedArray]) -> ClosedJaxpr:
    """`closed` with its last results, the residuals, replaced by one result for each of `avals`."""

    def fun(*args):
        outs = eval_jaxpr(closed.jaxpr, closed.consts, *args)
        count = len(outs) - len(places)
        filled = [empty(a) for a in avals]
        for place, residual in zip(places, outs[count:], strict=True):
            filled[place] = residual
        return outs[:count] + filled

    return trace_to_closed_jaxpr(fun, closed.in_avals, closed.jaxpr.debug_info)


def take_all(closed: ClosedJaxpr, places: list[int], avals: list[ShapedArray]) -> ClosedJaxpr:
    """`closed` with its first arguments, the residuals, replaced by one argument for each of `avals`."""
    own, rest = closed.jaxpr.invars[: len(places)], closed.jaxpr.invars[len(places) :]
    return closed.replace(jaxpr=closed.jaxpr.replace(invars=spread(own, places, avals) + rest))
