"""Symbolic dimensions as values, for exported programs that compute with ``x.shape[0]``."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.dtypes.canonical import default_int_dtype
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.shapes.dimensions import DimExpr
from mpijax.core.types.avals import ShapedArray

_OF_NO_VALUES = Unsupported("a size has no operands, so there is nothing to differentiate or vectorize")


def dim_as_value(dim: DimExpr) -> Any:
    """The value of a symbolic dimension as an integer scalar, while a function is traced for export."""
    return dim_as_value_p.bind(dim=dim)


class _DimAsValue(Primitive):
    """A known size becomes a number."""

    def bind(self, *, dim):
        return super().bind(dim=dim) if isinstance(dim, DimExpr) else dim


def _outside(*, dim):
    raise NotImplementedError(
        f"The symbolic dimension '{dim}' has no value outside of a function that is traced for mpijax.export. Use it "
        "inside such a function, or evaluate it for given sizes."
    )


dim_as_value_p = _DimAsValue(
    "dim_as_value",
    type_rule=lambda *, dim: ShapedArray((), default_int_dtype(), True),
    reference=lambda *, dim: np.asarray(dim, default_int_dtype()),
    lower=Decompose(_outside),
    jvp=_OF_NO_VALUES,
    transpose=_OF_NO_VALUES,
    batch=_OF_NO_VALUES,
)
dim_as_value_p.impl = _outside
