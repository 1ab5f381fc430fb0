"""What this process knows of its job."""

from typing import Any

from mpijax.runtime.arrays.devices import process_count, process_index
from mpijax.runtime.mpi import coordination

__all__ = ["global_state"]


class _GlobalState:
    """There is a client after `distributed.initialize`: on several ranks, and on one rank that names a coordinator."""

    service: Any = None
    preemption_sync_manager: Any = None
    coordinator_address: str | None = None
    client = property(lambda self: coordination.client())
    process_id = property(lambda self: process_index())
    num_processes = property(lambda self: process_count())


global_state = _GlobalState()
