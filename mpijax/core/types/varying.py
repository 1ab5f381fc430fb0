"""Mesh axes over which values vary: operands of an operation are converted to vary over the same ones."""

from __future__ import annotations

from typing import Any

from mpijax.core.base import config, provided
from mpijax.core.base.state import state
from mpijax.core.types.avals import NO_AXES
from mpijax.core.types.typeof import typeof


def unify_varying(primitive, args):
    """Convert all operands of an operation to vary over the union of their mesh axes.

    Raises ValueError for operands that vary over different axes if `jax_auto_pcast` is off.
    """
    if primitive.vma is not None:
        return args
    avals = [typeof(a) for a in args]
    union = frozenset().union(*(a.vma for a in avals)) if avals else NO_AXES
    if not union or all(a.vma == union for a in avals):
        return args
    if not config.values.jax_auto_pcast:
        raise ValueError(
            f"Primitive {primitive.name} requires varying manual axes to match, but got {[set(a.vma) for a in avals]}. "
            "Use jax.lax.pcast(..., to='varying') on operands that vary over fewer axes, or turn jax_auto_pcast on."
        )
    return tuple(varying_over(union, x) for x in args)


def varying_over(axes: frozenset, x: Any) -> Any:
    """x converted to vary also over these mesh axes."""
    aval = typeof(x)
    missing = axes - aval.vma
    if not missing:
        return x
    reduced = aval.split is not None and aval.split.reduced == missing
    cast = provided.basic.reduced_vary_cast if reduced else provided.basic.pvary
    return cast(x, tuple(n for n in state.axis_env if n in missing))
