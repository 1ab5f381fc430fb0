"""What a rank sends in one run of a program, step by step, with the user's line.

The bytes are those of the algorithms that every MPI has, and that sent least: a ring over `n` ranks. An allgather of a
shard sends it `n - 1` times; an allreduce sends `2 (n - 1) / n` of its operand, an alltoall and a reduce_scatter
`(n - 1) / n` of it; a message sends all of it. What a rank keeps for itself is not sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mpijax.compiler.steps.plan import CommStep, LoopStep, Plan, SwitchStep, WhileStep
from mpijax.core.source import Source
from mpijax.runtime.mpi import mpi_start


@dataclass(frozen=True)
class Sent:
    """One communication step of a program.

    nbytes: what this rank sends each time. times: how often the step runs in one run of the program, a turn of a
    `while` loop counting once; `known` says whether no such loop is around it. received: bytes of its results.
    """

    kind: str
    nbytes: float
    times: int
    known: bool
    received: int
    source: Source
    label: str

    @property
    def total(self) -> float:
        return self.nbytes * self.times


def sent(plan: Plan) -> list[Sent]:
    """The communication of one run on this rank. Of a `cond`, the branch that sends most counts."""
    return list(_of(plan.steps, 1, True))


def bytes_sent(plan: Plan) -> float:
    """Bytes that this rank sends in one run."""
    return math.fsum(s.total for s in sent(plan))


def _of(steps: list[Any], times: int, known: bool) -> Iterator[Sent]:
    for step in steps:
        if isinstance(step, CommStep):
            yield _sent(step, times, known)
        elif isinstance(step, LoopStep):
            yield from _of(step.body, times * step.count, known)
        elif isinstance(step, WhileStep):
            yield from _of([*step.cond, *step.body], times, False)
        elif isinstance(step, SwitchStep):
            branches = [list(_of(branch, times, known)) for branch in step.branches]
            yield from max(branches, key=lambda branch: sum(s.total for s in branch))


def _sent(step: CommStep, times: int, known: bool) -> Sent:
    n = _volume(step.inputs)
    sends = _PER_RANK[step.kind](step, n) if "comm" in step.params else _over_mesh(step, n)
    return Sent(step.kind, sends, times, known, _volume(step.outputs), step.source, step.label)


def _volume(views: list[Any]) -> int:
    """Bytes of the first operand or result: the others are counts."""
    if not views:
        return 0
    _, shape, dtype = views[0]
    return math.prod(shape) * dtype.itemsize


# ---------------------------------------------------------------- along mesh axes


def _over_mesh(step: CommStep, n: int) -> float:
    params = step.params
    size = math.prod(params["mesh"].shape[name] for name in params["names"])
    if params.get("axis_index_groups") is not None:
        size = max(map(len, params["axis_index_groups"]))
    if step.kind == "permute":
        here = _position(params["mesh"], params["names"])
        return n if any(a == here != b for a, b in params["perm"]) else 0
    kind = "allreduce" if step.kind.startswith("allreduce") else step.kind
    return _COLLECTIVE[kind](n, size)


def _position(mesh: Any, names: tuple[Any, ...]) -> int:
    """This rank's number along mesh axes, in row-major order of `names`."""
    at = dict(zip(mesh.axis_names, mesh.coordinates(), strict=True))
    here = 0
    for name in names:
        here = here * mesh.shape[name] + at[name]
    return here


# Bytes sent by a rank that has an operand of `n` bytes, one of `size` ranks.
_COLLECTIVE: dict[str, Callable[[int, int], float]] = {
    "allreduce": lambda n, size: 2 * n * (size - 1) / size,
    "allgather": lambda n, size: n * (size - 1),
    "alltoall": lambda n, size: n * (size - 1) / size,
    "alltoallv": lambda n, size: n * (size - 1) / size,
    "reduce_scatter": lambda n, size: n * (size - 1) / size,
    "broadcast": lambda n, size: n if size > 1 else 0,
}


# ---------------------------------------------------------------- mpijax.mpi


def _comm(step: CommStep) -> Any:
    return step.params["comm"].value or mpi_start.world()


def _collective(kind: str) -> Callable[[CommStep, int], float]:
    return lambda step, n: _COLLECTIVE[kind](n, _comm(step).Get_size())


def _exchange(step: CommStep, n: int) -> float:
    """With counts, all but the block that stays; where they are known only when it runs, as if blocks were equal."""
    counts = step.params.get("sendcounts")
    if counts is None:
        return _collective("alltoall")(step, n)
    return n * (1 - counts[_comm(step).Get_rank()] / sum(counts)) if sum(counts) else 0


def _to_root(step: CommStep, n: int) -> float:
    return 0 if _comm(step).Get_rank() == step.params["root"] else n


def _from_root(step: CommStep, n: int) -> float:
    size = _comm(step).Get_size()
    return n * (size - 1) / size if _comm(step).Get_rank() == step.params["root"] else 0


def _along_the_ranks(step: CommStep, n: int) -> float:
    return n if _comm(step).Get_rank() + 1 < _comm(step).Get_size() else 0


def _message(step: CommStep, n: int) -> float:
    comm, dest = _comm(step), step.params["dest"]
    return 0 if dest in (comm.Get_rank(), mpi_start.start().MPI.PROC_NULL) else n


_PER_RANK: dict[str, Callable[[CommStep, int], float]] = {
    "mpi_allreduce": _collective("allreduce"),
    "mpi_allgather": _collective("allgather"),
    "mpi_allgatherv": _collective("allgather"),
    "mpi_alltoall": _exchange,
    "mpi_alltoallv": _exchange,
    "mpi_reduce_scatter": _collective("reduce_scatter"),
    "mpi_reduce_scatterv": _collective("reduce_scatter"),
    "mpi_bcast": _collective("broadcast"),
    "mpi_reduce": _to_root,
    "mpi_gather": _to_root,
    "mpi_gatherv": _to_root,
    "mpi_scatter": _from_root,
    "mpi_scatterv": _from_root,
    "mpi_scan": _along_the_ranks,
    "mpi_exscan": _along_the_ranks,
    "mpi_send": _message,
    "mpi_sendrecv": _message,
    "mpi_recv": lambda step, n: 0,
    "mpi_barrier": lambda step, n: 0,
}
