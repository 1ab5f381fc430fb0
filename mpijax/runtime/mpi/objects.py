"""Collectives of Python values, outside of programs; recorded and watched as those of programs are.

They use a separate communicator. If a rank runs a program meanwhile, these collectives wait and are reported; they
never match the program's. All functions communicate.
"""

from __future__ import annotations

import pickle
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from mpijax.core.base.source import current_source
from mpijax.runtime.mpi import mpi_start
from mpijax.runtime.reports.recorder import Site, recorder


def recorded(what: str, comm: Any = None, users: bool = False, nbytes: int = 0) -> AbstractContextManager[None]:
    """Records a Python operation on a communicator (default: the one for values), at the user's line.

    Entering the context raises RuntimeError if another thread of this rank communicates.
    """
    start = mpi_start.start()
    if start.size == 1:
        return nullcontext()
    source = current_source()
    group = recorder.group(start.control if comm is None else comm, start.world, users)
    if group is not None and comm is None:
        group.name = "all ranks"  # the user need not know that this communicator is a separate one
    return recorder.operation(Site(what, str(source) if source.file else "", group), nbytes=nbytes)


def allgather(value: Any, what: str) -> list[Any]:
    """The values of all ranks, in rank order. what: the operation's name in reports."""
    size = mpi_start.size()
    if size == 1:
        return [value]
    data = np.frombuffer(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), np.uint8)
    lengths, own = np.empty(size, np.int64), np.array([data.size])
    with recorded(what, nbytes=data.size):
        _move("allgather", own, lengths)
        blocks = np.empty((size, int(lengths.max())), np.uint8)
        _move("allgather", np.resize(data, blocks.shape[1]), blocks)
    return [pickle.loads(block[:n].data) for block, n in zip(blocks, lengths, strict=True)]


def alltoall(values: list[Any], what: str) -> list[Any]:
    """The values that all ranks have for this one. values: one for each rank."""
    if mpi_start.size() == 1:
        return values
    with recorded(what):
        return mpi_start.start().control.alltoall(values)


def bcast(value: Any, root: int, what: str) -> Any:
    """The value of rank `root`."""
    if mpi_start.size() == 1:
        return value
    sends = mpi_start.rank() == root
    data = np.frombuffer(pickle.dumps(value, pickle.HIGHEST_PROTOCOL) if sends else b"", np.uint8).copy()
    length = np.array([data.size])
    with recorded(what, nbytes=data.size):
        _move("bcast", length, length, root=root)
        if not sends:
            data = np.empty(int(length[0]), np.uint8)
        _move("bcast", data, data, root=root)
    return value if sends else pickle.loads(data.data)


def any_rank(flag: bool, what: str) -> bool:
    """Whether the flag is true on any rank."""
    if mpi_start.size() == 1:
        return bool(flag)
    start = mpi_start.start()
    found = np.array([flag], np.int32)
    datatype, operation = start.ext.reduction("max", "int32")
    with recorded(what, nbytes=found.nbytes):
        start.ext.call(
            "allreduce", start.ext.handle(start.control), found, found, send_count=1, send_type=datatype,
            reduction=operation,
        )  # fmt: skip
    return bool(found[0])


def _move(op: str, send: np.ndarray, recv: np.ndarray, root: int = 0) -> None:
    start = mpi_start.start()
    buffers = send.reshape(-1).view(np.uint8), recv.reshape(-1).view(np.uint8)
    kind = start.ext.move_type()
    start.ext.call(op, start.ext.handle(start.control), *buffers, send_count=send.nbytes, send_type=kind, root=root)
