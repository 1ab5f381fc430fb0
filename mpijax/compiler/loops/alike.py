"""Finds kernels with the same LLVM IR, which are then emitted and compiled once.

Unrolled loops make the same kernel again and again. `signature` describes everything the IR of a kernel depends on,
without the identity of its arrays. Constants are separate: if they are the only difference between kernels, one
function receives them at run time (`Alike.arguments`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from mpijax.compiler.fusion.expr import (
    Applied,
    Choice,
    Expr,
    IndexValue,
    KnownNumber,
    Load,
    MemberValue,
    ReducedValue,
    dynamic_parts,
)
from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.graph.nodes import Value, operation_of
from mpijax.compiler.loops.repeated import repeated
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.shapes.index import Dynamic, Lin, LoopVar, Quotient

# Programs with fewer kernels are not searched for equal ones.
FEW = 4
# Constants become arguments if at least this many kernels differ only in them.
SEVERAL = 4
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True, eq=False)
class KernelSignature:
    """Everything the IR of a kernel depends on: `key`, and its float constants.

    values: the arrays, in the order in which `key` numbers them. floats: constants that may become arguments.
    """

    key: tuple
    values: list[Value]
    floats: list[KnownNumber]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The bits of the float constants, as integers."""
        return tuple(map(as_integer, self.floats))


def as_integer(e: KnownNumber) -> int:
    """The bits of a constant, in the form in which kernels receive it."""
    return struct.unpack("<q", e.scalar.tobytes().ljust(8, b"\0"))[0]


