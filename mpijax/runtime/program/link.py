"""Links a program's communication to MPI calls: communicator, datatype and counts."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mpijax.compiler.steps.instructions import Communicate, Copy, Fill, Operand, mapped, visits
from mpijax.core.base.source import FirstCall, current_source
from mpijax.core.rules.lowering import Exchange
from mpijax.ops.ranks.messages import HALO_TAG, SHOWN, is_local
from mpijax.runtime.machine.executable import Call, Carrier, ExchangeSide, Peers, Report, Rows
from mpijax.runtime.machine.routines import MESSAGES, VARYING, Routine
from mpijax.runtime.matching import guard
from mpijax.runtime.mpi import mpi_start
from mpijax.runtime.program.communicators import communicator
from mpijax.runtime.reports.recorder import recorder

# Exchanges that MPI can overlap with computation, and the bytes above which their non-blocking form costs nothing.
EARLY = frozenset((
    Exchange.ALLREDUCE, Exchange.REDUCE_SCATTER, Exchange.ALLGATHER, Exchange.ALLTOALL, Exchange.BCAST,
    Exchange.SENDRECV, Exchange.PERMUTE,
))  # fmt: skip
EARLY_ABOVE = 1 << 16
# The number of messages per run above which lanes pay off; their first messages go through MPI.
MANY_MESSAGES = 16
# The empty part of an exchange that only sends or only receives; the carrier for plain MPI calls.
NOTHING, BY_MPI = ExchangeSide(), Carrier()
# Capacity for any number of rows.
_ANY = 1 << 62


def linked(instructions: tuple[Any, ...]) -> tuple[Any, ...]:
    """The instructions with MPI calls for communication. Starts MPI. Collective if a communicator is new."""
    return mapped(instructions, lambda x: tuple(_linked(x)) if isinstance(x, Communicate) else (x,))


def uses_lanes(instructions: tuple[Any, ...]) -> bool:
    """Whether one run has enough messages between ranks of a node to make lanes worthwhile."""
    messages = (v for v in visits(instructions) if isinstance(v.instruction, Call) and v.instruction.carrier.lanes)
    return sum(v.times * (1 if v.counted else MANY_MESSAGES) for v in messages) >= MANY_MESSAGES


def _linked(step: Communicate) -> list[Any]:
    from mpijax._ext import mpi  # MPI must be running

    mpi_start.start()
    link = _Link(step, mpi)
    return _LINKS[step.lower.exchange](link)


class _Link:
    """Builds the MPI calls of one exchange. Moves are counted in bytes, reductions in elements."""

    def __init__(self, step: Communicate, mpi: Any):
        self.step, self.mpi = step, mpi
        self.params = step.params
        # Many lines may call a function of mpijax; and no line asks for results in equal shards.
        self.source = step.source if step.source.file else FirstCall(*current_source())
        self.line = str(self.source)
        world = mpi_start.world()
        self.over_mesh = not step.lower.on_communicator
        if self.over_mesh:
            groups = step.params.get("axis_index_groups")
            self.comm = communicator(step.params["mesh"], step.params["names"], groups, self.line)
        else:
            self.comm = step.params["comm"].value or world
        self.handle = mpi.handle(self.comm)
        self.group = recorder.group(self.comm, world, step.lower.on_communicator)
        self.sent = step.inputs[0] if step.inputs else None
        self.received = step.outputs[0] if step.outputs else None

    @property
    def operand(self) -> Operand:
        """The operand of an exchange that has one."""
        assert self.sent is not None
        return self.sent

    @property
    def result(self) -> Operand:
        """The result of an exchange that has one."""
        assert self.received is not None
        return self.received

    @property
    def root(self) -> int:
        return self.params["root"]

    @property
    def at_root(self) -> bool:
        return self.comm.Get_rank() == self.root

    def move(self, op: Routine, send: ExchangeSide = NOTHING, recv: ExchangeSide = NOTHING, **more: Any) -> Call:
        kind = self.mpi.move_type()
        return self.call(op, replace(send, datatype=kind), replace(recv, datatype=kind), **more)

    def reduction(self, op: Routine, send: ExchangeSide, recv: ExchangeSide, **more: Any) -> Call:
        name = self.step.lower.operation or self.params["op"].value
        kind, operation = self.mpi.reduction(name, self.operand.dtype)
        return self.call(
            op, replace(send, datatype=kind), replace(recv, datatype=kind), mpi_op=operation, **more
        )

    def call(
        self,
        op: Routine,
        send: ExchangeSide = NOTHING,
        recv: ExchangeSide = NOTHING,
        carrier: Carrier = BY_MPI,
        **more: Any,
    ) -> Call:
        """A call, with its carrier and its report."""
        step, nbytes = self.step, sum(x.nbytes for x in self.step.inputs)
        is_message = op in MESSAGES and not self.over_mesh  # along a mesh axis, all ranks take part
        label = _label(step, op)
        way = replace(carrier, matched=not is_message, early=_early(step, op, nbytes), goes_on=step.goes_on)
        if is_message:
            send, recv = (
                replace(part, dtype=str(x.dtype)) if x is not None else part
                for part, x in ((send, self.sent), (recv, self.received))
            )
        report = Report(
            label, 0 if op in MESSAGES or not guard.enabled() else zlib.crc32(label.encode()), self.line,
            isinstance(self.source, FirstCall), nbytes, self.group, self.params.get("role", ""),
        )  # fmt: skip
        return Call(op, self.handle, send, recv, carrier=way, report=report, **more)

    def rows(self, counts: int, blocks: Operand | None, block: Operand | None, elements: bool = False) -> Rows:
        """The counts in an operand. blocks, block: the buffers that they describe, or None if this rank lacks them."""
        view = blocks or block
        assert view is not None
        limit = _ANY if blocks is None else blocks.shape[0]
        row = view.row // view.dtype.itemsize if elements else view.row
        place = self.step.inputs[counts].place
        own = -1 if block is None else block.shape[0]
        return Rows(place, self.comm.Get_size(), self.comm.Get_rank(), limit, own, row)

    def zeros(self) -> Fill:
        return Fill(self.result.place, self.result.nbytes, b"\0")


def _part(x: Operand | None, count: int = 0, **more: Any) -> ExchangeSide:
    return ExchangeSide(None if x is None else x.place, count, **more)


def _whole(x: Operand | None) -> ExchangeSide:
    """All bytes of an operand or result."""
    return NOTHING if x is None else ExchangeSide(x.place, x.nbytes)


def _blocks(x: Operand, counts: tuple[int, ...], size: int) -> ExchangeSide:
    """A block for each rank, with `counts` rows of `size` bytes or elements."""
    return ExchangeSide(x.place, counts=tuple(c * size for c in counts))


# ---------------------------------------------------------------- reports


def _early(step: Communicate, op: Routine, nbytes: int) -> bool:
    """Whether an operation uses MPI's non-blocking form, which does not match the blocking form on another rank.

    So this cannot depend on whether this rank has work to overlap. Rounding sums always use it: the two forms may add
    in different orders. Messages match in any form, but the non-blocking one fills in no status.
    """
    if step.posted or (step.goes_on and op in MESSAGES):
        return True
    kind = step.lower.exchange
    if kind not in EARLY or op in VARYING or nbytes < EARLY_ABOVE or step.params.get("status") is not None:
        return False
    rounds = kind in (Exchange.ALLREDUCE, Exchange.REDUCE_SCATTER) and step.inputs[0].dtype.kind not in "biu"
    return rounds or mpi_start.start().overlaps


def _label(step: Communicate, op: Routine) -> str:
    """The text that ranks compare: ``allreduce float32[4] sum``, without sizes that may differ between ranks."""
    params = step.params
    words = [op if step.lower.on_communicator else step.lower.name]
    words += [SHOWN[params["role"]]] if params.get("role") in SHOWN else []
    for x in (step.outputs if op in (Routine.SCATTER, Routine.RECV) else step.inputs)[:1]:
        words.append(str(x.dtype) if op in VARYING else f"{x.dtype}[{','.join(map(str, x.shape))}]")
    operation = params.get("op")
    words += [] if operation is None else [getattr(operation, "name", str(operation)).lower()]
    for name in ("counts", "root", "source", "dest", "perm"):
        if params.get(name) is not None:
            value = "any" if name == "source" and _is_any(params[name]) else str(params[name])
            words.append(f"{name}={_short(value)}")
    if not step.lower.on_communicator:
        words.append(f"over {','.join(map(str, params['names']))}")
    if groups := params.get("axis_index_groups"):
        words.append(f"in groups {_short(str(groups).replace(' ', ''))}")
    return " ".join(words)


def _short(text: str) -> str:
    """A text; a hash of it if it is long."""
    return text if len(text) < 80 else hashlib.sha256(text.encode()).hexdigest()[:12]


def _is_any(source: int) -> bool:
    return source == mpi_start.start().MPI.ANY_SOURCE


# ---------------------------------------------------------------- reductions


def _in_place_of(op: Routine) -> Callable[[_Link], list[Any]]:
    """Links a reduction whose result has the size of its operand."""

    def link(c: _Link) -> list[Any]:
        n = c.operand.size
        return [c.reduction(op, _part(c.sent, n), _part(c.received, n))]

    return link


def _reduce(c: _Link) -> list[Any]:
    n = c.operand.size
    send, recv = _part(c.sent, n), _part(c.received if c.at_root else None, n)
    found = c.reduction(Routine.REDUCE, send, recv, root=c.root)
    return [found] if c.at_root else [found, c.zeros()]


def _reduce_scatter(c: _Link) -> list[Any]:
    if c.step.lower.counted:
        rows = c.rows(1, c.operand, c.result, elements=True)
        return [c.zeros(), c.reduction(Routine.REDUCE_SCATTERV, _part(c.sent), _part(c.received, rows=rows))]
    counts = c.params.get("counts")
    if counts is None:
        n = c.result.size
        return [c.reduction(Routine.REDUCE_SCATTER, _part(c.sent, n), _part(c.received, n))]
    blocks = _blocks(c.result, counts, c.operand.row // c.operand.dtype.itemsize)
    return [c.reduction(Routine.REDUCE_SCATTERV, _part(c.sent), blocks)]


# ---------------------------------------------------------------- moves


def _bcast(c: _Link) -> list[Any]:
    if not c.over_mesh:
        return [c.move(Routine.BCAST, _whole(c.sent), _whole(c.received), root=c.root)]
    # In place: each rank starts with a copy of its own value.
    both = _whole(c.received)
    return [
        Copy(c.result.place, c.operand.place, c.operand.nbytes),
        c.move(Routine.BCAST, both, both, root=c.params["source"]),
    ]


def _allgather(c: _Link) -> list[Any]:
    if c.step.lower.counted:
        rows = c.rows(1, c.received, c.sent)
        return [c.zeros(), c.move(Routine.ALLGATHERV, _part(c.sent), _part(c.received, rows=rows))]
    counts = c.params.get("counts")
    if counts is None:
        return [c.move(Routine.ALLGATHER, _whole(c.sent), _part(c.received, c.operand.nbytes))]
    return [c.move(Routine.ALLGATHERV, _whole(c.sent), _blocks(c.result, counts, c.operand.row))]


def _gather(c: _Link) -> list[Any]:
    if c.step.lower.counted:
        rows = c.rows(1, c.received if c.at_root else None, c.sent)
        return [c.zeros(), c.move(Routine.GATHERV, _part(c.sent), _part(c.received, rows=rows), root=c.root)]
    counts = c.params["counts"]
    if counts is None:
        return [c.move(Routine.GATHER, _whole(c.sent), _part(c.received, c.operand.nbytes), root=c.root)]
    return [c.move(Routine.GATHERV, _whole(c.sent), _blocks(c.result, counts, c.operand.row), root=c.root)]


def _scatter(c: _Link) -> list[Any]:
    if c.step.lower.counted:
        rows = c.rows(1, c.sent if c.at_root else None, c.received)
        return [c.zeros(), c.move(Routine.SCATTERV, _part(c.sent, rows=rows), _part(c.received), root=c.root)]
    counts = c.params["counts"]
    if counts is None:
        return [c.move(Routine.SCATTER, _part(c.sent, c.result.nbytes), _whole(c.received), root=c.root)]
    return [c.move(Routine.SCATTERV, _blocks(c.operand, counts, c.result.row), _whole(c.received), root=c.root)]


def _alltoall(c: _Link) -> list[Any]:
    if c.step.lower.counted:
        rows = c.rows(1, c.sent, None), c.rows(2, c.received, None)
        return [c.zeros(), c.move(Routine.ALLTOALLV, _part(c.sent, rows=rows[0]), _part(c.received, rows=rows[1]))]
    row = c.operand.row
    if c.params.get("sendcounts") is None:
        return [c.move(Routine.ALLTOALL, _part(c.sent, row), _part(c.received, row))]
    send, recv = _blocks(c.operand, c.params["sendcounts"], row), _blocks(c.result, c.params["recvcounts"], row)
    return [c.move(Routine.ALLTOALLV, send, recv)]


# ---------------------------------------------------------------- messages


def _permute(c: _Link) -> list[Any]:
    """One sendrecv; a rank without a sender starts from zeros."""
    nobody = mpi_start.start().MPI.PROC_NULL
    rank = c.comm.Get_rank()
    goes_to = dict(c.params["perm"]).get(rank, nobody)
    comes_from = {b: a for a, b in c.params["perm"]}.get(rank, nobody)
    message = c.move(Routine.SENDRECV, _whole(c.sent), _whole(c.received), peers=Peers(comes_from, goes_to))
    return [c.zeros(), message] if comes_from == nobody else [message]


def _status(c: _Link) -> int:
    status = c.params["status"]
    return 0 if status is None else mpi_start.start().MPI._addressof(status.value)


def _tag(c: _Link, name: str) -> int:
    """The tag to send; derivatives have separate tags, so that they never match values."""
    return c.mpi.tag_of(c.params[name], c.params["role"])


def _memory(c: _Link, tags: set[int], *ends: str) -> Carrier:
    """The carrier of a message to a rank of this node: halos use rings in shared memory (``mpi_ring.h``), others use
    lanes (``mpi_lanes.h``) if the communicator has a number for them; else plain MPI."""
    if tags == {HALO_TAG}:
        return Carrier(paired=True)
    mpi = mpi_start.start()
    peers = [c.params[end] for end in ends]
    group = mpi.ext.lane_group(c.handle)
    if not group or {mpi.MPI.ANY_SOURCE, c.comm.Get_rank()} & {*peers} or c.params.get("status") is not None:
        return BY_MPI
    lane = {end: mpi.ext.rank_here(c.handle, peer) for end, peer in zip(ends, peers, strict=True)}
    return Carrier(lanes=group, lane_to=lane.get("dest", -1), lane_from=lane.get("source", -1))


def _send(c: _Link) -> list[Any]:
    peers = Peers(dest=c.params["dest"], sendtag=_tag(c, "tag"))
    return [c.move(Routine.SEND, _whole(c.sent), peers=peers, carrier=_memory(c, {c.params["tag"]}, "dest"))]


def _recv(c: _Link) -> list[Any]:
    source = c.params["source"]
    peers = Peers(source=source, recvtag=_tag(c, "tag"), status=_status(c))
    carrier = _memory(c, {c.params["tag"]}, "source")
    message = c.move(Routine.RECV, recv=_whole(c.received), peers=peers, carrier=carrier)
    return [c.zeros(), message] if source == mpi_start.start().MPI.PROC_NULL else [message]


def _sendrecv(c: _Link) -> list[Any]:
    p = c.params
    itself = is_local(p) and p["status"] is None
    peers = Peers(p["source"], p["dest"], _tag(c, "sendtag"), _tag(c, "recvtag"), _status(c), itself)
    carrier = _memory(c, {p["sendtag"], p["recvtag"]}, "source", "dest")
    message = c.move(Routine.SENDRECV, _whole(c.sent), _whole(c.received), peers=peers, carrier=carrier)
    return [c.zeros(), message] if p["source"] == mpi_start.start().MPI.PROC_NULL else [message]


_LINKS: dict[Exchange, Callable[[_Link], list[Any]]] = {
    Exchange.ALLREDUCE: _in_place_of(Routine.ALLREDUCE),
    Exchange.REDUCE: _reduce,
    Exchange.SCAN: _in_place_of(Routine.SCAN),
    Exchange.EXSCAN: _in_place_of(Routine.EXSCAN),
    Exchange.REDUCE_SCATTER: _reduce_scatter,
    Exchange.BCAST: _bcast,
    Exchange.ALLGATHER: _allgather,
    Exchange.GATHER: _gather,
    Exchange.SCATTER: _scatter,
    Exchange.ALLTOALL: _alltoall,
    Exchange.PERMUTE: _permute,
    Exchange.SEND: _send,
    Exchange.RECV: _recv,
    Exchange.SENDRECV: _sendrecv,
    Exchange.BARRIER: lambda c: [c.call(Routine.BARRIER)],
}
