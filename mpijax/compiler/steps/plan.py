"""The plan of a program: buffers, instructions, results, kernels. The runtime loads it, people read it (`text`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import Any

from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.sharding.blocks import split_of
from mpijax.compiler.steps.instructions import (
    STRIDED,
    Advance,
    Buffer,
    Const,
    Input,
    KernelCall,
    Output,
    Point,
    Pointer,
    Swap,
    Temp,
    accesses,
    line_of,
    text_of,
    walk,
)
from mpijax.core import dtypes
from mpijax.core.base.errors import BrokenForm
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import Source
from mpijax.core.sharding.context import type_spec
from mpijax.core.sharding.cuts import Cuts
from mpijax.core.sharding.split import entries
from mpijax.core.types.avals import ShapedArray

ALIGN = 64


@dataclass(frozen=True)
class KernelCode:
    """A kernel's function as LLVM IR, and the declarations and helper functions it refers to.

    optimize: whether LLVM's passes are to run on it; kernels alone do not need them. inner: the function as others call
    it, where that is another text.
    """

    define: str
    declares: frozenset[str]
    helpers: dict[str, str]
    optimize: bool = False
    inner: str = ""


def module_text(codes: list[KernelCode]) -> str:
    """Several kernels as one LLVM module."""
    declares = sorted(frozenset().union(*(c.declares for c in codes)))
    helpers: dict[str, str] = {}
    for c in codes:
        helpers.update(c.helpers)
    return "\n".join([*declares, *helpers.values(), *(c.define for c in codes)])


class ResultKind(StrEnum):
    """Where a result is.

    BUFFER: in memory of its own, an `Output` of the table of buffers. INPUT: it is an argument. CONST: it is a constant
    of the program, a `Const` of the table.
    """

    BUFFER = "buffer"
    INPUT = "input"
    CONST = "const"


@dataclass(frozen=True)
class Result:
    """A result of the program: number `index` of its buffers, or of its arguments (`ResultKind.INPUT`).

    local is its type on this rank, aval the global one; they differ where `sharding` is given.
    """

    kind: ResultKind
    index: int
    aval: ShapedArray
    local: ShapedArray
    sharding: Any = None

    def worded(self, asked: Any, first: tuple[Any, ShapedArray | None]) -> Result:
        """This result with its sharding as JAX writes it: `P("x")` may mean the same as `P("x", None)`.

        That is, as the caller asked for it. Split over Explicit axes only, the spec has an entry for each array axis,
        as in the type; otherwise it is as for the first argument, or else without what splits nothing. Specs of PRNG
        keys over several devices have all entries.
        first: the sharding of that argument, and its type.
        """
        held, ndim = self.sharding, self.aval.ndim
        if not hasattr(held, "mesh"):
            return self
        if asked is not None:
            return replace(self, sharding=asked) if _is_same(held, asked, ndim) else self
        given, of = first
        if held.mesh.is_explicit:
            typed = held.update(spec=type_spec(held, ndim))
            sharding = typed if typed.is_equivalent_to(held, ndim) else _short(held, ndim)
        elif of is not None and (of.ndim, _is_key(of)) == (ndim, _is_key(self.aval)) and _is_same(held, given, ndim):
            sharding = given
        else:
            sharding = _short(held, ndim)
            if _is_key(self.aval) and held.mesh.size > 1:
                sharding = sharding.update(spec=sharding.spec.padded(ndim))
        return replace(self, sharding=sharding)


def _is_key(aval: ShapedArray) -> bool:
    return isinstance(aval.dtype, dtypes.ExtendedDType)


def _is_same(a: Any, b: Any, ndim: int) -> bool:
    return a.mesh == getattr(b, "mesh", None) and a.is_equivalent_to(b, ndim)


def _short(sharding: Any, ndim: int) -> Any:
    """The sharding without mesh axes of size 1 and without entries at its end that split nothing."""
    parts = entries(split_of(sharding, ndim))
    return sharding.update(spec=sharding.spec.update(parts).without_trailing_nones())


@dataclass(frozen=True)
class Gathered:
    """A split array that an operation made whole on every rank: its bytes and type, the operation, the user's line.

    operand, argument: which operand it is, and which argument of the program, if it is one (else -1).
    instead: how it may be split so that the operation leaves it split, as a PartitionSpec; empty if it cannot.
    """

    nbytes: int
    type: str
    operation: str
    source: Source
    operand: int = 0
    argument: int = -1
    instead: str = ""


@dataclass(frozen=True)
class ResultPlacement:
    """How the result of an operation lies over the ranks.

    aval: of the whole array. mesh: (name, size) of each axis. cuts: one for each array axis, None if uncut.
    """

    aval: ShapedArray
    operation: str
    source: Source
    mesh: tuple[tuple[Any, int], ...]
    cuts: Cuts


@dataclass
class PlanBuilder:
    """What the instructions of a program need, while they are written: it grows with them.

    buffers: the table that instructions refer to. arena: bytes of temporaries. nests: the kernels, as people read them.
    """

    buffers: list[Buffer]
    arena: int
    kernels: dict[str, KernelCode] = field(default_factory=dict)
    nests: list[Kernel] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class ProgramPlan:
    """Buffers, instructions and results.

    nests: the kernels, as people read them. largest: the largest buffers and their sizes in bytes.
    """

    in_avals: tuple[ShapedArray, ...]
    buffers: tuple[Buffer, ...]
    instructions: tuple[Any, ...] = ()
    results: tuple[Result, ...] = ()
    arena: int = 0
    kernels: Mapping[str, KernelCode] = field(default_factory=dict)
    nests: tuple[Kernel, ...] = ()
    largest: tuple[tuple[int, Value], ...] = ()
    gathered: tuple[Gathered, ...] = ()
    placed: tuple[ResultPlacement, ...] = ()

    def worded(self, in_shardings: Sequence[Any], asked: Sequence[Any]) -> ProgramPlan:
        """This plan with the shardings of results as JAX writes them (see `Result.worded`).

        in_shardings, asked: for each argument its sharding, and for each result the one that the caller gave, or None;
        empty if all are None.
        """
        if all(r.sharding is None for r in self.results):
            return self
        held = zip(in_shardings, self.in_avals, strict=False)
        first = next(((sharding, aval) for sharding, aval in held if sharding is not None), (None, None))
        given = asked or (None,) * len(self.results)
        results = tuple([r.worded(sharding, first) for r, sharding in zip(self.results, given, strict=True)])
        return replace(self, results=results)

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
        results = {r.index: k for k, r in reversed([*enumerate(self.results)]) if r.kind is ResultKind.BUFFER}
        consts = [i for i, b in enumerate(self.buffers) if isinstance(b, Const)]
        numbers = {**results, **{i: k for k, i in enumerate(consts)}}
        lines += [f"  buffer {i}: {_buffer(b, numbers.get(i, 0))}" for i, b in enumerate(self.buffers)]
        lines += text_of(self.instructions, "  ")
        outs = ", ".join(f"{r.kind} {r.index}: {r.aval.str_short(True)}" for r in self.results)
        lines.append(f"  return {outs}")
        return "\n".join(lines)


def verify(plan: ProgramPlan) -> None:
    """Check the rules of a plan.

    Raises:
      BrokenForm: a rule does not hold; the message names it.
    """
    for holds, rule in (*_buffer_rules(plan), *_instruction_rules(plan), *_memory_rules(plan)):
        if not holds:
            raise BrokenForm(f"{rule}, in the plan\n{plan.text()}")


def _buffer_rules(plan: ProgramPlan) -> Iterator[tuple[bool, str]]:
    donors = [b.donor for b in plan.buffers if isinstance(b, Output) and b.donor >= 0]
    yield len(set(donors)) == len(donors), "an argument donates its memory to one result"
    yield all(d < len(plan.in_avals) for d in donors), "donated memory is that of arguments of the program"
    for i, b in enumerate(plan.buffers):
        if isinstance(b, Temp):
            inside = 0 <= b.offset and b.offset + b.nbytes <= plan.arena
            yield inside, f"temporaries lie in the arena, but b{i} does not"
            yield b.offset % ALIGN == 0, f"temporaries begin at multiples of {ALIGN} bytes, but b{i} does not"
    entries = {ResultKind.BUFFER: Output, ResultKind.CONST: Const}
    for r in plan.results:
        if r.kind is ResultKind.INPUT:
            fits = r.index < len(plan.in_avals)
        else:
            fits = type(plan.buffers[r.index]) is entries[r.kind]
        yield fits, f"a result is an argument, a result buffer or a constant, but {r.kind} {r.index} is not"
    returned = {r.index for r in plan.results if r.kind is ResultKind.BUFFER}
    outputs = {i for i, b in enumerate(plan.buffers) if isinstance(b, Output)}
    yield returned == outputs, f"each result buffer is returned, but {outputs - returned} are not"


def _instruction_rules(plan: ProgramPlan) -> Iterator[tuple[bool, str]]:
    pointers: set[int] = set()
    for x in walk(plan.instructions):
        if isinstance(x, KernelCall):
            known = x.code in plan.kernels or x.code == STRIDED
            yield known, f"the plan contains the kernels that it calls, but not {x.code}"
            yield x.extent >= 0 and x.grain >= 1, f"an extent is at least 0 and a grain at least 1: {line_of(x)}"
        elif isinstance(x, Point):
            pointers.add(x.pointer)
            yield isinstance(plan.buffers[x.pointer], Pointer), f"only pointers move: {line_of(x)}"
        elif isinstance(x, Advance):
            yield x.pointer in pointers, f"a pointer is set before it moves: {line_of(x)}"
        elif isinstance(x, Swap):
            yield {x.first, x.second} <= pointers, f"a pointer is set before it moves: {line_of(x)}"
        for place, nbytes in accesses(x):
            b = plan.buffers[place.buffer] if place.buffer < len(plan.buffers) else None
            yield b is not None, f"places lie in buffers of the plan: {line_of(x)}"
            if nbytes and not isinstance(b, (Pointer, Input)) and b is not None:
                inside = 0 <= place.offset and place.offset + nbytes <= max(b.nbytes, 0)
                yield inside, f"places lie within their buffers: {place} in {line_of(x)}"


def _memory_rules(plan: ProgramPlan) -> Iterator[tuple[bool, str]]:
    """Nothing is written into memory of the arena that is still read: as far as instructions outside of loops say."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    behind: dict[int, set[int]] = {}  # the buffers that a pointer may point to
    for t, x in enumerate(plan.instructions):
        for y in walk((x,)):
            if isinstance(y, Point):
                behind[y.pointer] = {y.place.buffer}
            elif isinstance(y, Swap):
                behind[y.first] = behind[y.second] = behind[y.first] | behind[y.second]
            for place, _ in accesses(y):
                for i in behind.get(place.buffer, {place.buffer}):
                    first.setdefault(i, t)
                    last[i] = t
    known = ((i, b) for i, b in enumerate(plan.buffers) if isinstance(b, Temp) and b.nbytes and i in first)
    temps = sorted((b.offset, i, b) for i, b in known)
    live: list[tuple[int, int]] = []  # (end, number) of those that begin before
    for offset, i, b in temps:
        live = [(end, j) for end, j in live if end > offset]
        for _, j in live:
            apart = last[i] <= first[j] or last[j] <= first[i]
            yield apart, f"buffers in use at the same time do not overlap, but b{i} and b{j} do"
        live.append((offset + b.nbytes, i))


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
