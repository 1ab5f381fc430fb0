"""``mpijax.distributed``: forming a job from its ranks, and leaving it on request.

Under a launcher (mpirun, srun) the ranks find each other through MPI, and no call is needed: `initialize` then only
starts MPI at once, and checks that its arguments agree with the launcher. Without a launcher it connects the processes
itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from mpijax.aliasing import in_force
from mpijax.distributed.preemption import should_stop as should_stop

__all__ = ["initialize", "is_initialized", "should_stop", "shutdown", "survivors"]


class _Initialization:
    initialized = False


_state = _Initialization()


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: int = 300,
    heartbeat_timeout_seconds: int = 100,
    shutdown_timeout_seconds: int = 300,
    coordinator_bind_address: str | None = None,
    slice_index: int | None = None,
    partition_index: int | None = None,
) -> None:
    """Start MPI. Under a launcher, or once MPI runs, the arguments are only checked. Without a launcher, the processes
    connect to process 0 and become ranks (MPICH only). Collective.

    Args:
      coordinator_address: ``host:port`` of process 0, with a free port; also ``MPIJAX_COORDINATOR_ADDRESS`` or
        ``JAX_COORDINATOR_ADDRESS``. Processes that connect prove that they know the job's secret: ``MPIJAX_SECRET``,
        a file ``MPIJAX_SECRET_FILE``, or one in the user's home directory, which is created if necessary.
      num_processes, process_id: the number of processes and the number of this one; None under a launcher.
      local_device_ids: a rank has one device, number 0.
      initialization_timeout: seconds to wait for the other processes.
      coordinator_bind_address: the address on which process 0 listens: by default every address of its machine, or only
        the loopback interface if the coordinator address is on it.
      cluster_detection_method, heartbeat_timeout_seconds, shutdown_timeout_seconds, slice_index, partition_index:
        JAX's; MPI does not need them. The end of a rank is noticed at once.

    With `mpijax.as_jax`, rank 0 of several also serves the keys, values and barriers that libraries exchange in
    threads.

    Raises:
      RuntimeError: called twice; the arguments describe another job; processes that did not arrive, with their numbers;
        an MPI library that cannot start without its launcher.
      ValueError, TypeError: arguments that are incomplete or out of range.

    >>> mpijax.distributed.initialize()
    >>> mpijax.distributed.is_initialized()
    True
    >>> mpijax.distributed.shutdown()
    """
    from mpijax.runtime.mpi import coordination, mpi_start  # loads MPI's module

    if _state.initialized:
        raise RuntimeError("distributed.initialize should only be called once.")
    ids = [local_device_ids] if isinstance(local_device_ids, int) else list(local_device_ids or [0])
    if ids != [0]:
        raise ValueError(
            f"Each rank of mpijax owns one device, number 0. Got local_device_ids={local_device_ids}."
        )
    address = (
        coordinator_address
        or os.environ.get("MPIJAX_COORDINATOR_ADDRESS")
        or os.environ.get("JAX_COORDINATOR_ADDRESS")
    )
    if address and num_processes != 1 and not _mpi_decides():
        _bring_together(address, coordinator_bind_address, num_processes, process_id, initialization_timeout)
    _check(num_processes, process_id, mpi_start.size(), mpi_start.rank())
    if in_force():
        coordination.start(alone=bool(address))  # as in JAX, where a coordinator serves one process too
    _state.initialized = True


def is_initialized() -> bool:
    """Whether `initialize` has been called.

    >>> mpijax.distributed.is_initialized()
    False
    """
    return _state.initialized


def shutdown() -> None:
    """Undo `initialize`; MPI itself ends with the process.

    >>> mpijax.distributed.initialize()
    >>> mpijax.distributed.shutdown()
    >>> mpijax.distributed.is_initialized()
    False
    """
    _state.initialized = False


def survivors() -> list[int]:
    """Continue with the remaining ranks after an operation has raised because a rank died.

    Collective over the remaining ranks: each calls it when an operation raises. Ranks that still wait in an operation
    get an error there. Afterwards these ranks form the job, renumbered from 0 in order: `process_index`,
    `process_count` and `devices` change accordingly. Compiled programs are dropped. Make meshes again. Shards on dead
    ranks are lost: restore them from a checkpoint. Your own communicators are unusable.

    Returns the ranks' previous numbers, in their new order. Needs Open MPI 5 and ``mpirun --with-ft ulfm``; ranks of a
    node then communicate by MPI, not through shared memory. Raises RuntimeError under other MPIs: there
    ``mpijax run --restart`` restarts the job.

    >>> try:
    ...     left = mpijax.distributed.survivors()
    ... except RuntimeError as error:
    ...     print(str(error).partition(". ")[0])
    distributed.survivors needs an MPI library that continues after a rank dies
    """
    from mpijax.distributed import survival

    return survival.survivors()


def _mpi_decides() -> bool:
    """Whether this process's rank is already fixed: by a launcher, or because MPI runs."""
    import sys

    from mpijax.distributed import launchers

    loaded = sys.modules.get("mpi4py.MPI")
    return launchers.under_launcher() or (loaded is not None and loaded.Is_initialized())


def _bring_together(
    address: str, bind: str | None, size: int | None, rank: int | None, seconds: float
) -> None:
    from mpijax.distributed import bootstrap
    from mpijax.runtime.mpi import mpi_start

    if size is None:
        raise ValueError(
            "Number of processes must be defined. No launcher started this program: pass num_processes=..."
        )
    if rank is None:
        raise ValueError(
            "The process id of this process must be defined. No launcher started this program: pass process_id=..."
        )
    for name, value in (("num_processes", size), ("process_id", rank)):
        if not isinstance(value, int):
            raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value)}")
    if not 0 <= rank < size:
        raise ValueError(f"process_id must be in [0, num_processes), got process_id={rank}, num_processes={size}")
    bootstrap.connect(address, bind, size, rank, seconds)
    try:
        mpi_start.start()
    finally:
        bootstrap.forget()


def _check(num_processes: int | None, process_id: int | None, size: int, rank: int) -> None:
    if num_processes is not None and num_processes != size:
        raise RuntimeError(
            f"distributed.initialize expects {num_processes} processes, but this job has {size}. Start it with mpirun "
            f"-n {num_processes} python ... or srun -n {num_processes}. Without a launcher, pass coordinator_address, "
            "and call initialize before anything that starts MPI."
        )
    if process_id is not None and process_id != rank:
        raise RuntimeError(
            f"distributed.initialize expects this process to be number {process_id}, but the launcher made "
            f"it rank {rank} of {size}. Leave process_id out: the launcher numbers the processes."
        )
