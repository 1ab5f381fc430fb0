"""The instructions of a program, and the entries of its table of buffers. Plain data that does not change.

The compiler makes them, people read their text, the matching checks walk through them, and the executor loads them.
Before that, `runtime.program.link` puts MPI's calls in place of each `Communicate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import UNKNOWN, Source
from mpijax.core.rules.lowering import Communication


@dataclass(frozen=True)
class Place:
    """A place in memory: buffer number and offset in bytes."""

    buffer: int
    offset: int = 0

    def __str__(self) -> str:
        return f"b{self.buffer}{self.offset:+}" if self.offset else f"b{self.buffer}"


@dataclass(frozen=True)
class Operand:
    """An array that an instruction reads or writes."""

    place: Place
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def row(self) -> int:
        """Bytes of one row along the first axis."""
        return Operand(self.place, self.shape[1:], self.dtype).nbytes


# ---------------------------------------------------------------- entries of the table of buffers


@dataclass(frozen=True)
class Input:
    """Argument number `index`; `nbytes` is checked where it is an ndarray, unless it is -1. value: of the graph."""

    index: int
    nbytes: int = -1
    value: Any = None


@dataclass(frozen=True)
class Output:
    """Memory of a result, new in each run.

    donor: number of the argument whose memory is taken over (its array is deleted), or -1. The buffer begins with the
    donor's bytes even if its memory cannot be taken, because an ndarray shows it, or owns it.
    """

    nbytes: int
    donor: int = -1
    value: Any = None


@dataclass(frozen=True)
class Temp:
    """Memory during a run, at a byte offset of the arena."""

    offset: int
    nbytes: int = 0
    value: Any = None


@dataclass(frozen=True)
class Const:
    """An ndarray or array that lives as long as the program. An ndarray is laid out as `value` says, if given."""

    array: Any
    nbytes: int = 0
    value: Any = None


@dataclass(frozen=True)
class Pointer:
    """A pointer that `Point`, `Advance` and `Swap` move."""

    nbytes: int = 0
    value: Any = None


Buffer = Input | Output | Temp | Const | Pointer


# ---------------------------------------------------------------- instructions


# The name of `st_run`, a function of `strided.h` that is called like kernels.
STRIDED = "strided"


@dataclass(frozen=True)
class KernelCall:
    """A compiled loop nest over [0, extent), which may be split among threads in parts of at least `grain`.

    code: the name of the kernel, or STRIDED, or the address of
    `void fn(void **ptrs, int64_t *params, int64_t begin, int64_t end)`.
    foreign: it is the user's, called once for all, and sees denormals as the rest of the process does. frame: of a loop
    that is one function (`steps/native.py`), words in which it leaves its state when there is better code, or 0.
    touched: bytes that the kernels in it are given in all iterations, or None if it does not say how many there are.
    """

    code: str | int
    ptrs: tuple[Place, ...]
    params: tuple[int, ...]
    extent: int
    grain: int
    source: Source = UNKNOWN
    label: str = ""
    foreign: bool = False
    frame: int = 0
    touched: int | None = 0


@dataclass(frozen=True)
class GemmCall:
    """`C = op(A) op(B)`, row-major, for each matrix of a batch.

    op(A) is m x k, op(B) k x n, C m x n; ld*: elements from row to row as the operand lies in memory.
    trans: "N" or "T" (transposed). `*_strides`: elements from matrix to matrix, per batch axis.
    """

    dtype: np.dtype
    trans_a: str
    trans_b: str
    m: int
    n: int
    k: int
    a: Place
    lda: int
    b: Place
    ldb: int
    c: Place
    ldc: int
    batch: tuple[int, ...] = ()
    a_strides: tuple[int, ...] = ()
    b_strides: tuple[int, ...] = ()
    c_strides: tuple[int, ...] = ()
    source: Source = UNKNOWN


@dataclass(frozen=True)
class Copy:
    """Copy bytes; the places may overlap."""

    target: Place
    origin: Place
    nbytes: int


@dataclass(frozen=True)
class Fill:
    """Fill `nbytes` bytes with copies of `pattern` (1 to 16 bytes that divide them)."""

    target: Place
    nbytes: int
    pattern: bytes


@dataclass(frozen=True)
class PythonCall:
    """Call a Python function on ndarrays and store what it returns: an array, or a list of one per output.

    The arguments are views, which die with the call.
    """

    fun: Callable
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    source: Source = UNKNOWN
    label: str = ""


@dataclass(frozen=True)
class NativeCall:
    """Call machine code, the user's (`foreign`) or our own, on operands, results and the status bytes.

    `code` is a `core.rules.lowering.NativeCode`; if it leaves an int32 at `status` that is not 0, its `failed` is
    called.
    """

    code: Any
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    status: Operand
    source: Source
    label: str
    foreign: bool

    def parts(self) -> tuple[Any, ...]:
        """The instructions that it stands for."""
        at = self.status.place
        places = tuple(x.place for x in (*self.inputs, *self.outputs, self.status))
        said = self.source, self.label
        failed = PythonCall(self.code.failed, (*self.inputs, self.status), (), *said)
        return (
            Fill(at, 4, b"\0"),
            KernelCall(self.code.address(), places, tuple(self.code.words), 1, 1, *said, self.foreign),
            Switch(at, ((), (failed,))),
        )


@dataclass(frozen=True)
class Communicate:
    """An exchange with other ranks; `params` say over which axes, with whom, and so on.

    goes_on: later instructions run beside it, up to a `Finish`. posted: of a send: it does not wait. why: the reason
    if the compiler added it; empty if the program communicates here itself.
    """

    lower: Communication
    params: dict[str, Any]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    source: Source
    label: str
    goes_on: bool = False
    posted: bool = False
    why: str = ""


@dataclass(frozen=True)
class Finish:
    """Wait for the exchange that has gone on longest."""

    label: str = ""
    source: Source = UNKNOWN


@dataclass(frozen=True)
class Point:
    """Let a `Pointer` point to a place."""

    pointer: int
    place: Place


@dataclass(frozen=True)
class TimeTiles:
    """How to run several iterations of a loop tile by tile, so that a tile stays in cache from one to the next.

    The body of the loop is kernels, then `Swap` and `Advance`. Its arrays have `rows` rows. `depth` iterations form a
    group; a tile has `height` rows. units: for each kernel, the iterations of its outermost loop per row. above, below:
    for each kernel of a group, in order, the number of rows that it leaves out at the upper and at the lower end of a
    range whose neighbour is not computed yet. wraps: the first row is a neighbour of the last one. starts: pointers of
    the first iteration, which reads the array that the loop starts from.
    """

    rows: int
    depth: int
    height: int
    units: tuple[int, ...]
    above: tuple[int, ...]
    below: tuple[int, ...]
    wraps: bool
    starts: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Loop:
    """Run `body` `count` times. tiles: how to run several iterations at a time, with the same results."""

    count: int
    body: tuple[Any, ...]
    source: Source = UNKNOWN
    tiles: TimeTiles | None = None


@dataclass(frozen=True)
class While:
    """Run `cond`; while the byte at `flag` is not 0, run `body` and `cond` again."""

    cond: tuple[Any, ...]
    flag: Place
    body: tuple[Any, ...]
    source: Source = UNKNOWN


@dataclass(frozen=True)
class Switch:
    """Run the branch whose number, an int32, is at `index`; numbers out of range are clamped."""

    index: Place
    branches: tuple[tuple[Any, ...], ...]
    source: Source = UNKNOWN


@dataclass(frozen=True)
class Advance:
    """Move a `Pointer` on by `nbytes`: to the next slice of what a loop scans."""

    pointer: int
    nbytes: int


@dataclass(frozen=True)
class Swap:
    """Exchange two `Pointer`s: the new carry of a loop becomes the old one."""

    first: int
    second: int


# ---------------------------------------------------------------- walks


def bodies(instruction: Any) -> tuple[tuple[Any, ...], ...]:
    """The instructions inside a loop or branch; () of any other one."""
    if isinstance(instruction, Loop):
        return (instruction.body,)
    if isinstance(instruction, While):
        return instruction.cond, instruction.body
    return instruction.branches if isinstance(instruction, Switch) else ()


@dataclass(frozen=True)
class Visit:
    """An instruction, and how often a run of the program does it.

    times: at most, an iteration of a `while` loop counting once. counted: whether no such loop or branch is around it.
    certain: whether each run does it.
    """

    instruction: Any
    times: int
    counted: bool
    certain: bool


# Bytes that a kernel is given at least, for the time that a call takes.
_LEAST = 64


def visits(
    instructions: tuple[Any, ...], times: int = 1, counted: bool = True, certain: bool = True
) -> Iterator[Visit]:
    """All instructions in program order, those in bodies of loops and branches too."""
    for x in instructions:
        yield Visit(x, times, counted, certain)
        if isinstance(x, Loop):
            yield from visits(x.body, times * x.count, counted, certain and x.count > 0)
        elif isinstance(x, While):
            yield from visits(x.cond, times, False, certain)
            yield from visits(x.body, times, False, False)
        elif isinstance(x, Switch):
            for branch in x.branches:
                yield from visits(branch, times, False, False)


def walk(instructions: tuple[Any, ...]) -> Iterator[Any]:
    """All instructions in program order, those in bodies of loops and branches too."""
    for x in instructions:
        yield x
        for body in bodies(x):
            yield from walk(body)


def accesses(x: Any) -> list[tuple[Place, int]]:
    """The places that an instruction reads or writes, without those inside of it, and how many bytes; 0: not known."""
    if isinstance(x, KernelCall):
        return [(p, 0) for p in x.ptrs]
    if isinstance(x, GemmCall):
        return [(x.a, 0), (x.b, 0), (x.c, 0)]
    if isinstance(x, Copy):
        return [(x.target, x.nbytes), (x.origin, x.nbytes)]
    if isinstance(x, Fill):
        return [(x.target, x.nbytes)]
    if isinstance(x, While):
        return [(x.flag, 1)]
    if isinstance(x, Switch):
        return [(x.index, 4)]
    if isinstance(x, Point):
        return [(x.place, 0)]
    found = [*getattr(x, "inputs", ()), *getattr(x, "outputs", ())]
    found += [x.status] if isinstance(x, NativeCall) else []
    return [(o.place, o.nbytes) for o in found]


def bytes_touched(instructions: tuple[Any, ...], buffers: Sequence[Buffer]) -> int | None:
    """Bytes of the buffers that kernels read and write in a run, at most; None if a number of iterations is unknown."""
    total = 0
    for v in visits(instructions):
        x = v.instruction
        if isinstance(x, While):
            return None
        if isinstance(x, KernelCall):
            if x.touched is None:
                return None
            given = sum(max(buffers[place.buffer].nbytes, _LEAST) for place in x.ptrs)
            total += v.times * (x.touched or given)
    return total


def mapped(instructions: tuple[Any, ...], change: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, ...]:
    """The instructions with each one replaced by those of `change`, except loops and branches.

    A loop in time tiles counts as one instruction.
    """
    out: list[Any] = []
    for x in instructions:
        if isinstance(x, Loop) and x.tiles is None:
            out.append(replace(x, body=mapped(x.body, change)))
        elif isinstance(x, While):
            out.append(replace(x, cond=mapped(x.cond, change), body=mapped(x.body, change)))
        elif isinstance(x, Switch):
            out.append(replace(x, branches=tuple(mapped(b, change) for b in x.branches)))
        else:
            out += change(x)
    return tuple(out)


# ---------------------------------------------------------------- text


def text_of(instructions: tuple[Any, ...], indent: str) -> list[str]:
    """The instructions, one a line."""
    lines = []
    for x in instructions:
        lines.append(indent + line_of(x))
        inside = bodies(x)
        names = ("if", "do") if isinstance(x, While) else [str(i) for i in range(len(inside))]
        for name, body in zip(names, inside, strict=True):
            if len(names) > 1:
                lines.append(f"{indent} {name}:")
            lines += text_of(body, indent + "    ")
    return lines


def line_of(x: Any) -> str:
    """One instruction, without those inside of it."""
    source = getattr(x, "source", UNKNOWN)
    where = f"   ; {source.file.rsplit('/', 1)[-1]}:{source.line}" if source.file else ""
    return _LINES[type(x)](x) + where


def _gemm(x: GemmCall) -> str:
    batch = f" batch {x.batch}" if x.batch else ""
    return f"gemm {x.dtype} {x.trans_a}{x.trans_b} {x.m}x{x.n}x{x.k}{batch} {x.c} = {x.a} @ {x.b}"


def _call(kind: str, x: PythonCall | NativeCall | Communicate) -> str:
    ins, outs = (", ".join(str(o.place) for o in part) for part in (x.inputs, x.outputs))
    return f"{kind} {x.label} ({ins}) -> ({outs})"


def _tiles(tiles: TimeTiles | None) -> str:
    return "" if tiles is None else f", {tiles.depth} iterations at a time in tiles of {tiles.height} rows"


def _communicate(x: Communicate) -> str:
    return _call("start" if x.goes_on else "post" if x.posted else "communicate", x)


_LINES: dict[type, Callable[[Any], str]] = {
    KernelCall: lambda x: f"kernel {x.label} ({', '.join(map(str, x.ptrs))}) params {list(x.params)} extent {x.extent}",
    GemmCall: _gemm,
    Copy: lambda x: f"copy {x.target} = {x.origin}, {x.nbytes} bytes",
    Fill: lambda x: f"fill {x.target} with {x.pattern.hex()}, {x.nbytes} bytes",
    PythonCall: lambda x: _call("host", x),
    NativeCall: lambda x: _call("native", x),
    Communicate: _communicate,
    Finish: lambda x: f"wait for {x.label}",
    Loop: lambda x: f"loop {x.count} times{_tiles(x.tiles)}",
    While: lambda x: f"while {x.flag}",
    Switch: lambda x: f"switch {x.index}",
    Point: lambda x: f"point b{x.pointer} to {x.place}",
    Advance: lambda x: f"advance b{x.pointer} by {x.nbytes}",
    Swap: lambda x: f"swap b{x.first} and b{x.second}",
}
