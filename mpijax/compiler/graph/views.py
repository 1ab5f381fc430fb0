"""Recognizes operations that only change how an array is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijax.core.rules.lowering import Structural, ViewKind

if TYPE_CHECKING:
    from mpijax.compiler.graph.nodes import Node
    from mpijax.core.rules.primitive import Primitive


def view_of(node: Node) -> ViewKind | None:
    """How the result's elements map to the operand's elements; None if the operation is not a view."""
    return node.primitive.lower.view if isinstance(node.primitive.lower, Structural) else None


def is_view(node: Node) -> bool:
    """Whether every element of the result is an element of the operand, at a position known when compiling."""
    return reads_by_index(node.primitive)


def reads_by_index(primitive: Primitive) -> bool:
    """Whether the results of an operation are views of its operand."""
    return isinstance(primitive.lower, Structural) and primitive.lower.view is not None


def keeps_layout(node: Node) -> bool:
    """Whether result and operand have the same elements in the same memory order, under another shape."""
    view = view_of(node)
    return view in (ViewKind.SAME, ViewKind.REGROUPED) or (
        view is ViewKind.REPEATED and node.inputs[0].size == node.outputs[0].size
    )
