"""Implements the `out_sharding` argument of functions that create one array: the sharding of the result."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from mpijax.core.base import provided
from mpijax.core.sharding.context import context_mesh, get_abstract_mesh
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing import requested
from mpijax.core.tracing.requested import check_explicit, check_memory

F = TypeVar("F", bound=Callable)


def put(x: Any, place: Any) -> Any:
    """An array on a device, or in a sharding."""
    return provided.device_put(x, place)


def with_out_sharding(x: Any, out_sharding: Any, name: str) -> Any:
    """`x`, the result of function `name`, in the sharding that its caller requested; unchanged for None."""
    if out_sharding is None:
        return x
    return provided.with_out_sharding(x, out_sharding, name)


def explicit_sharding(out_sharding: Any, name: str) -> NamedSharding | None:
    """The sharding that a caller of function `name` requests, if it is over Explicit mesh axes, else None.

    Primitives take it as a parameter. It overrides the split that would follow from their operands.

    Raises ValueError for a PartitionSpec without a mesh in context, for a sharding over another mesh than that, that
    names axes of other types, or that has a kind of memory and no devices; TypeError for anything but a sharding.
    """
    if out_sharding is None:
        return None
    context = get_abstract_mesh()
    if isinstance(out_sharding, PartitionSpec):
        if context.empty:
            raise ValueError(
                "Using PartitionSpec when you are not under a mesh context is not allowed. Please pass a NamedSharding "
                f"instance or enter into a mesh context via `jax.set_mesh`. Got {out_sharding}"
            )
        sharding = NamedSharding(context, out_sharding)
    elif isinstance(out_sharding, NamedSharding):
        sharding = out_sharding
    else:
        raise TypeError(
            f"`out_sharding` argument of {name} only supports instances of `NamedSharding` or `PartitionSpec`. Got "
            f"{out_sharding} of type: {type(out_sharding)}"
        )
    if sharding.mesh.empty:
        return None
    check_memory(sharding)
    mesh = sharding.mesh.abstract_mesh
    if not (context.empty or context == mesh or (context.are_all_axes_auto and mesh.are_all_axes_auto)):
        raise ValueError(f"Context mesh {context} should match the mesh of sharding {mesh} passed to {name}.")
    check_explicit(sharding, mesh, name)
    return NamedSharding(mesh, sharding.spec) if mesh.is_explicit else None


def over_context_mesh(sharding: Any) -> bool:
    """Whether a sharding, or a PartitionSpec, is over the mesh in context and that mesh has Explicit axes."""
    mesh, types = context_mesh(), get_abstract_mesh()
    return mesh is not None and types.is_explicit and getattr(sharding, "mesh", mesh) in (mesh, types)


def sharding_in_context(placement: Any, name: str) -> Any:
    """`explicit_sharding` for functions without operands, whose placement may be a device, a sharding or None."""
    if placement is None or not (hasattr(placement, "mesh") or hasattr(placement, "axes_of")):
        return None
    return explicit_sharding(placement, name) if over_context_mesh(placement) else None


def over_devices(sharding: Any) -> Any:
    """A sharding over an `AbstractMesh`, moved to the mesh in context; None without such a mesh. Others unchanged."""
    if not hasattr(sharding, "mesh"):
        return sharding
    return requested.over_devices(sharding, "sharding")


def under_auto_axes(fun: Callable, args: tuple, kwargs: dict, sharding: Any, given: Any) -> Any:
    """The result of a function in a sharding over Explicit axes, which are Auto inside. given: what the caller gave."""
    return provided.under_auto_axes(fun, args, kwargs, sharding, given)


def takes_out_sharding(fun: F) -> F:
    """Adds an `out_sharding` argument to `fun`, which has it in its signature and can ignore it."""

    @wraps(fun)
    def call(*args, out_sharding=None, **kwargs):
        sharding = explicit_sharding(out_sharding, fun.__name__)
        if sharding is not None:
            return under_auto_axes(fun, args, kwargs, sharding, out_sharding)
        return with_out_sharding(fun(*args, **kwargs), out_sharding, fun.__name__)

    return call  # type: ignore[return-value]
