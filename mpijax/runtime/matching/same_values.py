"""Compares checksums of the values that enter a mesh of several processes; JAX requires equal values on all ranks.

Each rank keeps its shard of the value it was given. If values differ, the resulting array would be inconsistent. Each
call makes one comparison: 2 log2(ranks) messages of 17 bytes, as in the guard. More messages follow only to name the
difference. MPIJAX_GUARD=0 turns it off.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax._ext.array import ArrayBase, checksum
from mpijax.core import tree
from mpijax.core.errors import MismatchError
from mpijax.core.source import current_source
from mpijax.core.typeof import typeof
from mpijax.runtime.matching import guard
from mpijax.runtime.mpi import mpi_start
from mpijax.runtime.reports.recorder import GUARD, Site, ranges, recorder


def check(values: Any, leaves: Sequence[Any], places: Sequence[Any]) -> None:
    """Raise MismatchError on all ranks if leaves of `values` that go to a sharding over all processes differ.

    MPI must run. Collective if there are such leaves: host values, or arrays on a single process that are uncommitted.
    """
    chosen = [i for i, (x, place) in enumerate(zip(leaves, places, strict=True)) if _is_compared(x, place)]
    if not chosen or not guard.enabled() or threading.current_thread() is not threading.main_thread():
        return
    kinds = [(i, typeof(leaves[i]).str_short(), str(places[i]), places[i].mesh.device_ids.tolist()) for i in chosen]
    sums = np.array([checksum(_elements(leaves[i])) for i in chosen], np.uint64)
    what, line = f"device_put of {len(chosen)} value(s), {kinds[0][1]} first", str(current_source())
    group = recorder.group(mpi_start.world(), mpi_start.world())
    assert group is not None
    with recorder.operation(Site("agreement on the values of device_put", line, group), GUARD):
        if guard.same_values(group, _digest(repr(kinds).encode()), _digest(sums.tobytes()), what, line):
            return
        first, ranks = _first_difference(sums)
    path = tree.keystr(tree.tree_flatten_with_path(values)[0][chosen[first]][0]) or "itself"
    raise MismatchError(
        f"the value passed to device_put is not the same on each process: leaf {path} of type {kinds[first][1]} has "
        f"one value on rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)} and another value on the other ranks.\nat "
        f"{line}\n"
        f"Every rank must pass the same whole value for {places[chosen[first]]}. Each rank keeps its shard. Likely "
        "causes: a random generator without a seed, or with a seed that depends on the rank; a value computed from "
        "the rank or the time; data read in another order. Make the value on rank 0 and broadcast it with "
        "mpijax.experimental.multihost_utils.broadcast_one_to_all, or make the array from different parts with "
        "mpijax.make_array_from_process_local_data. (MPIJAX_GUARD=0 turns this check off.)"
    )


def _is_compared(x: Any, place: Any) -> bool:
    mesh = getattr(place, "mesh", None)
    if getattr(mesh, "num_processes", 1) < mpi_start.size():
        return False
    return not x.committed if isinstance(x, ArrayBase) else isinstance(x, (np.ndarray, np.generic, float, int, complex))


def _elements(x: Any) -> np.ndarray:
    return x._physical if isinstance(x, ArrayBase) else np.asarray(x)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


def _first_difference(sums: np.ndarray) -> tuple[int, list[int]]:
    """The first value that differs, and the ranks that agree with rank 0 on it. Collective over all ranks."""
    MPI, comm = mpi_start.start().MPI, mpi_start.start().control
    least, largest = np.empty_like(sums), np.empty_like(sums)
    comm.Allreduce(sums, least, MPI.MIN)
    comm.Allreduce(sums, largest, MPI.MAX)
    first = int(np.argmax(least != largest))
    everywhere = np.empty(comm.Get_size(), np.uint64)
    comm.Allgather(sums[first : first + 1], everywhere)
    return first, [int(r) for r in np.flatnonzero(everywhere == everywhere[0])]
