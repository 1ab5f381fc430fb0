"""Replaces products of floats and a converted bool mask by a choice: 0 where the mask is False, also of inf and NaN.

XLA does so, and libraries rely on it: they multiply values of padding by False.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax import lax
from mpijax.compiler.graph.conversions import conversion_of
from mpijax.core.rules.lowering import Meaning
from mpijax.core.types.avals import ShapedArray

if TYPE_CHECKING:
    from mpijax.compiler.graph.nodes import Value
    from mpijax.compiler.graph.simplify import Op

# XLA keeps products of narrower floats.
_CHOSEN = tuple(map(np.dtype, (np.float32, np.float64, np.complex64, np.complex128)))


def by_mask(builder: Any, op: Op) -> list[Value] | None:
    """The factor where the mask is True, else 0; None if no factor is a mask of the result's shape."""
    aval = op.avals[0]
    if op.primitive.lower.meaning is not Meaning.PRODUCT or aval.dtype not in _CHOSEN:
        return None
    for x, factor in (op.inputs, op.inputs[::-1]):
        before = conversion_of(factor)
        mask = None if before is None else before.inputs[0]
        if mask is not None and mask.element == np.bool_ and x.aval.shape == mask.aval.shape == aval.shape:
            zero = builder.literal(0, ShapedArray((), aval.dtype))
            return builder.pure(lax.select_n_p, {}, [builder.local(mask), zero, x], op.avals, op.source)
    return None
