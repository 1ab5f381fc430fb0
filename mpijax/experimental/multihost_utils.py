"""``mpijax.experimental.multihost_utils``: exchange values between all processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mpijax import missing as _missing
from mpijax._ext.array import ArrayBase
from mpijax.core import dtypes
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import flatten_axes
from mpijax.core.types.typeof import typeof
from mpijax.runtime.arrays.devices import process_count
from mpijax.runtime.arrays.placement import gathered
from mpijax.runtime.mpi import coordination, mpi_start, objects
from mpijax.spmd.local_views import to_global, to_local

__all__ = [
    "assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array", "host_local_array_to_global_array",
    "live_devices", "process_allgather", "reached_preemption_sync_point", "sync_global_devices",
]  # fmt: skip


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The values of all processes, as NumPy arrays. Collective: every process must call it.

    For an array sharded over processes, returns the whole array; pass `tiled=True`. For arrays of single processes,
    stacks them along a new first axis, or with `tiled` joins them along their first axis; numbers are stacked.

    Raises ValueError for an array sharded over processes without `tiled`, as JAX does.

    >>> from mpijax.experimental import multihost_utils
    >>> multihost_utils.process_allgather(jnp.arange(3))
    array([[0, 1, 2]], dtype=int32)
    """
    def one(x):
        if not getattr(x, "is_fully_addressable", True) and not _is_of_another(x):
            if not tiled:
                raise ValueError(
                    "Gathering global non-fully-addressable arrays only supports tiled=True: process_allgather got "
                    f"{typeof(x).str_short(False)} sharded as {x.sharding}"
                )
            return np.asarray(x if x._is_whole else gathered(x))
        parts = objects.allgather(_host_value(x), "multihost_utils.process_allgather")
        if lacking := [i for i, part in enumerate(parts) if part is None]:
            raise ValueError(
                f"process_allgather: processes {lacking} have no shard of an array that is whole on other processes"
            )
        if tiled and len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if tiled and parts[0].ndim else np.stack(parts)

    return tree.tree_map(one, in_tree)


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The values of process 0, or of the process with `is_source`, as NumPy arrays on every process. Collective.

    >>> from mpijax.experimental import multihost_utils
    >>> multihost_utils.broadcast_one_to_all(jnp.arange(3))
    array([0, 1, 2], dtype=int32)
    """
    what = "multihost_utils.broadcast_one_to_all"
    sources = objects.allgather(mpi_start.rank() == 0 if is_source is None else bool(is_source), what)
    if sum(sources) != 1:
        raise ValueError(f"broadcast_one_to_all: exactly one process must be the source, got {sources}")
    return objects.bcast(tree.tree_map(_host_value, in_tree), sources.index(True), what)


def _is_of_another(x: Any) -> bool:
    """Whether one other process holds the whole array."""
    return isinstance(x, ArrayBase) and x.sharding.is_elsewhere and len(x.sharding.processes) == 1


def _host_value(x: Any) -> np.ndarray | None:
    """The value as an ndarray, with the dtype of an array. None if the array is on another process."""
    if _is_of_another(x):
        return None
    value = np.asarray(x)
    return value if mpi_start.size() == 1 else value.astype(dtypes.canonicalize_dtype(value.dtype), copy=False)


def sync_global_devices(name: str) -> None:
    """Wait until all processes have called this with the same name. Raises AssertionError if names differ. Collective.

    >>> from mpijax.experimental import multihost_utils
    >>> multihost_utils.sync_global_devices("after set-up")
    """
    names = objects.allgather(name, "multihost_utils.sync_global_devices")
    if len(set(names)) != 1:
        raise AssertionError(f"sync_global_devices name mismatch: the processes gave {names}")


@contextmanager
def live_devices(devices: Sequence[Any]) -> Iterator[list[Any]]:
    """The devices, whose processes all run at the beginning and at the end of the block. Collective at both.

    MPI ends a job in which a process fails, so no device is missing in the block. Jobs that go on with fewer processes
    call `mpijax.distributed.survivors`.

    Raises NotImplementedError if the devices are not those of all processes.

    >>> from mpijax.experimental import multihost_utils
    >>> with multihost_utils.live_devices(mpijax.devices()) as live:
    ...     assert live == mpijax.devices()
    """
    here, all_ = sorted({d.process_index for d in devices}), list(range(process_count()))
    if here != all_:
        raise NotImplementedError(
            f"live_devices waits for all processes, {all_}, and got devices of the processes {here} only. Pass "
            "jax.devices() and choose from the result."
        )
    sync_global_devices("live_devices begins")
    yield list(devices)
    sync_global_devices("live_devices ends")


def reached_preemption_sync_point(step_id: int) -> bool:
    """False: as in JAX without its preemption service. Use `mpijax.distributed.should_stop`, which is collective.

    Raises RuntimeError if the ranks have a client of `runtime.mpi.coordination`; libraries treat that as False.

    >>> from mpijax.experimental import multihost_utils
    >>> multihost_utils.reached_preemption_sync_point(3)
    False
    """
    if coordination.client() is None:
        return False
    raise RuntimeError(
        "Preemption sync manager has not been initialized, because mpijax does not have one. Call "
        "mpijax.distributed.should_stop() on every rank, at every step."
    )


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raise AssertionError on every process whose values differ from those of process 0. Collective: all must call it.

    >>> from mpijax.experimental import multihost_utils
    >>> multihost_utils.assert_equal(jnp.arange(3))
    """
    expected = broadcast_one_to_all(in_tree)
    same = tree.tree_leaves(tree.tree_map(lambda a, b: np.array_equal(a, b), in_tree, expected))
    verdicts = objects.allgather(all(same), "multihost_utils.assert_equal")
    if not all(verdicts):
        others = [i for i, equal in enumerate(verdicts) if not equal]
        raise AssertionError(
            f"{fail_message}. Expected: {expected} (the value of process 0); got: {in_tree}. Processes {others} have "
            "other values."
        )


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """Global arrays whose shards are the arrays (a pytree) of each process. `pspecs`, a prefix pytree, gives the
    shardings.

    >>> from mpijax.experimental import multihost_utils
    >>> mesh, rows = mpijax.make_mesh((1,), ("x",)), mpijax.P("x")
    >>> multihost_utils.host_local_array_to_global_array(jnp.arange(3), mesh, rows)
    Array([0, 1, 2], dtype=int32)
    """
    return _over_specs("host_local_array_to_global_array", to_global, local_inputs, global_mesh, pspecs)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """This process's shards of global arrays (a pytree) with the shardings `pspecs`, as arrays of this process.

    Communicates if the arrays have other shardings.

    >>> from mpijax.experimental import multihost_utils
    >>> mesh, rows = mpijax.make_mesh((1,), ("x",)), mpijax.P("x")
    >>> multihost_utils.global_array_to_host_local_array(jnp.arange(3), mesh, rows)
    Array([0, 1, 2], dtype=int32)
    """
    return _over_specs("global_array_to_host_local_array", to_local, global_inputs, global_mesh, pspecs)


def _over_specs(name: str, convert, inputs, mesh, pspecs):
    leaves, structure = tree.tree_flatten(inputs)
    specs = flatten_axes(f"{name} pspecs", structure, pspecs)
    for s in specs:
        if not isinstance(s, PartitionSpec):
            raise ValueError(f"`None` is not a valid input to the pspecs argument of {name}, got {s!r}. Use P()")
    return tree.tree_unflatten(structure, [convert(x, mesh, s) for x, s in zip(leaves, specs, strict=True)])


def __getattr__(name: str):
    raise _missing.error(__name__, name)
