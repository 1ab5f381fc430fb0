"""Compares checksums of the values that enter a mesh of several processes; JAX requires equal values on all ranks.

`device_put` compares the values it is given. A program that reads arrays over all processes compares its other
arguments when its schedule of collectives runs for the first time. If values differ, the results would be inconsistent.
Each comparison takes 2 log2(ranks) messages of 17 bytes, as in the guard. More messages follow only to name the
difference. MPIJAX_GUARD=0 turns it off.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax._ext.array import ArrayBase, checksum
from mpijax.core.base.errors import MismatchError
from mpijax.core.base.source import current_source
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
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
    kinds = [(i, typeof(leaves[i]).str_short(True), str(places[i]), places[i].mesh.device_ids.tolist()) for i in chosen]
    line = str(current_source())
    what = f"device_put of {len(chosen)} value(s), {kinds[0][1]} first"
    found = _first_difference([leaves[i] for i in chosen], kinds, "the values of device_put", what, line)
    if found is None:
        return
    first, ranks = found
    path = tree.keystr(tree.tree_flatten_with_path(values)[0][chosen[first]][0]) or "itself"
    raise MismatchError(
        f"the value passed to device_put is not the same on each process: leaf {path} of type {kinds[first][1]} has "
        f"{_shares(ranks)}.\nat {line}\n"
        f"Every rank must pass the same whole value for {places[chosen[first]]}. Each rank keeps its shard. {_CAUSES}"
    )


def check_arguments(args: Sequence[Any], name: str) -> None:
    """Raise MismatchError on all ranks if arguments of a program that are whole on each rank differ.

    Only for a program that also reads arrays over all processes: its whole arguments belong to the same global
    computation. Collective then, so all ranks must be about to run the program.
    """
    if not any(_is_over_all_processes(x) for x in args) or threading.current_thread() is not threading.main_thread():
        return
    chosen = [i for i, x in enumerate(args) if not _is_over_mesh(x) and not getattr(x, "is_deleted", bool)()]
    kinds = [(i, typeof(args[i]).str_short(True)) for i in chosen]
    line, whole = str(current_source()), [args[i] for i in chosen]
    what = f"program {name!r} with the whole arguments {', '.join(kind for _, kind in kinds)}"
    found = _first_difference(whole, kinds, f"the whole arguments of {name!r}", what, line)
    if found is None:
        return
    first, ranks = found
    raise MismatchError(
        f"an argument of {name!r} is not the same on each process: array {chosen[first]} of the {len(args)} that it "
        f"reads, of type {kinds[first][1]}, has {_shares(ranks)}.\nat {line}\n"
        f"Other arguments are arrays over all processes, so every rank must pass the same whole value here. {_CAUSES}"
    )


_CAUSES = (
    "Likely causes: a random generator without a seed, or with a seed that depends on the rank; a value computed from "
    "the rank or the time; data read in another order. Make the value on rank 0 and broadcast it with "
    "mpijax.experimental.multihost_utils.broadcast_one_to_all, or make the array from different parts with "
    "mpijax.make_array_from_process_local_data. (MPIJAX_GUARD=0 turns this check off.)"
)


def _shares(ranks: list[int]) -> str:
    return f"one value on rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)} and another value on the other ranks"


def _is_over_mesh(x: Any) -> bool:
    return getattr(getattr(x, "_sharding", None), "mesh", None) is not None


def _is_over_all_processes(x: Any) -> bool:
    return _is_over_mesh(x) and x._sharding.mesh.num_processes == mpi_start.size() > 1


def _is_compared(x: Any, place: Any) -> bool:
    mesh = getattr(place, "mesh", None)
    if getattr(mesh, "num_processes", 1) < mpi_start.size():
        return False
    return not x.committed if isinstance(x, ArrayBase) else isinstance(x, (np.ndarray, np.generic, float, int, complex))


def _elements(x: Any) -> np.ndarray:
    return x._physical if isinstance(x, ArrayBase) else np.asarray(x)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


def _first_difference(
    values: Sequence[Any], kinds: list[Any], agreement: str, what: str, line: str
) -> tuple[int, list[int]] | None:
    """The first value that differs, and the ranks that agree with rank 0 on it; None if all values are equal.

    Raises MismatchError, which tells `what`, if the kinds differ. Collective over all ranks.
    """
    sums = np.array([checksum(_elements(x)) for x in values], np.uint64)
    group = recorder.group(mpi_start.world(), mpi_start.world())
    assert group is not None
    with recorder.operation(Site(f"agreement on {agreement}", line, group), GUARD):
        if guard.same_values(group, _digest(repr(kinds).encode()), _digest(sums.tobytes()), what, line):
            return None
        MPI, comm = mpi_start.start().MPI, mpi_start.start().control
        least, largest = np.empty_like(sums), np.empty_like(sums)
        comm.Allreduce(sums, least, MPI.MIN)
        comm.Allreduce(sums, largest, MPI.MAX)
        first = int(np.argmax(least != largest))
        everywhere = np.empty(comm.Get_size(), np.uint64)
        comm.Allgather(sums[first : first + 1], everywhere)
        return first, [int(r) for r in np.flatnonzero(everywhere == everywhere[0])]
