"""Operations of `mpijax.mpi` as instructions: on a communicator the user gave, each rank in its own part."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.compiler.steps.plan import CommStep, Ref
from mpijax.ops.rank_messages import HALO_TAG, is_local
from mpijax.runtime.machine import program
from mpijax.runtime.mpi import mpi_start

# Where an array lies, its shape and its dtype.
View = tuple[Ref, tuple[int, ...], np.dtype]


class Call:
    """What an instruction is made from: the step, the communicator, and the memory of operand and result.

    Moves are counted in bytes, reductions in elements. `send` and `recv` are (place, shape, dtype).
    """

    def __init__(self, step: CommStep, mpi: Any, line: str):
        self.mpi = mpi
        self.line = line
        self.params = step.params
        self.comm = step.params["comm"].value or mpi_start.world()
        self.handle = mpi.handle(self.comm)
        self.inputs = step.inputs
        self.send = step.inputs[0] if step.inputs else None
        self.recv = step.outputs[0] if step.outputs else None

    @property
    def rank(self) -> int:
        return self.comm.Get_rank()

    @property
    def operand(self) -> View:
        """The memory of the operand, of an operation that has one."""
        assert self.send is not None
        return self.send

    @property
    def result(self) -> View:
        """The memory of the result, likewise."""
        assert self.recv is not None
        return self.recv

    @property
    def root(self) -> int:
        return self.params["root"]

    @property
    def at_root(self) -> bool:
        return self.rank == self.root

    def move(self, op: str, **more: Any) -> program.Comm:
        kind = self.mpi.move_type()
        return self._comm(op, sendtype=kind, recvtype=kind, **more)

    def reduction(self, op: str, count: int, **more: Any) -> program.Comm:
        datatype, operation = self.mpi.reduction(self.params["op"].value, self.operand[2])
        return self._comm(
            op, sendtype=datatype, recvtype=datatype, mpi_op=operation, sendcount=count, recvcount=count, **more
        )

    def rows(self, operand: int, all_blocks: Any, block: Any, elements: bool = False) -> program.Rows:
        """The counts in an operand. all_blocks, block: the memory that they describe, or None where it is not here."""
        view = block if all_blocks is None else all_blocks
        size = math.prod(view[1][1:]) * (1 if elements else view[2].itemsize)
        limit = _ANY if all_blocks is None else all_blocks[1][0]
        counts = at(self.inputs[operand])
        assert counts is not None
        return program.Rows(counts, self.comm.Get_size(), self.rank, limit, -1 if block is None else block[1][0], size)

    def _comm(self, op: str, **more: Any) -> program.Comm:
        places = {"send": at(self.send), "recv": at(self.recv)}
        return program.Comm(op, self.handle, **{**places, **more}, source_line=self.line)

    def zeros(self) -> program.Fill:
        place = self.result[0]
        return program.Fill(program.Ref(place.buffer, place.offset), nbytes(self.result), b"\0")


def at(view: Any) -> program.Ref | None:
    return None if view is None else program.Ref(view[0].buffer, view[0].offset)


def nbytes(view: Any) -> int:
    return math.prod(view[1]) * view[2].itemsize


def row(view: Any) -> int:
    """Bytes of one row along the first axis."""
    return math.prod(view[1][1:]) * view[2].itemsize


def elements(counts: tuple[int, ...], size: int) -> tuple[int, ...]:
    return tuple(c * size for c in counts)


# ---------------------------------------------------------------- reductions


def _allreduce(c: Call) -> list[Any]:
    return [c.reduction("allreduce", math.prod(c.operand[1]))]


def _reduce(c: Call) -> list[Any]:
    n = math.prod(c.operand[1])
    if c.at_root:
        return [c.reduction("reduce", n, root=c.root)]
    return [c.reduction("reduce", n, root=c.root, recv=None), c.zeros()]


def _scan(c: Call) -> list[Any]:
    return [c.reduction("scan", math.prod(c.operand[1]))]


def _exscan(c: Call) -> list[Any]:
    return [c.reduction("exscan", math.prod(c.operand[1]))]


def _reduce_scatter(c: Call) -> list[Any]:
    counts = c.params["counts"]
    if counts is None:
        return [c.reduction("reduce_scatter", math.prod(c.result[1]))]
    return [c.reduction("reduce_scatterv", 0, recvcounts=elements(counts, math.prod(c.operand[1][1:])))]


# ---------------------------------------------------------------- moves


def _bcast(c: Call) -> list[Any]:
    return [c.move("bcast", sendcount=nbytes(c.send), recvcount=nbytes(c.recv), root=c.root)]


def _allgather(c: Call) -> list[Any]:
    n, counts = nbytes(c.send), c.params["counts"]
    if counts is None:
        return [c.move("allgather", sendcount=n, recvcount=n)]
    return [c.move("allgatherv", sendcount=n, recvcounts=elements(counts, row(c.send)))]


def _gather(c: Call) -> list[Any]:
    n, counts = nbytes(c.send), c.params["counts"]
    if counts is None:
        return [c.move("gather", sendcount=n, recvcount=n, root=c.root)]
    return [c.move("gatherv", sendcount=n, recvcounts=elements(counts, row(c.send)), root=c.root)]


def _scatter(c: Call) -> list[Any]:
    n, counts = nbytes(c.recv), c.params["counts"]
    if counts is None:
        return [c.move("scatter", sendcount=n, recvcount=n, root=c.root)]
    return [c.move("scatterv", recvcount=n, sendcounts=elements(counts, row(c.recv)), root=c.root)]


def _alltoall(c: Call) -> list[Any]:
    if c.params["sendcounts"] is None:
        n = row(c.send)
        return [c.move("alltoall", sendcount=n, recvcount=n)]
    size = row(c.send)
    counts = (elements(c.params[key], size) for key in ("sendcounts", "recvcounts"))
    return [c.move("alltoallv", **dict(zip(("sendcounts", "recvcounts"), counts, strict=True)))]


# ---------------------------------------------------------------- moves of rows that are counted when they move

_ANY = 1 << 62


def _ragged_allgather(c: Call) -> list[Any]:
    return [c.zeros(), c.move("allgatherv", recvrows=c.rows(1, c.recv, c.send))]


def _ragged_reduce_scatter(c: Call) -> list[Any]:
    return [c.zeros(), c.reduction("reduce_scatterv", 0, recvrows=c.rows(1, c.send, c.recv, elements=True))]


def _ragged_gather(c: Call) -> list[Any]:
    rows = c.rows(1, c.recv if c.at_root else None, c.send)
    return [c.zeros(), c.move("gatherv", recvrows=rows, root=c.root)]


def _ragged_scatter(c: Call) -> list[Any]:
    rows = c.rows(1, c.send if c.at_root else None, c.recv)
    return [c.zeros(), c.move("scatterv", sendrows=rows, root=c.root)]


def _ragged_alltoall(c: Call) -> list[Any]:
    rows = {"sendrows": c.rows(1, c.send, None), "recvrows": c.rows(2, c.recv, None)}
    return [c.zeros(), c.move("alltoallv", **rows)]


# ---------------------------------------------------------------- messages


def _status(c: Call) -> int:
    status = c.params["status"]
    return 0 if status is None else mpi_start.start().MPI._addressof(status.value)


def _tag(c: Call, name: str) -> int:
    """The tag that goes along: derivatives have tags of their own, so that none is taken for a value."""
    return c.mpi.tag_of(c.params[name], c.params["role"])


def _memory(c: Call, tags: set[int], *ends: str) -> dict[str, int]:
    """Whether a message goes through memory that ranks of this node share: those of a halo through a window, others
    through lanes (``mpi_lanes.h``), on communicators which all ranks are sure to call the same."""
    if tags == {HALO_TAG}:
        return {"paired": True}
    mpi = mpi_start.start()
    everybody = [mpi.world, mpi.MPI.COMM_WORLD]
    peers = [c.params[end] for end in ends]
    if not mpi.lanes or c.comm not in everybody or {mpi.MPI.ANY_SOURCE, mpi.rank} & {*peers}:
        return {}
    if c.params.get("status") is not None:
        return {}
    found = {_LANE_OF[end]: mpi.lanes.get(peer, -1) for end, peer in zip(ends, peers, strict=True)}
    return {"lanes": 1 + everybody.index(c.comm), **found}


_LANE_OF = {"dest": "lane_to", "source": "lane_from"}


def _send(c: Call) -> list[Any]:
    memory = _memory(c, {c.params["tag"]}, "dest")
    return [c.move("send", sendcount=nbytes(c.send), dest=c.params["dest"], sendtag=_tag(c, "tag"), **memory)]


def _recv(c: Call) -> list[Any]:
    source = c.params["source"]
    message = c.move(
        "recv", send=None, recvcount=nbytes(c.recv), source=source, recvtag=_tag(c, "tag"), status=_status(c),
        **_memory(c, {c.params["tag"]}, "source"),
    )  # fmt: skip
    return [c.zeros(), message] if source == mpi_start.start().MPI.PROC_NULL else [message]


def _sendrecv(c: Call) -> list[Any]:
    p = c.params
    message = c.move(
        "sendrecv", sendcount=nbytes(c.send), recvcount=nbytes(c.recv), source=p["source"], dest=p["dest"],
        sendtag=_tag(c, "sendtag"), recvtag=_tag(c, "recvtag"), status=_status(c),
        to_itself=is_local(p) and p["status"] is None,
        **_memory(c, {p["sendtag"], p["recvtag"]}, "source", "dest"),
    )  # fmt: skip
    return [c.zeros(), message] if p["source"] == mpi_start.start().MPI.PROC_NULL else [message]


_LOWERINGS: dict[str, Callable[[Call], list[Any]]] = {
    "mpi_allreduce": _allreduce,
    "mpi_reduce": _reduce,
    "mpi_scan": _scan,
    "mpi_exscan": _exscan,
    "mpi_reduce_scatter": _reduce_scatter,
    "mpi_bcast": _bcast,
    "mpi_allgather": _allgather,
    "mpi_gather": _gather,
    "mpi_scatter": _scatter,
    "mpi_alltoall": _alltoall,
    "mpi_allgatherv": _ragged_allgather,
    "mpi_gatherv": _ragged_gather,
    "mpi_scatterv": _ragged_scatter,
    "mpi_alltoallv": _ragged_alltoall,
    "mpi_reduce_scatterv": _ragged_reduce_scatter,
    "mpi_send": _send,
    "mpi_recv": _recv,
    "mpi_sendrecv": _sendrecv,
    "mpi_barrier": lambda c: [program.Comm("barrier", c.handle, source_line=c.line)],
}


def per_rank(step: CommStep, mpi: Any, line: str) -> list[Any]:
    """The instructions of one operation of `mpijax.mpi` on this rank."""
    return _LOWERINGS[step.kind](Call(step, mpi, line))
