"""Mesh axes over which values vary: operands of an operation are converted to vary over the same ones."""

from __future__ import annotations

from typing import Any

from mpijax.core import provided
from mpijax.core.avals import NO_AXES
from mpijax.core.state import state
from mpijax.core.typeof import typeof


def unify_varying(primitive, args):
    """Convert all operands of an operation to vary over the union of their mesh axes."""
    if primitive.vma is not None:
        return args
    avals = [typeof(a) for a in args]
    union = frozenset().union(*(a.vma for a in avals)) if avals else NO_AXES
    if not union or all(a.vma == union for a in avals):
        return args
    return tuple(varying_over(union, x) for x in args)


def varying_over(axes: frozenset, x: Any) -> Any:
    """x converted to vary also over these mesh axes."""
    missing = axes - typeof(x).vma
    return provided.pvary(x, tuple(n for n in state.axis_env if n in missing)) if missing else x
