"""Thread-local state: the current trace, the named axes in scope, the mesh of the enclosing `shard_map`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class State(threading.local):
    """The current state of this thread.

    trace: the trace that processes primitives. body: the mesh of the enclosing `shard_map`s and the axes they map.
    split_freely: whether results with an ambiguous sharding become replicated instead of raising an error.
    """

    # The initial trace of a thread, set by `core.tracing.trace`.
    first_trace: Any = None

    def __init__(self) -> None:
        self.trace: Any = self.first_trace
        self.axis_env: dict[Any, int] = {}
        self.manual_axes: frozenset = frozenset()
        self.body: tuple[Any, frozenset] | None = None
        self.split_freely = False


state = State()


@contextmanager
def splitting_freely() -> Iterator[None]:
    """Inside, results with an ambiguous split over Explicit mesh axes become replicated instead of raising an error."""
    saved, state.split_freely = state.split_freely, True
    try:
        yield
    finally:
        state.split_freely = saved
