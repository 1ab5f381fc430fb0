"""The `out_sharding` argument of functions that make one array: in which layout they return it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from mpijax.core import provided

F = TypeVar("F", bound=Callable)


def laid_out(x: Any, out_sharding: Any, name: str) -> Any:
    """`x`, the result of the function `name`, in the layout that its caller asked for; None leaves it as it is."""
    if out_sharding is None:
        return x
    return provided.lay_result_out(x, out_sharding, name)


def explicit_layout(out_sharding: Any, name: str) -> Any:
    """The layout that a caller of the function `name` asks for, if it is over Explicit mesh axes, else None.

    Primitives take it as a parameter: their results have that type, whatever would follow from their operands.
    """
    if out_sharding is None:
        return None
    return provided.explicit_layout(out_sharding, name)


def layout_in_context(placement: Any, name: str) -> Any:
    """The same for a device, a layout or None, of what has no operands: over the mesh in context, which has devices."""
    if placement is None or not (hasattr(placement, "mesh") or hasattr(placement, "axes_of")):
        return None
    return explicit_layout(placement, name) if provided.over_context_mesh(placement) else None


def over_devices(layout: Any) -> Any:
    """A layout over the mesh in context where it is over an `AbstractMesh`; None without such a mesh."""
    if not hasattr(layout, "mesh"):
        return layout
    return provided.over_devices(layout, "sharding")


def takes_out_sharding(fun: F) -> F:
    """`fun`, whose result is laid out as `out_sharding` says, which it names in its signature and need not look at."""

    @wraps(fun)
    def call(*args, out_sharding=None, **kwargs):
        layout = explicit_layout(out_sharding, fun.__name__)
        if layout is not None:
            return provided.laid_out_inside(fun, args, kwargs, layout, out_sharding)
        return laid_out(fun(*args, **kwargs), out_sharding, fun.__name__)

    return call  # type: ignore[return-value]
