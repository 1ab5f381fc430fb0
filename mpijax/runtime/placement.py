"""Arrays from the host's memory, and arrays laid out over ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax._ext.array import ArrayBase
from mpijax.core import tree
from mpijax.core.avals import ShapedArray
from mpijax.core.trace import Tracer, typeof
from mpijax.runtime.array import from_numpy  # which also makes known the class of arrays


def from_host(value: np.ndarray, aval: ShapedArray) -> Any:
    """An array of type `aval` with a copy of the elements of an ndarray."""
    return from_numpy(np.asarray(value), aval, copy=True)


def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: bool = False, may_alias: bool | None = None
) -> Any:
    """`x` (a pytree) as arrays on a device, or laid out as a `NamedSharding` says.

    For a sharding over several ranks every rank passes the same whole array and keeps its shard.
    """
    layouts = device
    if layouts is None or not isinstance(layouts, (list, tuple, dict)):
        return tree.tree_map(lambda leaf: _put(leaf, layouts), x)
    return tree.tree_map(_put, x, layouts)


def _put(x: Any, layout: Any) -> Any:
    if isinstance(x, Tracer):
        return _laid_out(x, layout) if hasattr(layout, "mesh") else x
    aval = typeof(x)
    if isinstance(x, ArrayBase):
        if layout is None or x._sharding == layout:
            return x
        if hasattr(layout, "mesh") and not x._is_whole:
            return _laid_out(x, layout)
        if not hasattr(layout, "mesh") and x._is_whole:
            return x
        value = x._physical if x._is_whole else gathered(x)._physical
    else:
        value = np.asarray(x).astype(aval.dtype, copy=False)
    if layout is None or not hasattr(layout, "mesh"):
        return from_host(value, aval)
    part = value if layout.is_fully_replicated else value[layout.local_slices(aval.shape)]
    return from_numpy(part, aval, copy=True, sharding=layout)


def _laid_out(x: Any, layout: Any) -> Any:
    """An array or traced value in another layout. Communicates: every rank must call it."""
    from mpijax.spmd.constraints import reshard  # that layer lies above this one

    return reshard(x, layout)


def gathered(x: Any) -> Any:
    """The whole of an array of which every rank has a shard. Communicates: every rank must call it."""
    from mpijax.spmd.shard_map import P, shard_map  # that layer lies above this one

    if x._is_whole:
        return x
    return shard_map(lambda whole: whole, mesh=x._sharding.mesh, in_specs=P(), out_specs=P())(x)


def device_get(x: Any) -> Any:
    """`x` (a pytree) with arrays as NumPy arrays (read-only views of the same memory)."""
    return tree.tree_map(lambda leaf: np.asarray(leaf) if isinstance(leaf, ArrayBase) else leaf, x)


def block_until_ready(x: Any) -> Any:
    """`x` itself: results are complete when they are returned."""
    for leaf in tree.tree_leaves(x):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return x
