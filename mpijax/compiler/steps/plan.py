"""The program as instructions over buffers: what runs when, and where each value lives.

`Plan` is plain data: the runtime loads it, people read it (`text`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpijax.compiler.graph.nodes import Value
from mpijax.core.avals import ShapedArray
from mpijax.core.sharding.cuts import Cuts
from mpijax.core.source import Source

ALIGN = 64


@dataclass(frozen=True)
class Ref:
    """A place in a buffer: buffer number and byte offset."""

    buffer: int
    offset: int = 0


@dataclass
class Buffer:
    """An entry of the buffer table.

    kind: `input` (index: which argument), `output` (index: which result), `temp` (offset in the arena),
    `const` (index: which constant) or `pointer` (set by a `PointStep`). donor: for outputs, the input whose memory
    is reused, or -1.
    """

    kind: str
    nbytes: int
    index: int = 0
    offset: int = 0
    donor: int = -1
    value: Any = None


@dataclass
class KernelCode:
    """A kernel's function as LLVM IR, and the declarations and helper functions it refers to.

    optimize: whether LLVM's passes are to run on it; kernels alone do not need them.
    """

    define: str
    declares: frozenset[str]
    helpers: dict[str, str]
    optimize: bool = False


def module_text(codes: list[KernelCode]) -> str:
    """Several kernels as one LLVM module."""
    declares = sorted(frozenset().union(*(c.declares for c in codes)))
    helpers: dict[str, str] = {}
    for c in codes:
        helpers.update(c.helpers)
    return "\n".join([*declares, *helpers.values(), *(c.define for c in codes)])


@dataclass
class KernelCall:
    """Run a compiled loop nest over `[0, extent)` of its outermost loop."""

    name: str
    ptrs: list[Ref]
    params: list[int]
    extent: int
    grain: int
    source: Source
    label: str


@dataclass
class GemmCall:
    """`C = op(A) op(B)`, row-major, for each of `batch` matrices; `*_strides` in elements per batch axis."""

    dtype: np.dtype
    trans_a: bool
    trans_b: bool
    m: int
    n: int
    k: int
    a: Ref
    lda: int
    b: Ref
    ldb: int
    c: Ref
    ldc: int
    batch: tuple[int, ...]
    a_strides: tuple[int, ...]
    b_strides: tuple[int, ...]
    c_strides: tuple[int, ...]
    source: Source


@dataclass
class CopyCall:
    """Copy bytes."""

    target: Ref
    origin: Ref
    nbytes: int


@dataclass
class HostStep:
    """Call a Python function on NumPy views of buffers; results are written into the output buffers."""

    fun: Any
    inputs: list[tuple[Ref, tuple[int, ...], np.dtype]]
    outputs: list[tuple[Ref, tuple[int, ...], np.dtype]]
    source: Source
    label: str


@dataclass
class NativeCall:
    """Call machine code, the user's (`foreign`) or our own, on operands, results and the status bytes.

    `code` is a `core.lowering.NativeCode`; if it leaves an int32 at `status` that is not 0, its `failed` is called.
    """

    code: Any
    inputs: list[tuple[Ref, tuple[int, ...], np.dtype]]
    outputs: list[tuple[Ref, tuple[int, ...], np.dtype]]
    status: tuple[Ref, tuple[int, ...], np.dtype]
    source: Source
    label: str
    foreign: bool


@dataclass
class CommStep:
    """An exchange with other ranks: `kind` says which, `params` over which axes, with whom, and so on.

    goes_on: later steps run beside it, up to a `WaitStep`. posted: of a send: it does not wait.
    """

    kind: str
    params: dict[str, Any]
    inputs: list[tuple[Ref, tuple[int, ...], np.dtype]]
    outputs: list[tuple[Ref, tuple[int, ...], np.dtype]]
    source: Source
    label: str
    goes_on: bool = False
    posted: bool = False


@dataclass
class WaitStep:
    """Wait for the exchange that goes on."""

    label: str
    source: Source


@dataclass
class LoopStep:
    """Run the steps of `body` `count` times."""

    count: int
    body: list[Any]
    source: Source


@dataclass
class WhileStep:
    """Run `cond`; while the byte at `flag` is not 0, run `body` and `cond` again."""

    cond: list[Any]
    flag: Ref
    body: list[Any]
    source: Source


@dataclass
class SwitchStep:
    """Run the branch whose number, an int32, is at `index`; numbers out of range are clamped."""

    index: Ref
    branches: list[list[Any]]
    source: Source


@dataclass
class PointStep:
    """Let a pointer buffer point to a place."""

    pointer: int
    ref: Ref


@dataclass
class AdvanceStep:
    """Move a pointer buffer on by `nbytes`."""

    pointer: int
    nbytes: int


@dataclass
class SwapStep:
    """Exchange two pointer buffers."""

    first: int
    second: int


def walk(steps: list[Any]):
    """All steps, those in bodies of loops and branches too."""
    for s in steps:
        yield s
        for body in bodies(s):
            yield from walk(body)


def bodies(step: Any) -> list[list[Any]]:
    """The lists of steps inside a loop or branch."""
    if isinstance(step, LoopStep):
        return [step.body]
    if isinstance(step, WhileStep):
        return [step.cond, step.body]
    if isinstance(step, SwitchStep):
        return step.branches
    return []


@dataclass
class Result:
    """A result of the program: a buffer, an argument passed through, or a constant.

    local is its type on this rank, aval the global one; they differ where `sharding` is given.
    """

    kind: str
    index: int
    aval: ShapedArray
    local: ShapedArray
    sharding: Any = None


@dataclass(frozen=True)
class Gathered:
    """A split array that an operation made whole on every rank: its bytes and type, the operation, the user's line."""

    nbytes: int
    type: str
    operation: str
    source: Source


