"""Operations that only change how an array is read."""

from __future__ import annotations

from mpijax.compiler.graph import Node
from mpijax.core.lowering import Structural

_VIEWS = {"transpose", "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice", "rev", "pvary", "copy"}


def is_view(node: Node) -> bool:
    """Whether every element of the result is one of the operand's, at a position known when compiling."""
    return isinstance(node.primitive.lower, Structural) and node.primitive.lower.kind in _VIEWS
