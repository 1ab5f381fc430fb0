"""Prints loop nests for people."""

from __future__ import annotations

from typing import Any

from mpijax.compiler.fusion.expr import (
    Applied,
    Choice,
    Expr,
    IndexValue,
    KnownNumber,
    Load,
    MemberValue,
    ReducedValue,
    ordered,
)
from mpijax.compiler.fusion.kernel import Kernel, KernelStore
from mpijax.compiler.graph.nodes import Value, ValueKind, operation_of
from mpijax.compiler.loops.scheduling import scheduled
from mpijax.core.shapes.index import Dynamic, Lin, LoopVar, Quotient


def nest_text(kernel: Kernel) -> str:
    """One kernel as text: its loops, the expressions of an element, reductions and stores."""
    return "\n".join(_KernelText(kernel).lines)


class _KernelText:
    """The lines of a kernel, the names of its loop variables, and the names of expressions and results so far."""

    def __init__(self, kernel: Kernel) -> None:
        schedule = scheduled(kernel)
        where = f"   ; {kernel.source}" if kernel.source is not None and kernel.source.file else ""
        self.lines = [f"kernel {kernel.name} [{schedule.strategy}, {schedule.lanes} lanes]{where}"]
        self.names: dict[LoopVar, str] = {}
        self.shown: dict[Any, str] = {}
        self.indent = "  "
        if kernel.chunks is not None:
            self._loop(kernel.chunks, "chunk", "   # each of the reduced elements in its part")
        for v in kernel.kept:
            self._loop(v, f"i{len(self.names)}")
        inner = self.indent
        self.names |= {v: f"i{len(self.names) + k}" for k, v in enumerate(kernel.reduced)}
        for phase in range(kernel.phases):
            self.indent = inner
            for v in kernel.reduced:
                self._loop(v, self.names[v], f"   # pass {phase}")
            reduces, stores = kernel.of_phase(phase)
            for r in reduces:
                text = self._expr(r.expr)
                acc = f"acc{len([n for n in self.shown.values() if n.startswith('acc')])}"
                self._line(f"{acc} = {r.op}({acc}, {text})")
                self.shown[r.member] = acc
            for s in stores:
                self._store(s)
        self.indent = inner
        for s in kernel.outer:
            self._store(s)

    def _line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def _loop(self, v: LoopVar, name: str, note: str = "") -> None:
        self.names[v] = name
        self._line(f"for {name} in 0..{v.size}:{note}")
        self.indent += "  "

    def _store(self, s: KernelStore) -> None:
        text = self._expr(s.expr)
        guard = f" if {self._expr(s.guard)}" if s.guard is not None else ""
        how = f" {s.combine.name}=" if s.combine else " ="
        self._line(f"{_name(s.value)}[{self._lin(s.position)}]{how} {text}{guard}")

    def _expr(self, e: Expr) -> str:
        """The text of an expression with named operands; adds a line for each unnamed subexpression."""
        for part in ordered([e], self.shown):
            text = self._named(part)
        return text if e not in self.shown else self.shown[e]

    def _named(self, e: Expr) -> str:
        if isinstance(e, KnownNumber):
            return f"{e.scalar}:{e.dtype}"
        if isinstance(e, ReducedValue):
            return self.shown.get(e.member, "acc")
        if e in self.shown:
            return self.shown[e]
        if isinstance(e, MemberValue):
            return self._named(e.args[0])
        if isinstance(e, Load):
            text = f"{_name(e.value)}[{self._lin(e.position)}]"
        elif isinstance(e, Choice):
            at, cuts = self._lin(e.position), e.cuts
            parts = [self._named(a) for a in e.args]
            text = ", ".join([*(f"{p} if {at} < {c}" for p, c in zip(parts, cuts, strict=False)), f"else {parts[-1]}"])
        elif isinstance(e, IndexValue):
            text = self._lin(e.position)
        else:
            assert isinstance(e, Applied)
            text = f"{e.primitive.name}({', '.join(map(self._named, e.args))})"
        name = self.shown[e] = f"t{len(self.shown)}"
        self._line(f"{name} = {text}")
        return name

    def _lin(self, position: Lin) -> str:
        terms = [f"{self._atom(atom)}*{c}" if c != 1 else self._atom(atom) for atom, c in position.terms]
        return " + ".join([*terms, str(position.offset)] if position.offset or not terms else terms)

    def _atom(self, atom: Any) -> str:
        if type(atom) is LoopVar:
            return self.names.get(atom, "?")
        if type(atom) is Dynamic:
            return self._named(atom.expr)
        return f"({self._lin(atom.of)}) {'//' if type(atom) is Quotient else '%'} {atom.by}"


def _name(value: Value) -> str:
    if value.kind is ValueKind.NODE:
        return f"{operation_of(value).primitive.name}:{value.aval.str_short(True)}"
    return f"{value.kind}{value.position}:{value.aval.str_short(True)}"
