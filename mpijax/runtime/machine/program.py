"""What a program is to the executor: buffers, instructions over them, results. Plain data.

Places are `Ref(buffer, offset)`, offsets in bytes. A program is loaded once (`load(spec)`), and then run any
number of times, from several threads if need be: the table of buffers belongs to each run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpijax._ext import executor, loading  # noqa: F401  (the executor asks for the other at the first program)
from mpijax._ext.executor import Program
from mpijax.runtime.machine.cpus import cpus_per_rank

__all__ = [
    "Advance", "Alias", "Comm", "Const", "Copy", "Fill", "Finish", "Gemm", "HostCall", "Input", "Kernel", "Loop",
    "Output", "Point", "Program", "ProgramSpec", "Ref", "Result", "Swap", "Switch", "Temp", "View", "While", "load",
]  # fmt: skip


@dataclass(frozen=True)
class Ref:
    """A place in memory: buffer number and byte offset."""

    buffer: int
    offset: int = 0


# ---- entries of the buffer table


@dataclass(frozen=True)
class Input:
    """Argument number `index`; `nbytes` is checked where the argument is an ndarray."""

    index: int
    nbytes: int = -1


@dataclass(frozen=True)
class Output:
    """Memory of a result, new in each run.

    donor: number of the argument whose memory is taken over (its array is deleted), or -1. The buffer begins
    with the donor's bytes even if its memory cannot be taken, because an ndarray shows it, or owns it.
    """

    nbytes: int
    aval: Any
    donor: int = -1
    sharding: Any = None


@dataclass(frozen=True)
class Temp:
    """Memory during a run, at a byte offset of the arena."""

    offset: int


@dataclass(frozen=True)
class Const:
    """An ndarray (C-contiguous) or array that lives as long as the program."""

    value: Any


@dataclass(frozen=True)
class Alias:
    """A pointer of its own into an earlier entry, which `Point`, `Advance` and `Swap` may move; None: not set yet."""

    ref: Ref | None


# ---- instructions


@dataclass(frozen=True)
class Kernel:
    """A compiled loop nest over [0, extent), which may be split among threads in parts of at least `grain`.

    `address`: of `void fn(void **ptrs, int64_t *params, int64_t begin, int64_t end)`. foreign: it is the user's, called
    once for all, and sees denormals as the rest of the process does.
    """

    address: int
    ptrs: tuple[Ref, ...]
    params: tuple[int, ...]
    extent: int
    grain: int
    foreign: bool = False


@dataclass(frozen=True)
class Gemm:
    """`C = op(A) op(B) + beta C`, row-major, for each matrix of a batch.

    op(A) is m x k, op(B) k x n, C m x n; ld*: elements from row to row as the operand lies in memory.
    trans: "N", "T" or "C" (conjugate transpose). `*_strides`: elements from matrix to matrix, per batch axis.
    """

    dtype: np.dtype
    trans_a: str
    trans_b: str
    m: int
    n: int
    k: int
    a: Ref
    lda: int
    b: Ref
    ldb: int
    c: Ref
    ldc: int
    batch: tuple[int, ...] = ()
    a_strides: tuple[int, ...] = ()
    b_strides: tuple[int, ...] = ()
    c_strides: tuple[int, ...] = ()
    beta: float = 0.0


@dataclass(frozen=True)
class Copy:
    """Copy bytes; the places may overlap."""

    target: Ref
    origin: Ref
    nbytes: int


@dataclass(frozen=True)
class Fill:
    """Fill `nbytes` bytes with copies of `pattern` (1 to 16 bytes that divide them)."""

    target: Ref
    nbytes: int
    pattern: bytes


@dataclass(frozen=True)
class Rows:
    """Counts that an exchange reads when it runs: int32 at `counts`, rows of the block of each of `ranks` ranks.

    limit: rows for which there is room in the buffer of all blocks; block: and in the other one, which is the block of
    this rank (-1: it is not). row: elements of a row. Counts for which there is no room are an error.
    """

    counts: Ref
    ranks: int
    rank: int
    limit: int
    block: int
    row: int


@dataclass(frozen=True)
class Comm:
    """An exchange with other ranks.

    op: name of an operation of ``comm.pxd`` in lower case ("allreduce"). Handles: MPI's as integers.
    Counts are elements; where each rank has a block, elements of one block, or of each rank's (`sendcounts`,
    `recvcounts`, or `sendrows` and `recvrows` where they are read when it runs). status: address of an MPI_Status to
    be filled in, or 0. source_line: the user's line.

    paired: of messages, all ranks of the communicator take part, and the other side says the same. early: with MPI's
    non-blocking call where it has one: all ranks must say the same; a send keeps a copy and does not wait. to_itself: a
    message of this rank to itself, both ends matching. lanes: which communicator it is to lanes (``mpi_lanes.h``), or 0
    for messages that do not go through them; lane_to, lane_from: the ranks of this node at the other ends, or -1.
    goes_on: instructions that only compute run before a `Finish`, which waits, and others of these may start; the first
    that starts is the first that is waited for, in the same list.

    what: a number of what the ranks agree on, the same on all, or 0: operations through memory compare it.

    For reports: `label`, what the ranks agree on ("allreduce float32[4] sum"); `nbytes` that this rank sends; `group`,
    the `runtime.reports.recorder.Group` of the communicator; `matched`: all of its ranks do this operation; `eager`:
    `source_line` is that of the first of several calls; `senddtype`, `recvdtype`: of messages, what is sent and
    received, as NumPy names it.
    """

    op: str
    comm: int
    send: Ref | None = None
    recv: Ref | None = None
    sendcount: int = 0
    recvcount: int = 0
    sendtype: int = 0
    recvtype: int = 0
    mpi_op: int = 0
    root: int = 0
    source: int = 0
    dest: int = 0
    sendtag: int = 0
    recvtag: int = 0
    sendcounts: tuple[int, ...] = ()
    recvcounts: tuple[int, ...] = ()
    sendrows: Rows | None = None
    recvrows: Rows | None = None
    status: int = 0
    source_line: str = ""
    label: str = ""
    what: int = 0
    nbytes: int = 0
    group: Any = None
    matched: bool = False
    paired: bool = False
    lanes: int = 0
    lane_to: int = -1
    lane_from: int = -1
    early: bool = False
    to_itself: bool = False
    goes_on: bool = False
    role: str = ""
    eager: bool = False
    senddtype: str = ""
    recvdtype: str = ""


@dataclass(frozen=True)
class Finish:
    """Wait for the exchange that goes on."""


@dataclass(frozen=True)
class View:
    """A place seen as an ndarray."""

    ref: Ref
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True)
class HostCall:
    """Call a Python function on ndarrays and store what it returns: an array, or a list of one per output.

    in_place: the function gets the outputs too, as writeable ndarrays after the inputs, and returns nothing.
    keeps: the function may keep its arguments, so it gets copies; otherwise they are views that die with the
    call.
    """

    fun: Callable
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    in_place: bool = False
    keeps: bool = False


# ---- control flow: bodies are tuples of instructions


@dataclass(frozen=True)
class Loop:
    """Run `body` `count` times."""

    count: int
    body: tuple


@dataclass(frozen=True)
class While:
    """Run `cond`; while it leaves a true byte at `flag`, run `body` and `cond` again."""

    cond: tuple
    flag: Ref
    body: tuple


@dataclass(frozen=True)
class Switch:
    """Run the branch whose number, an int32, is at `index`; numbers out of range are clamped."""

    index: Ref
    branches: tuple[tuple, ...]


def bodies(instruction: Any) -> tuple[tuple, ...]:
    """The instructions inside a loop or branch; () of any other one."""
    if isinstance(instruction, Loop):
        return (instruction.body,)
    if isinstance(instruction, While):
        return instruction.cond, instruction.body
    return instruction.branches if isinstance(instruction, Switch) else ()


@dataclass(frozen=True)
class Point:
    """Let an `Alias` point to a place."""

    buffer: int
    ref: Ref


@dataclass(frozen=True)
class Advance:
    """Move the pointer of an `Alias` on: the next slice of what a loop scans."""

    buffer: int
    nbytes: int


@dataclass(frozen=True)
class Swap:
    """Exchange the pointers of two `Alias` entries: the new carry of a loop becomes the old one."""

    first: int
    second: int


# ---- the program


@dataclass(frozen=True)
class Result:
    """What is returned: output buffer ("buffer"), argument ("input") or constant buffer ("const") `index`."""

    kind: str
    index: int
    aval: Any
    sharding: Any = None


@dataclass(frozen=True)
class ProgramSpec:
    """A whole program.

    release_gil: let other Python threads run meanwhile; costs 0.05 µs. keep_denormals: compute with denormals, which
    otherwise count as zero.
    """

    num_inputs: int
    buffers: tuple
    instructions: tuple
    results: tuple[Result, ...]
    arena: int = 0
    release_gil: bool = False
    name: str = "program"
    keep_denormals: bool = False


def load(spec: ProgramSpec) -> Program:
    """The program, ready to run. Loads BLAS, or starts MPI, if it has instructions that need them."""
    return Program(spec)


executor.set_num_threads(cpus_per_rank())
