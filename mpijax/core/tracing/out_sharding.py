"""Implements the `out_sharding` argument of functions that create one array: the sharding of the result."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from mpijax.core.base import provided

F = TypeVar("F", bound=Callable)


def laid_out(x: Any, out_sharding: Any, name: str) -> Any:
    """`x`, the result of function `name`, in the sharding that its caller requested; unchanged for None."""
    if out_sharding is None:
        return x
    return provided.lay_result_out(x, out_sharding, name)


def explicit_layout(out_sharding: Any, name: str) -> Any:
    """The sharding that a caller of function `name` requests, if it is over Explicit mesh axes, else None.

    Primitives take it as a parameter. It overrides the split that would follow from their operands.
    """
    if out_sharding is None:
        return None
    return provided.explicit_layout(out_sharding, name)


def layout_in_context(placement: Any, name: str) -> Any:
    """`explicit_layout` for functions without operands, whose placement may be a device, a sharding or None."""
    if placement is None or not (hasattr(placement, "mesh") or hasattr(placement, "axes_of")):
        return None
    return explicit_layout(placement, name) if provided.over_context_mesh(placement) else None


def over_devices(layout: Any) -> Any:
    """A sharding over an `AbstractMesh`, moved to the mesh in context; None without such a mesh. Others unchanged."""
    if not hasattr(layout, "mesh"):
        return layout
    return provided.over_devices(layout, "sharding")


def takes_out_sharding(fun: F) -> F:
    """Adds an `out_sharding` argument to `fun`, which has it in its signature and can ignore it."""

    @wraps(fun)
    def call(*args, out_sharding=None, **kwargs):
        layout = explicit_layout(out_sharding, fun.__name__)
        if layout is not None:
            return provided.laid_out_inside(fun, args, kwargs, layout, out_sharding)
        return laid_out(fun(*args, **kwargs), out_sharding, fun.__name__)

    return call  # type: ignore[return-value]
