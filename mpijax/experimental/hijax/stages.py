"""Ahead of time: lowered and compiled functions that take or return values of types of libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.core import tree
from mpijax.core.trace import typeof
from mpijax.experimental.hijax.lowering import lower_jaxpr, repeated


class _Parts:
    """A value as a node of pytrees whose leaves are the values it consists of; put together, it is that value."""

    def __init__(self, aval: Any, parts: Sequence[Any]):
        self.aval = aval
        self.parts = parts


tree.register_pytree_node(
    _Parts, lambda node: (node.parts, node.aval), lambda aval, parts: aval.raise_val(*parts)
)


def with_parts(args: Any) -> Any:
    """A pytree in which what values of types of libraries consist of are leaves."""

    def opened(x: Any) -> Any:
        aval = typeof(x)
        return _Parts(aval, aval.lower_val(x)) if aval.is_high else x

    return tree.tree_map(opened, args)


def _structure(of_values: Any, avals: Sequence[Any]) -> Any:
    """The structure of parts of a pytree with values of these types."""
    leaves = [_Parts(a, [0] * len(a.lo_ty())) if a.is_high else 0 for a in avals]
    return tree.tree_structure(tree.tree_unflatten(of_values, leaves))


def lower_traced(traced: Any) -> Any:
    """A traced function as one of the values that its arguments and results consist of."""
    avals = traced.jaxpr.in_avals
    if any(a.has_qdd for a in avals):
        raise NotImplementedError(
            f"{traced.name} takes or closes over values that change: call it under jit. Ahead of time there are "
            "programs of values that do not."
        )
    moved = len(traced.moved)
    widths = [len(a.lo_ty()) for a in avals]
    return type(traced)(
        lower_jaxpr(traced.jaxpr),
        _structure(traced.in_tree, avals[moved:]),
        _structure(traced.out_tree, traced.jaxpr.out_avals[: traced.out_tree.num_leaves]),
        traced.name,
        repeated(traced.donated, widths),
        traced.keep_unused,
        traced.moved,
        repeated(traced.layouts, widths[moved:]),
        traced.written,
        traced.uses_refs,
    )
