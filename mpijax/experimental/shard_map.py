"""``jax.experimental.shard_map``: `mpijax.shard_map` at its older place, with its older signature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.spmd import shard_map as _shard_map

__all__ = ["shard_map"]


def shard_map(
    f: Callable,
    mesh: Any,
    in_specs: Any,
    out_specs: Any,
    check_rep: bool = True,
    auto: frozenset = frozenset(),
) -> Callable:
    """As `mpijax.shard_map`. `check_rep` is its `check_vma`; axes in `auto` are not mapped.

    >>> mesh = mpijax.make_mesh((1,), ("x",))
    >>> f = mpijax.experimental.shard_map.shard_map(lambda x: lax.psum(x, "x"), mesh, mpijax.P("x"), mpijax.P())
    >>> f(jnp.arange(3))
    Array([0, 1, 2], dtype=int32)
    """
    names = None if not auto else set(mesh.axis_names) - set(auto)
    return _shard_map.shard_map(
        f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=names, check_vma=check_rep
    )
