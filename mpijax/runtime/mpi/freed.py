"""Programs whose communicator is freed: their next run raises instead of using an invalid handle.

MPICH gives the handle of a freed communicator to the next one, which the program would then use. In Open MPI the handle
points to freed memory. So each communicator of the user keeps the programs that use it, and invalidates them when it is
freed. Programs of single operations, which can no longer be run, are dropped with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import field
from typing import Any

from mpijax.compiler.steps.instructions import Communicate, walk
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.runtime.mpi import mpi_start


def tie(program: Any, instructions: tuple[Any, ...]) -> None:
    """Make the next run of `program` raise RuntimeError once a communicator of its instructions has been freed."""
    MPI = mpi_start.start().MPI
    for step in walk(instructions):
        if not isinstance(step, Communicate) or not step.lower.on_communicator:
            continue
        comm = step.params["comm"].value
        if comm is None or comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
            continue
        what, line = step.lower.name, str(step.source) if step.source.file else ""
        if comm == MPI.COMM_NULL:
            _refuse(what, line, "traced")
        _tied(comm).programs.setdefault(program, (what, line))


def forget_with(params: Any, action: Callable[[], object]) -> None:
    """Call `action` when the communicator in an operation's parameters is freed."""
    comm, start = getattr(params.get("comm"), "value", None), mpi_start.start()
    MPI = start.MPI
    if comm is None and start.survives:  # then another communicator may replace mpijax's own
        comm = start.world
    if comm is not None and comm not in (MPI.COMM_NULL, MPI.COMM_WORLD, MPI.COMM_SELF):
        _tied(comm).actions.append(action)


@dataclass
class _Tied:
    """The users of a communicator. programs: for each, its first operation on it, and the line."""

    programs: dict[Any, tuple[str, str]] = field(default_factory=dict)
    actions: list[Callable[[], object]] = field(default_factory=list)


def _tied(comm: Any) -> _Tied:
    found = _attribute().get(comm)
    if found is None:
        _attribute().set(comm, found := _Tied())
    return found


@functools.cache
def _attribute() -> Any:
    return mpi_start.start().ext.Attribute(_tell)


def forget(comm: Any) -> None:
    """Drop the programs of single operations on a communicator that is no longer used."""
    _tell(_tied(comm))


def _tell(tied: _Tied) -> None:
    for action in tied.actions:
        action()
    for program, (what, line) in tied.programs.items():
        program.first = functools.partial(_refuse, what, line, "compiled")


def _refuse(what: str, line: str, done: str, _args: list[Any] | None = None) -> None:
    raise RuntimeError(
        f"{what} on rank {mpi_start.rank()}: invalid communicator: it was freed after the program was {done}"
        + (f"\nat {line}" if line else "")
    )
