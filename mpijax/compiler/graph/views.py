"""Recognizes operations that only change how an array is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijax.core.rules.lowering import Structural, ViewKind

if TYPE_CHECKING:
    from mpijax.compiler.graph.nodes import Node
    from mpijax.compiler.graph.simplify import Op
    from mpijax.core.programs.jaxpr import Eqn
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


def order_of(op: Node | Eqn | Op) -> tuple[int, ...] | None:
    """For each axis of the result the axis of the operand, if an operation only reorders axes."""
    lower = op.primitive.lower
    if not isinstance(lower, Structural) or lower.axes is None or lower.view is ViewKind.REPEATED:
        return None
    axes = lower.axes(op.params)
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


def spread_axes(op: Node | Eqn | Op) -> tuple[int, ...] | None:
    """For each axis of the operand its axis in the result, if an operation repeats elements along the others."""
    lower = op.primitive.lower
    repeats = isinstance(lower, Structural) and lower.axes is not None and lower.view is ViewKind.REPEATED
    return tuple(lower.axes(op.params)) if repeats else None


def start_of(op: Node | Eqn) -> tuple[int, ...] | None:
    """The position in the operand at which the result starts, if the result is a window of the operand."""
    lower = op.primitive.lower
    start = lower.start(op.params) if isinstance(lower, Structural) and lower.start is not None else None
    return None if start is None else tuple(start)


def counted_axis(op: Node | Eqn) -> int | None:
    """The axis along which each element of the result is its position."""
    lower = op.primitive.lower
    return lower.counts(op.params) if isinstance(lower, Structural) and lower.counts is not None else None


def keeps_layout(node: Node) -> bool:
    """Whether result and operand have the same elements in the same memory order, under another shape."""
    view = view_of(node)
    return view in (ViewKind.SAME, ViewKind.REGROUPED) or (
        view is ViewKind.REPEATED and node.inputs[0].size == node.outputs[0].size
    )
