"""Ahead of time: lowered and compiled functions that take or return values of types of libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.transforms.high_programs import Change, LoweredJaxpr, Parts, lowered, repeated


class _HighValueNode:
    """A value as a node of pytrees whose leaves are the values it consists of; put together, it is that value.

    One that changes is not put together: what a program does to it is written into the one that was given.
    """

    def __init__(self, aval: Any, state: Any, parts: Sequence[Any]):
        self.aval = aval
        self.state = state
        self.parts = parts

    @staticmethod
    def of(x: Any) -> Any:
        aval = typeof(x)
        if not aval.is_high:
            return x
        parts = Parts.of([x])
        return _HighValueNode(aval, parts.states[0], parts.values)


def _closed(fixed: tuple[Any, Any], parts: Sequence[Any]) -> Any:
    aval, state = fixed
    return _HighValueNode(aval, state, parts) if aval.has_qdd else aval.raise_val(*parts)


tree.register_pytree_node(_HighValueNode, lambda node: (node.parts, (node.aval, node.state)), _closed)


class _Returned:
    """A result, after what is in the arguments that change."""

    def __init__(self, changes: tuple[Change, ...], changed: Sequence[Any], out: Any):
        self.changes = changes
        self.changed = changed
        self.out = out


tree.register_pytree_node(
    _Returned,
    lambda node: ((list(node.changed), node.out), node.changes),
    lambda changes, children: _Returned(changes, *children),
)


def with_parts(args: Any) -> Any:
    """A pytree in which what values of types of libraries consist of are leaves."""
    return tree.tree_map(_HighValueNode.of, args)


def is_changing(result: Any) -> bool:
    """Whether this is a result of `lower_traced`: what the function returns, with changes to its arguments."""
    return isinstance(result, _Returned)


def delivered(result: Any, args: Any) -> Any:
    """What a compiled program returned for the user, and its arguments changed as it did."""
    if not isinstance(result, _Returned):
        return result
    LoweredJaxpr(None, list(result.changes)).write_back(tree.tree_leaves(args), result.changed)  # type: ignore[arg-type]
    return result.out


def _structure(of_values: Any, avals: Sequence[Any], states: Sequence[Any]) -> Any:
    """The structure of parts of a pytree with values of these types."""
    leaves = [
        _HighValueNode(a, s, [0] * len(a.lo_ty_qdd(s) if a.has_qdd else a.lo_ty())) if a.is_high else 0
        for a, s in zip(avals, states, strict=True)
    ]
    return tree.tree_structure(tree.tree_unflatten(of_values, leaves))


def lower_traced(traced: Any) -> Any:
    """A traced function as one of the values that its arguments and results consist of."""
    moved, jaxpr = len(traced.moved), traced.jaxpr
    if any(a.has_qdd for a in jaxpr.in_avals[:moved]):
        raise NotImplementedError(
            f"{traced.name} closes over a mutable value. Pass it as an argument, or call the function under jit."
        )
    states = tuple(a.initial() if a.has_qdd else None for a in jaxpr.in_avals)
    avals = [a.aval if a.has_qdd else a for a in jaxpr.in_avals]
    low = lowered(jaxpr, states)
    widths = [len(a.lo_ty_qdd(s) if a.has_qdd else a.lo_ty()) for a, s in zip(avals, states, strict=True)]
    out_avals = jaxpr.out_avals[: traced.out_tree.num_leaves]
    out_tree = _structure(traced.out_tree, out_avals, [None] * len(out_avals))
    if low.changes:
        out = tree.tree_unflatten(out_tree, [0] * out_tree.num_leaves)
        out_tree = tree.tree_structure(_Returned(tuple(low.changes), [0] * sum(low.counts), out))
    return type(traced)(
        low.jaxpr,
        _structure(traced.in_tree, avals[moved:], states[moved:]),
        out_tree,
        traced.name,
        repeated(traced.donated, widths),
        traced.keep_unused,
        traced.moved,
        repeated(traced.shardings, widths[moved:]),
        traced.written,
        traced.uses_refs,
    )
