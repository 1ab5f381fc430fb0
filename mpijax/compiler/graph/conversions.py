"""Conversions to another dtype, as operations of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax import lax
from mpijax.core.base.source import Source
from mpijax.core.rules.lowering import Meaning, meaning_of

if TYPE_CHECKING:
    from mpijax.compiler.graph.nodes import Node, Value


def converted(builder: Any, v: Value, dtype: np.dtype, source: Source) -> Value:
    """A value in another dtype; `v` itself if it has that dtype."""
    if v.element == dtype:
        return v
    params = {"new_dtype": dtype, "weak_type": False, "sharding": None}
    aval = v.aval.update(dtype=dtype, weak_type=False)
    return builder.node(lax.convert_element_type_p, params, [v], [aval], source)[0]


def conversion_of(v: Value) -> Node | None:
    """The conversion that made a value; None if another operation did."""
    node = v.producer
    return None if node is None or meaning_of(node.primitive.lower) is not Meaning.CONVERSION else node
