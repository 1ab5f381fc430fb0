"""The program as instructions over buffers: what runs when, and where each value lives.

`Plan` is plain data: the runtime loads it, people read it (`text`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpijax.compiler.graph import Value
from mpijax.core.avals import ShapedArray
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

    kind: `input` (index: which argument), `output` (index: which result), `temp` (offset in the arena) or
    `const` (index: which constant). donor: for outputs, the input whose memory is reused, or -1.
    """

    kind: str
    nbytes: int
    index: int = 0
    offset: int = 0
    donor: int = -1
    value: Any = None


@dataclass
class KernelCode:
    """A kernel's function as LLVM IR, and the declarations and helper functions it refers to."""

    define: str
    declares: frozenset[str]
    helpers: dict[str, str]


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
class CommStep:
    """An exchange with other ranks: `kind` says which, `params` over which axes, with whom, and so on."""

    kind: str
    params: dict[str, Any]
    inputs: list[tuple[Ref, tuple[int, ...], np.dtype]]
    outputs: list[tuple[Ref, tuple[int, ...], np.dtype]]
    source: Source
    label: str


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
            reuse = f" in the memory of argument {b.donor}" if b.donor >= 0 else ""
            lines.append(f"  buffer {i}: {b.kind} {where}, {b.nbytes} bytes{reuse}")
        lines.extend(f"  {_step_text(s)}" for s in self.steps)
        outs = ", ".join(f"{r.kind} {r.index}: {r.aval.str_short()}" for r in self.results)
        lines.append(f"  return {outs}")
        return "\n".join(lines)


def _ref(r: Ref) -> str:
    return f"b{r.buffer}+{r.offset}" if r.offset else f"b{r.buffer}"


def _step_text(s: Any) -> str:
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
    ins, outs = (", ".join(_ref(r) for r, _, _ in part) for part in (s.inputs, s.outputs))
    kind = "host" if isinstance(s, HostStep) else "communicate"
    return f"{kind} {s.label} ({ins}) -> ({outs}){where}"
