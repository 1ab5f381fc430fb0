"""``mpijax.distributed``: joining the ranks of a job.

Under a launcher (mpirun, srun) the ranks find each other by MPI, and nothing needs to be called: `initialize`
then only starts MPI now, and checks that the arguments agree with what the launcher did.
"""

from __future__ import annotations

from typing import Any

__all__ = ["initialize", "is_initialized", "shutdown"]


class _State:
    initialized = False


_state = _State()


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: Any = None,
    **_others: Any,
) -> None:
    """Start MPI, and check the number of processes and this one's id against the launcher's.

    Args:
      coordinator_address: not needed: the launcher connects the processes.
      num_processes, process_id: what the program expects; None to accept what there is.
      local_device_ids: a rank has one device, number 0.

    Raises:
      RuntimeError: called twice, or the job is not the one that the arguments describe.
    """
    from mpijax.runtime import mpi_start

    if _state.initialized:
        raise RuntimeError("distributed.initialize should only be called once.")
    ids = [local_device_ids] if isinstance(local_device_ids, int) else list(local_device_ids or [0])
    if ids != [0]:
        raise ValueError(
            f"a rank of mpijax owns one device, number 0; got local_device_ids={local_device_ids}"
        )
    size, rank = mpi_start.size(), mpi_start.rank()
    if num_processes is not None and num_processes != size:
        raise RuntimeError(
            f"distributed.initialize expects {num_processes} processes, but this job has {size}. Start it "
            f"with mpirun -n {num_processes} python ... (or srun -n {num_processes})."
        )
    if process_id is not None and process_id != rank:
        raise RuntimeError(
            f"distributed.initialize expects this process to be number {process_id}, but the launcher made "
            f"it rank {rank} of {size}. Leave process_id out: the launcher numbers the processes."
        )
    _state.initialized = True


def is_initialized() -> bool:
    """Whether `initialize` has been called."""
    return _state.initialized


def shutdown() -> None:
    """Forget `initialize`; MPI ends with the process, by itself."""
    _state.initialized = False
