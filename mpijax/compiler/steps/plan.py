"""The plan of a program: buffers, instructions, results, kernels. The runtime loads it, people read it (`text`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.steps.instructions import Buffer, Const, Input, Output, Pointer, Temp, text_of
from mpijax.core.avals import ShapedArray
from mpijax.core.sharding.cuts import Cuts
from mpijax.core.source import Source

ALIGN = 64


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Result:
    """A result of the program: number `index` of its buffers ("buffer" or "const") or of its arguments ("input").

    local is its type on this rank, aval the global one; they differ where `sharding` is given.
    """

    kind: Literal["buffer", "input", "const"]
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
    instructions: tuple[Any, ...] = ()
    results: list[Result] = field(default_factory=list)
    arena: int = 0
    kernels: dict[str, KernelCode] = field(default_factory=dict)
    nests: list[Any] = field(default_factory=list)
    largest: list[tuple[int, Value]] = field(default_factory=list)
    gathered: list[Gathered] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)

    def memory(self) -> dict[str, int]:
        """Bytes of arguments, results, temporaries and constants."""
        outputs = [b for b in self.buffers if isinstance(b, Output)]
        return {
            "argument": sum(a.nbytes for a in self.in_avals),
            "output": sum(b.nbytes for b in outputs),
            "alias": sum(b.nbytes for b in outputs if b.donor >= 0),
            "temp": self.arena,
            "const": sum(b.nbytes for b in self.buffers if isinstance(b, Const)),
        }

    def text(self) -> str:
        """The instructions, one a line."""
        lines = [f"program: {len(self.in_avals)} arguments, {len(self.results)} results, arena {self.arena} bytes"]
        results = {r.index: k for k, r in reversed([*enumerate(self.results)]) if r.kind == "buffer"}
        consts = [i for i, b in enumerate(self.buffers) if isinstance(b, Const)]
        numbers = {**results, **{i: k for k, i in enumerate(consts)}}
        lines += [f"  buffer {i}: {_buffer(b, numbers.get(i, 0))}" for i, b in enumerate(self.buffers)]
        lines += text_of(self.instructions, "  ")
        outs = ", ".join(f"{r.kind} {r.index}: {r.aval.str_short()}" for r in self.results)
        lines.append(f"  return {outs}")
        return "\n".join(lines)


def _buffer(b: Buffer, number: int) -> str:
    """An entry of the table. number: of the result that is there, or among the constants."""
    if isinstance(b, Input):
        return f"input #{b.index}, {b.nbytes} bytes"
    if isinstance(b, Output):
        reuse = f" in the memory of argument {b.donor}" if b.donor >= 0 else ""
        return f"output #{number}, {b.nbytes} bytes{reuse}"
    if isinstance(b, Temp):
        return f"temp offset {b.offset}, {b.nbytes} bytes"
    return "pointer" if isinstance(b, Pointer) else f"const #{number}, {b.nbytes} bytes"
