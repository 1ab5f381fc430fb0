"""What this process knows of its job."""

from typing import Any

from mpijax.runtime.devices import process_count, process_index

__all__ = ["global_state"]


class _State:
    """JAX's coordination service is not here: ranks are those of MPI, so there is no client of it."""

    client: Any = None
    service: Any = None
    preemption_sync_manager: Any = None
    coordinator_address: str | None = None
    process_id = property(lambda self: process_index())
    num_processes = property(lambda self: process_count())


global_state = _State()