@dataclass(frozen=True)
class Placed:
    """How the result of an operation lies over the ranks.

    aval: of the whole array. mesh: (name, size) of each axis. cuts: one for each array axis, None if uncut.
    """

    aval: ShapedArray
    operation: str
    source: Source
    mesh: tuple[tuple[Any, int], ...]
    cuts: Cuts


@dataclass
class Plan:
    """Buffers, instructions and results."""

    in_avals: list[ShapedArray]
    buffers: list[Buffer] = field(default_factory=list)
    steps: list[Any] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    consts: list[Any] = field(default_factory=list)
    arena: int = 0
    kernels: dict[str, KernelCode] = field(default_factory=dict)
    nests: list[Any] = field(default_factory=list)
    largest: list[tuple[int, Value]] = field(default_factory=list)
    gathered: list[Gathered] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)

    def memory(self) -> dict[str, int]:
        """Bytes of arguments, results, temporaries and constants."""

        def total(kind):
            return sum(b.nbytes for b in self.buffers if b.kind == kind)

        return {
            "argument": sum(a.nbytes for a in self.in_avals),
            "output": total("output"),
            "alias": sum(b.nbytes for b in self.buffers if b.kind == "output" and b.donor >= 0),
            "temp": self.arena,
            "const": total("const"),
        }

    def text(self) -> str:
        """The instructions, one a line."""
        lines = [f"program: {len(self.in_avals)} arguments, {len(self.results)} results, arena {self.arena} bytes"]
        for i, b in enumerate(self.buffers):
            where = f"offset {b.offset}" if b.kind == "temp" else f"#{b.index}"
            if b.kind == "pointer":
                where = "set by the program"
            reuse = f" in the memory of argument {b.donor}" if b.donor >= 0 else ""
            lines.append(f"  buffer {i}: {b.kind} {where}, {b.nbytes} bytes{reuse}")
        lines += _steps_text(self.steps, "  ")
        outs = ", ".join(f"{r.kind} {r.index}: {r.aval.str_short()}" for r in self.results)
        lines.append(f"  return {outs}")
        return "\n".join(lines)


def _ref(r: Ref) -> str:
    return f"b{r.buffer}{r.offset:+}" if r.offset else f"b{r.buffer}"


def _steps_text(steps: list[Any], indent: str) -> list[str]:
    lines = []
    for s in steps:
        lines.append(indent + step_text(s))
        names = ("if", "do") if isinstance(s, WhileStep) else [str(i) for i in range(len(bodies(s)))]
        for name, body in zip(names, bodies(s), strict=True):
            if len(names) > 1:
                lines.append(f"{indent} {name}:")
            lines += _steps_text(body, indent + "    ")
    return lines


def step_text(s: Any) -> str:
    """One instruction, without the steps inside of it."""
    where = (
        f"   ; {s.source.file.rsplit('/', 1)[-1]}:{s.source.line}"
        if getattr(s, "source", None) and s.source.file
        else ""
    )
    if isinstance(s, KernelCall):
        return f"kernel {s.label} ({', '.join(map(_ref, s.ptrs))}) params {s.params} extent {s.extent}{where}"
    if isinstance(s, GemmCall):
        t = ("T" if s.trans_a else "N") + ("T" if s.trans_b else "N")
        batch = f" batch {s.batch}" if s.batch else ""
        return f"gemm {s.dtype} {t} {s.m}x{s.n}x{s.k}{batch} {_ref(s.c)} = {_ref(s.a)} @ {_ref(s.b)}{where}"
    if isinstance(s, CopyCall):
        return f"copy {_ref(s.target)} = {_ref(s.origin)}, {s.nbytes} bytes"
    if isinstance(s, LoopStep):
        return f"loop {s.count} times{where}"
    if isinstance(s, WhileStep):
        return f"while {_ref(s.flag)}{where}"
    if isinstance(s, SwitchStep):
        return f"switch {_ref(s.index)}{where}"
    if isinstance(s, PointStep):
        return f"point b{s.pointer} to {_ref(s.ref)}"
    if isinstance(s, AdvanceStep):
        return f"advance b{s.pointer} by {s.nbytes}"
    if isinstance(s, SwapStep):
        return f"swap b{s.first} and b{s.second}"
    if isinstance(s, WaitStep):
        return f"wait for {s.label}{where}"
    ins, outs = (", ".join(_ref(r) for r, _, _ in part) for part in (s.inputs, s.outputs))
    kind = {HostStep: "host", NativeCall: "native"}.get(type(s), "communicate")
    if isinstance(s, CommStep) and s.goes_on:
        kind = "start"
    if isinstance(s, CommStep) and s.posted:
        kind = "post"
    return f"{kind} {s.label} ({ins}) -> ({outs}){where}"
