"""``mpijax.experimental.multihost_utils``: values of all processes on every one."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import tree

__all__ = ["broadcast_one_to_all", "process_allgather", "sync_global_devices"]


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The values of all processes as NumPy arrays; every process must call it.

    Of an array laid out over processes, the whole. Of arrays that each process has to itself, all of them
    along a new first axis, or joined along the first one with `tiled`.
    """
    from mpijax.runtime import mpi_start
    from mpijax.runtime.placement import gathered

    def one(x):
        if not getattr(x, "_is_whole", True):
            return np.asarray(gathered(x))
        parts = mpi_start.world().allgather(np.asarray(x))
        return np.concatenate(parts) if tiled else np.stack(parts)

    return tree.tree_map(one, in_tree)


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The values of process 0, or of the one with `is_source`, as NumPy arrays on every process."""
    from mpijax.runtime import mpi_start

    world = mpi_start.world()
    sources = world.allgather(world.Get_rank() == 0 if is_source is None else bool(is_source))
    if sum(sources) != 1:
        raise ValueError(f"broadcast_one_to_all: exactly one process must be the source, got {sources}")
    return world.bcast(tree.tree_map(np.asarray, in_tree), root=sources.index(True))


def sync_global_devices(name: str) -> None:
    """Wait until all processes have come here with the same name; AssertionError where names differ."""
    from mpijax.runtime import mpi_start

    names = mpi_start.world().allgather(name)
    if len(set(names)) != 1:
        raise AssertionError(f"sync_global_devices name mismatch: the processes gave {names}")
