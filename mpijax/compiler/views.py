"""Operations that only change how an array is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijax.core.lowering import Structural

if TYPE_CHECKING:
    from mpijax.compiler.nodes import Node

_VIEWS = {"transpose", "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice", "rev", "pvary", "copy"}


def is_view(node: Node) -> bool:
    """Whether every element of the result is one of the operand's, at a position known when compiling."""
    return isinstance(node.primitive.lower, Structural) and node.primitive.lower.kind in _VIEWS


def keeps_layout(node: Node) -> bool:
    """Whether the result's elements lie in memory as the operand's do: only the shape is another."""
    if not isinstance(node.primitive.lower, Structural):
        return False
    kind = node.primitive.lower.kind
    if kind in ("reshape", "squeeze", "expand_dims", "pvary", "copy"):
        return True
    return kind == "broadcast_in_dim" and node.inputs[0].size == node.outputs[0].size
