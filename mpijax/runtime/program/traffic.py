"""Lists the messages that a rank sends in one run of a program, step by step, with the user's lines.

The bytes are those of standard algorithms with minimal traffic: a ring over `n` ranks. An allgather of a shard sends it
`n - 1` times. An allreduce sends `2 (n - 1) / n` of its operand; alltoall and reduce_scatter send `(n - 1) / n` of it.
A message sends all of it. The part that stays on the rank is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from mpijax.compiler.steps.instructions import Communicate, Loop, Switch, While
from mpijax.compiler.steps.plan import ProgramPlan
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import Source
from mpijax.core.rules.lowering import Exchange
from mpijax.core.sharding.cuts import count, part_number
from mpijax.runtime.mpi import mpi_start


@dataclass(frozen=True)
class Sent:
    """One exchange of a program.

    nbytes: bytes that this rank sends each time. times: runs in one run of the program, with one iteration for a
    `while` loop. known: whether no such loop is around it. received: bytes of its results. why: the reason if the
    compiler added it; empty if the user's program communicates here.
    """

    kind: str
    nbytes: float
    times: int
    known: bool
    received: int
    source: Source
    label: str
    why: str

    @property
    def total(self) -> float:
        return self.nbytes * self.times


def sent(plan: ProgramPlan) -> list[Sent]:
    """The communication of one run on this rank. For a `cond`, the branch that sends most counts."""
    return list(_of(plan.instructions, 1, True))


def bytes_sent(plan: ProgramPlan) -> float:
    """Bytes that this rank sends in one run."""
    return math.fsum(s.total for s in sent(plan))


def _of(instructions: tuple[Any, ...], times: int, known: bool) -> Iterator[Sent]:
    for x in instructions:
        if isinstance(x, Communicate):
            received = x.outputs[0].nbytes if x.outputs else 0
            yield Sent(x.lower.name, _bytes(x), times, known, received, x.source, x.label, x.why)
        elif isinstance(x, Loop):
            yield from _of(x.body, times * x.count, known)
        elif isinstance(x, While):
            yield from _of((*x.cond, *x.body), times, False)
        elif isinstance(x, Switch):
            branches = [list(_of(branch, times, known)) for branch in x.branches]
            yield from max(branches, key=lambda branch: sum(s.total for s in branch))


def _bytes(x: Communicate) -> float:
    """Bytes of the first operand that this rank sends in an exchange; the other operands are counts."""
    ranks = _over_mesh(x) if not x.lower.on_communicator else _of_communicator(x)
    return _SENT[x.lower.exchange](x.inputs[0].nbytes if x.inputs else 0, ranks, x.params)


@dataclass(frozen=True)
class _Participants:
    """The participating ranks: their number, this rank's number, and MPI's PROC_NULL."""

    size: int
    here: int
    nobody: int = -1


def _over_mesh(x: Communicate) -> _Participants:
    mesh, names, groups = x.params["mesh"], x.params["names"], x.params.get("axis_index_groups")
    at, sizes = dict(zip(mesh.axis_names, mesh.place, strict=True)), mesh.processes_along
    size = count(names, sizes) if groups is None else max(map(len, groups))
    return _Participants(size, part_number(names, sizes, at))


def _of_communicator(x: Communicate) -> _Participants:
    comm = x.params["comm"].value or mpi_start.world()
    return _Participants(comm.Get_size(), comm.Get_rank(), mpi_start.start().MPI.PROC_NULL)


def _around(n: float, r: _Participants, params: dict[str, Any]) -> float:
    """Bytes of all equal blocks except this rank's own."""
    return n * (r.size - 1) / r.size


def _exchanged(n: float, r: _Participants, params: dict[str, Any]) -> float:
    """Bytes of all blocks except this rank's own; counts known only at run time are taken as equal.

    Of these blocks, a rank sends the usual share.
    """
    counts = params.get("sendcounts")
    if counts is None:
        return _around(n * params.get("share", 1.0), r, params)
    return n * (1 - counts[r.here] / sum(counts)) if sum(counts) else 0


def _message(n: float, r: _Participants, params: dict[str, Any]) -> float:
    return 0 if params["dest"] in (r.here, r.nobody) else n


def _along_the_ranks(n: float, r: _Participants, params: dict[str, Any]) -> float:
    return n if r.here + 1 < r.size else 0


# Bytes that a rank with an operand of `n` bytes sends.
_SENT: dict[Exchange, Callable[[float, _Participants, dict[str, Any]], float]] = {
    Exchange.ALLREDUCE: lambda n, r, p: 2 * _around(n, r, p),
    Exchange.REDUCE: lambda n, r, p: 0 if r.here == p["root"] else n,
    Exchange.SCAN: _along_the_ranks,
    Exchange.EXSCAN: _along_the_ranks,
    Exchange.REDUCE_SCATTER: _around,
    Exchange.BCAST: lambda n, r, p: n if r.size > 1 else 0,
    Exchange.ALLGATHER: lambda n, r, p: n * (r.size - 1),
    Exchange.GATHER: lambda n, r, p: 0 if r.here == p["root"] else n,
    Exchange.SCATTER: lambda n, r, p: _around(n, r, p) if r.here == p["root"] else 0,
    Exchange.ALLTOALL: _exchanged,
    Exchange.PERMUTE: lambda n, r, p: n if any(a == r.here != b for a, b in p["perm"]) else 0,
    Exchange.SEND: _message,
    Exchange.SENDRECV: _message,
    Exchange.RECV: lambda n, r, p: 0,
    Exchange.BARRIER: lambda n, r, p: 0,
}
