"""Defines the executor's input: the instructions of a plan, with MPI calls for its communication.

A program is loaded once (`load(spec)`) and then runs any number of times, also from several threads: each run has its
own table of buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from mpijax._ext import executor, loading
from mpijax._ext.executor import Program
from mpijax.compiler.steps.instructions import (
    STRIDED,
    Advance,
    Buffer,
    Const,
    Copy,
    Fill,
    Finish,
    GemmCall,
    Input,
    KernelCall,
    Loop,
    NativeCall,
    Output,
    Place,
    Point,
    Pointer,
    PythonCall,
    Swap,
    Switch,
    Temp,
    While,
)
from mpijax.compiler.steps.plan import Result, ResultKind
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.runtime.machine import blas
from mpijax.runtime.machine.cpus import cpus_per_rank
from mpijax.runtime.machine.routines import Routine

__all__ = ["Call", "Carrier", "ExchangeSide", "Peers", "Program", "ProgramSpec", "Report", "Rows", "load"]


@dataclass(frozen=True)
class Rows:
    """Counts that an exchange reads at run time: int32 at `counts`, the rows of each rank's block.

    limit: capacity in rows of the buffer of all blocks. block: capacity of the other buffer, which holds this rank's
    block (-1: it does not). row: elements of a row. Counts above the capacity are an error.
    """

    counts: Place
    ranks: int
    rank: int
    limit: int
    block: int
    row: int


@dataclass(frozen=True)
class ExchangeSide:
    """The send or receive side of an exchange.

    count: elements of `datatype` (MPI's handle, as an integer); elements per block if each rank has a block. counts:
    the counts of each rank's block, if they differ. rows: the counts, if read at run time. dtype: NumPy's name, for
    messages.
    """

    place: Place | None = None
    count: int = 0
    datatype: int = 0
    counts: tuple[int, ...] = ()
    rows: Rows | None = None
    dtype: str = ""


@dataclass(frozen=True)
class Peers:
    """The peers of a message. status: address of an MPI_Status to fill in, or 0.

    to_itself: whether this rank sends to itself and both ends match.
    """

    source: int = 0
    dest: int = 0
    sendtag: int = 0
    recvtag: int = 0
    status: int = 0
    to_itself: bool = False


@dataclass(frozen=True)
class Carrier:
    """How an exchange is carried out.

    matched: all ranks of the communicator run this operation. paired: for messages, all ranks of the communicator take
    part, and sends match receives. early: starts with MPI's non-blocking call if there is one, which all ranks must do
    alike; a send copies its data and does not wait. goes_on: between it and its `Finish`, which waits, the program runs
    instructions that only compute and may start other exchanges; they finish in the order of their start, in the same
    list. lanes: the communicator's number for lanes (``mpi_lanes.h``), or 0 for messages without lanes. lane_to,
    lane_from: the peers' ranks on this node, or -1.
    """

    matched: bool = False
    paired: bool = False
    early: bool = False
    goes_on: bool = False
    lanes: int = 0
    lane_to: int = -1
    lane_from: int = -1


@dataclass(frozen=True)
class Report:
    """The description of an exchange for the recorder, the matching checks and errors.

    label: the text that ranks agree on ("allreduce float32[4] sum"). what: a number for it, equal on all ranks, or 0;
    operations through shared memory compare it. line: the user's source line. eager: whether the line is that of the
    first of several calls. nbytes: bytes that this rank sends. group: the `runtime.reports.recorder.CommRecord` of the
    communicator. role: whether a message carries a value or a derivative.
    """

    label: str = ""
    what: int = 0
    line: str = ""
    eager: bool = False
    nbytes: int = 0
    group: Any = None
    role: str = ""


@dataclass(frozen=True)
class Call:
    """A call of MPI, or an equivalent through memory.

    comm, mpi_op: MPI handles as integers.
    """

    op: Routine
    comm: int
    send: ExchangeSide = ExchangeSide()
    recv: ExchangeSide = ExchangeSide()
    mpi_op: int = 0
    root: int = 0
    peers: Peers = Peers()
    carrier: Carrier = Carrier()
    report: Report = Report()


@dataclass(frozen=True)
class ProgramSpec:
    """A whole program.

    addresses: of kernels, by name. lanes: whether messages may use lanes. release_gil: whether other Python threads may
    run during the program; costs 0.05 µs. keep_denormals: whether to keep denormals, which are otherwise flushed to
    zero. when_warm: called with the program and the nanoseconds that its last run took, to install better code: before
    each run after `baseline_runs` runs until `loading.rebind` is called, and during a run (with 0 nanoseconds) when
    loops have taken `patience` nanoseconds, unless that is 0.
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
    patience: int = 0
    when_warm: Callable[[Program, int], None] | None = None


def load(spec: ProgramSpec) -> Program:
    """The program, ready to run. Loads BLAS, and starts MPI, if its instructions need them."""
    return Program(spec)


executor.set_num_threads(cpus_per_rank())

_CLASSES = (
    *(Input, Output, Temp, Const, Pointer),
    *(Loop, While, Switch, Point, Advance, Swap, KernelCall, GemmCall, Copy, Fill),
    *(Call, Finish, PythonCall, NativeCall),
)
loading.read_programs_of(
    {c.__name__: c for c in _CLASSES}, ResultKind, Routine.SEND, STRIDED, blas.addresses, blas.product_thread_functions
)