class _Numbers:
    """Numbers objects in the order of first use."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}

    def __call__(self, x: Any) -> int:
        return self.of.setdefault(x, len(self.of))


def signature(kernel: Kernel) -> KernelSignature | None:
    """The signature of a kernel; None for cumulative ones, which are not compared."""
    return None if kernel.cumulate is not None else _Signer(kernel).signature()


class _Signer:
    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.values = _Numbers()
        self.exprs: dict[Expr, int] = {}
        self.variables = {v: k for k, v in enumerate(kernel.variables)}
        if kernel.chunks is not None:
            self.variables[kernel.chunks] = -1
        self.reduces = {r.member: k for k, r in enumerate(kernel.reduces)}
        self.floats: list[KnownNumber] = []

    def signature(self) -> KernelSignature:
        kernel = self.kernel
        places = [e for s in kernel.stores for e in dynamic_parts(s.position)]
        parts: list[Any] = []
        for e in kernel.expressions:
            parts.append(self._expr(e))
            self.exprs[e] = len(self.exprs)
        stores = [self._stores(kernel.inner), self._stores(kernel.outer)]
        reduces = [
            (r.op, self.exprs[r.expr], r.phase, r.dtype, r.any_zero, operation_of(r.member.value).primitive.name)
            for r in kernel.reduces
        ]
        members = [
            (self.values(m.value), m.kind, m.phase, m.value in kernel.saved, self.exprs.get(m.expr))
            for m in kernel.members
        ]
        arrays = [(v.shape, v.element, id(v) in kernel.streamed) for v in self.values.of]
        sizes = tuple(v.size for v in kernel.variables)
        chunks = 0 if kernel.chunks is None else kernel.chunks.size
        parts_of_key = map(tuple, (parts, *stores, reduces, members, arrays))
        key = (sizes, kernel.axes, kernel.ordered, chunks, len(places), *parts_of_key)
        return KernelSignature(key, list(self.values.of), self.floats)

    def _expr(self, e: Expr) -> tuple:
        if isinstance(e, Applied):  # most are
            args = tuple([self.exprs[a] for a in e.args])
            return (e.primitive, args, e.dtype, e.result, repr(sorted(e.params.items())) if e.params else "")
        if isinstance(e, KnownNumber):
            # In a reduction, the IR depends on the values of constants.
            if e.dtype in _FLOATS and not self.kernel.reduces:
                self.floats.append(e)
                return ("float", e.dtype)
            return ("const", e.dtype, e.scalar.tobytes())
        if isinstance(e, Load):
            return ("load", self.values(e.value), self._lin(e.position))
        if isinstance(e, IndexValue):
            return ("index", e.dtype, self._lin(e.position))
        if isinstance(e, ReducedValue):
            return ("acc", self.reduces[e.member])
        args = tuple([self.exprs[a] for a in e.args])
        if isinstance(e, MemberValue):
            member = e.member
            return ("inner", args, self.values(member.value), member.phase, tuple(map(self._lin, member.index)))
        assert isinstance(e, Choice)
        return ("choose", args, self._lin(e.position), e.cuts)

    def _lin(self, position: Lin) -> tuple:
        return (position.offset, *[(self._atom(atom), c) for atom, c in position.terms])

    def _atom(self, atom: Any) -> Any:
        if type(atom) is LoopVar:
            return self.variables[atom]
        if type(atom) is Dynamic:
            return ("dynamic", self.exprs[atom.expr], atom.size)
        return (type(atom) is Quotient, self._lin(atom.of), atom.by)

    def _stores(self, stores: Iterable[Any]) -> tuple:
        return tuple([
            (self.values(s.value), self._lin(s.position), self.exprs[s.expr], s.phase, s.combine,
             None if s.guard is None else self.exprs[s.guard])
            for s in stores
        ])  # fmt: skip


@dataclass(frozen=True, eq=False)
class Written:
    """A kernel whose IR is emitted.

    operands: its arrays, each with the offset at which it is passed. params: the integers that it is passed.
    arguments: for each constant passed as an argument, its index in `params`.
    """

    name: str
    operands: list[tuple[Value, int]]
    params: list[int]
    arguments: dict[KnownNumber, int]
    extent: int
    grain: int


class Alike:
    """The kernels of a program; kernels that are alike become calls of one function.

    arguments: the constants that a kernel is passed at run time. called: operations that all kernels call as functions.
    """

    def __init__(self, kernels: list[Kernel]) -> None:
        self.signatures: dict[Kernel, KernelSignature] = {}
        self.arguments: dict[Kernel, list[KnownNumber]] = {}
        self.first: dict[Any, tuple[KernelSignature, Written]] = {}
        self.called = repeated(self._grouped(kernels) if len(kernels) >= FEW else kernels)

    def _grouped(self, kernels: list[Kernel]) -> list[Kernel]:
        """Group kernels that are alike, and choose their arguments; returns one kernel of each group."""
        groups: dict[tuple, list[Kernel]] = {}
        for kernel in kernels:
            found = signature(kernel)
            if found is not None:
                self.signatures[kernel] = found
                groups.setdefault(found.key, []).append(kernel)
        for alike in groups.values():
            if len({self.signatures[kernel].numbers for kernel in alike}) >= SEVERAL:
                self.arguments |= {kernel: self.signatures[kernel].floats for kernel in alike}
        return [*(alike[0] for alike in groups.values()), *(k for k in kernels if k not in self.signatures)]

    def _key(self, kernel: Kernel) -> Any:
        """A key that is equal for kernels with the same IR."""
        found = self.signatures[kernel]
        return found.key, () if self.arguments.get(kernel) else found.numbers

    def written_like(self, kernel: Kernel) -> Written | None:
        """The emitted form of an earlier kernel that is alike; None if there is none."""
        known = kernel in self.signatures and self.first.get(self._key(kernel))
        return known[1] if known else None

    def remember(self, kernel: Kernel, written: Written) -> Written:
        """Record the emitted form for kernels alike to this one."""
        if kernel in self.signatures:
            self.first[self._key(kernel)] = self.signatures[kernel], written
        return written

    def passed(self, kernel: Kernel, written: Written) -> tuple[list[tuple[Any, int]], list[int]]:
        """The arrays, with offsets, and the integers that a call of `written` passes for this kernel."""
        own = self.signatures.get(kernel)
        if own is None:
            return written.operands, written.params
        first = self.first[self._key(kernel)][0]
        if first is own:
            return written.operands, written.params
        place = {v: k for k, v in enumerate(first.values)}
        params = list(written.params)
        for e, other in zip(first.floats, own.floats, strict=True):
            if e in written.arguments:
                params[written.arguments[e]] = as_integer(other)
        return [(own.values[place[v]], offset) for v, offset in written.operands], params
