"""What the executor runs: the instructions of a plan, with calls of MPI in place of its communication.

A program is loaded once (`load(spec)`), and then run any number of times, from several threads if need be: the table of
buffers belongs to each run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from mpijax._ext import executor, loading  # noqa: F401  (the executor asks for the other at the first program)
from mpijax._ext.executor import Program
from mpijax.compiler.steps.instructions import Buffer, Place
from mpijax.compiler.steps.plan import Result
from mpijax.core.lazy_dataclass import dataclass
from mpijax.runtime.machine.cpus import cpus_per_rank

__all__ = ["Call", "Carrier", "Part", "Peers", "Program", "ProgramSpec", "Report", "Rows", "load"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Counts that an exchange reads when it runs: int32 at `counts`, rows of the block of each of `ranks` ranks.

    limit: rows for which there is room in the buffer of all blocks; block: and in the other one, which is the block of
    this rank (-1: it is not). row: elements of a row. Counts for which there is no room are an error.
    """

    counts: Place
    ranks: int
    rank: int
    limit: int
    block: int
    row: int


@dataclass(frozen=True, slots=True)
class Part:
    """What an exchange sends, or receives.

    count: elements of `datatype` (MPI's, as an integer); where each rank has a block, elements of one block. counts: of
    each rank's block, where these differ; rows: where they are read when it runs. dtype: of messages, NumPy's name.
    """

    place: Place | None = None
    count: int = 0
    datatype: int = 0
    counts: tuple[int, ...] = ()
    rows: Rows | None = None
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Peers:
    """The other ends of a message. status: address of an MPI_Status to be filled in, or 0.

    to_itself: a message of this rank to itself, both ends matching.
    """

    source: int = 0
    dest: int = 0
    sendtag: int = 0
    recvtag: int = 0
    status: int = 0
    to_itself: bool = False


@dataclass(frozen=True, slots=True)
class Carrier:
    """By which way an exchange goes.

    matched: all ranks of the communicator do this operation. paired: of messages, all ranks of the communicator take
    part, and the other side says the same. early: with MPI's non-blocking call where it has one: all ranks must say the
    same; a send keeps a copy and does not wait. goes_on: instructions that only compute run before a `Finish`, which
    waits, and others of these may start; the first that starts is the first that is waited for, in the same list.
    lanes: which communicator it is to lanes (``mpi_lanes.h``), or 0 for messages that do not go through them; lane_to,
    lane_from: the ranks of this node at the other ends, or -1.
    """

    matched: bool = False
    paired: bool = False
    early: bool = False
    goes_on: bool = False
    lanes: int = 0
    lane_to: int = -1
    lane_from: int = -1


@dataclass(frozen=True, slots=True)
class Report:
    """What is said of an exchange: by the recorder, the matching checks, and errors.

    label: what the ranks agree on ("allreduce float32[4] sum"). what: a number of that, the same on all, or 0:
    operations through memory compare it. line: the user's; eager: it is that of the first of several calls. nbytes:
    that this rank sends. group: the `runtime.reports.recorder.Group` of the communicator. role: of a message, whether
    it carries a value or a derivative.
    """

    label: str = ""
    what: int = 0
    line: str = ""
    eager: bool = False
    nbytes: int = 0
    group: Any = None
    role: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of MPI, or what stands for one.

    op: name of an operation of ``comm.pxd`` in lower case ("allreduce"). comm, mpi_op: MPI's handles, as integers.
    """

    op: str
    comm: int
    send: Part = Part()
    recv: Part = Part()
    mpi_op: int = 0
    root: int = 0
    peers: Peers = Peers()
    carrier: Carrier = Carrier()
    report: Report = Report()


@dataclass(frozen=True)
class ProgramSpec:
    """A whole program.

    addresses: of kernels, by their names. lanes: messages may go through lanes. release_gil: let other Python threads
    run meanwhile; costs 0.05 µs. keep_denormals: compute with denormals, which otherwise count as zero. when_warm:
    called with the program after `baseline_runs` runs, unless that is 0, to give it better code (`loading.rebind`).
    """

    num_inputs: int
    buffers: tuple[Buffer, ...]
    instructions: tuple[Any, ...]
    results: tuple[Result, ...]
    arena: int = 0
    release_gil: bool = False
    name: str = "program"
    keep_denormals: bool = False
    addresses: Mapping[str, int] = field(default_factory=dict)
    lanes: bool = False
    baseline_runs: int = 0
    when_warm: Callable[[Program], None] | None = None


def load(spec: ProgramSpec) -> Program:
    """The program, ready to run. Loads BLAS, or starts MPI, if it has instructions that need them."""
    return Program(spec)


executor.set_num_threads(cpus_per_rank())
