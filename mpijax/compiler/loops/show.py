"""Loop nests as text for people."""

from __future__ import annotations

from typing import Any

from mpijax.compiler.fusion.expr import Expr, ordered
from mpijax.compiler.fusion.kernel import Kernel, Store
from mpijax.compiler.loops.scheduling import scheduled
from mpijax.core.index import Dynamic, Lin, LoopVar, Quotient


def nest_text(kernel: Kernel) -> str:
    """One kernel: its loops, what is computed for an element, what is reduced and stored."""
    names: dict[LoopVar, str] = {}
    schedule = scheduled(kernel)
    where = f"   ; {kernel.source}" if kernel.source is not None and kernel.source.file else ""
    lines = [f"kernel {kernel.name} [{schedule.strategy}, {schedule.lanes} lanes]{where}"]
    indent = "  "
    if kernel.chunks is not None:
        names[kernel.chunks] = "chunk"
        lines.append(f"{indent}for chunk in 0..{kernel.chunks.size}:   # each of the reduced elements in its part")
        indent += "  "
    for v in kernel.kept:
        names[v] = f"i{len(names)}"
        lines.append(f"{indent}for {names[v]} in 0..{v.size}:")
        indent += "  "
    names |= {v: f"i{len(names) + k}" for k, v in enumerate(kernel.reduced)}
    shown: dict[Any, str] = {}
    for phase in range(kernel.phases):
        depth = indent
        for v in kernel.reduced:
            lines.append(f"{depth}for {names[v]} in 0..{v.size}:   # pass {phase}")
            depth += "  "
        reduces, stores = kernel.of_phase(phase)
        for r in reduces:
            text = _expr(r.expr, names, shown, lines, depth)
            acc = f"acc{len([n for n in shown.values() if n.startswith('acc')])}"
            lines.append(f"{depth}{acc} = {r.op}({acc}, {text})")
            shown[r.member] = acc
        for s in stores:
            lines.append(_store(s, names, shown, lines, depth))
    for s in kernel.outer:
        lines.append(_store(s, names, shown, lines, indent))
    return "\n".join(lines)


def _store(s: Store, names, shown, lines, indent: str) -> str:
    text = _expr(s.expr, names, shown, lines, indent)
    guard = f" if {_expr(s.guard, names, shown, lines, indent)}" if s.guard is not None else ""
    how = f" {s.combine}=" if s.combine else " ="
    return f"{indent}{_name(s.value)}[{_lin(s.position, names, shown, lines, indent)}]{how} {text}{guard}"


def _name(value) -> str:
    if value.kind == "node":
        return f"{value.producer.primitive.name}:{value.aval.str_short()}"
    return f"{value.kind}{value.position}:{value.aval.str_short()}"


def _expr(e: Expr, names, shown, lines, indent: str) -> str:
    """The text of an expression, operands as names; a line for each expression that has none yet."""
    for part in ordered([e], shown):
        text = _named(part, names, shown, lines, indent)
    return text if e not in shown else shown[e]


def _named(e: Expr, names, shown, lines, indent: str) -> str:
    if e.op == "const":
        return f"{e.attr}:{e.dtype}"
    if e.op == "acc":
        return shown.get(e.attr, "acc")
    if e in shown:
        return shown[e]
    if e.op == "inner":
        return _named(e.args[0], names, shown, lines, indent)
    if e.op == "load":
        value, position = e.attr
        text = f"{_name(value)}[{_lin(position, names, shown, lines, indent)}]"
    elif e.op == "choose":
        form, cuts = e.attr
        at = _lin(form, names, shown, lines, indent)
        parts = [_named(a, names, shown, lines, indent) for a in e.args]
        text = ", ".join([*(f"{p} if {at} < {c}" for p, c in zip(parts, cuts, strict=False)), f"else {parts[-1]}"])
    elif e.op == "index":
        text = _lin(e.attr, names, shown, lines, indent)
    else:
        text = f"{e.op}({', '.join(_named(a, names, shown, lines, indent) for a in e.args)})"
    name = f"t{len(shown)}"
    lines.append(f"{indent}{name} = {text}")
    shown[e] = name
    return name


def _lin(position: Lin, names, shown, lines, indent: str) -> str:
    terms = []
    for atom, c in position.terms:
        if type(atom) is LoopVar:
            text = names.get(atom, "?")
        elif type(atom) is Dynamic:
            text = _named(atom.expr, names, shown, lines, indent)
        else:
            inner = _lin(atom.of, names, shown, lines, indent)
            text = f"({inner}) {'//' if type(atom) is Quotient else '%'} {atom.by}"
        terms.append(text if c == 1 else f"{text}*{c}")
    if position.offset or not terms:
        terms.append(str(position.offset))
    return " + ".join(terms)
