"""Inlines calls in a loop body if some of their operations do not depend on the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mpijax.core.programs.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Literal, Var
from mpijax.core.types import effects as fx
from mpijax.transforms.call import jit_p


def with_open_calls(closed: ClosedJaxpr, known_inputs: Sequence[bool]) -> ClosedJaxpr:
    """The Jaxpr with those calls inlined that contain operations of known arguments only, besides others."""
    jaxpr = closed.jaxpr
    if not _hides(jaxpr, known_inputs):
        return closed
    opened = _OpenedJaxpr(closed, known_inputs)
    opened.write(jaxpr.eqns)
    outvars = [opened.atom(v) for v in jaxpr.outvars]
    rewritten = jaxpr.replace(constvars=list(opened.constants), outvars=outvars, eqns=opened.eqns)
    return ClosedJaxpr(rewritten, list(opened.constants.values()))


def _determined(atoms: Iterable[Atom], known: set[Var]) -> list[bool]:
    return [type(v) is Literal or v in known for v in atoms]


def _hides(jaxpr: Jaxpr, known_inputs: Sequence[bool], inside: bool = False) -> bool:
    """Whether a call with some unknown arguments contains operations that need none of these."""
    known = set(jaxpr.constvars) | {v for v, k in zip(jaxpr.invars, known_inputs, strict=True) if k}
    for eqn in jaxpr.eqns:
        flags = _determined(eqn.invars, known)
        if all(flags) and not fx.pins(eqn.effects):
            if inside:
                return True
            known.update(eqn.outvars)
        elif eqn.primitive is jit_p and _hides(eqn.params["jaxpr"].jaxpr, flags, inside=True):
            return True
    return False


class _OpenedJaxpr:
    """A Jaxpr under reconstruction with calls inlined."""

    def __init__(self, closed: ClosedJaxpr, known_inputs: Sequence[bool]):
        jaxpr = closed.jaxpr
        self.eqns: list[Eqn] = []
        self.constants: dict[Var, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
        self.known = set(self.constants) | {v for v, k in zip(jaxpr.invars, known_inputs, strict=True) if k}
        self.named: dict[Var, Atom] = {}

    def atom(self, v: Atom) -> Atom:
        """The variable of the new Jaxpr for an old one."""
        return v if type(v) is Literal else self.named.get(v, v)

    def write(self, eqns: Sequence[Eqn], fresh: bool = False) -> None:
        """Add equations. `fresh` renames their results, for a Jaxpr that may be called more than once."""
        for eqn in eqns:
            invars = [self.atom(v) for v in eqn.invars]
            flags = _determined(invars, self.known)
            if all(flags) and not fx.pins(eqn.effects):
                self._add(eqn, invars, fresh, known=True)
            elif eqn.primitive is jit_p and _hides(eqn.params["jaxpr"].jaxpr, flags, inside=True):
                self._open(eqn, invars)
            else:
                self._add(eqn, invars, fresh, known=False)

    def _add(self, eqn: Eqn, invars: list[Atom], fresh: bool, known: bool) -> None:
        outvars = [Var(v.aval) for v in eqn.outvars] if fresh else eqn.outvars
        if fresh:
            self.named.update(zip(eqn.outvars, outvars, strict=True))
        self.eqns.append(eqn.replace(invars=invars, outvars=outvars))
        if known:
            self.known.update(outvars)

    def _open(self, eqn: Eqn, invars: list[Atom]) -> None:
        inner: ClosedJaxpr = eqn.params["jaxpr"]
        self.named.update(zip(inner.jaxpr.invars, invars, strict=True))
        for v, value in zip(inner.jaxpr.constvars, inner.consts, strict=True):
            constant = self.named[v] = Var(v.aval)
            self.constants[constant] = value
            self.known.add(constant)
        self.write(inner.eqns, fresh=True)
        self.named.update(zip(eqn.outvars, map(self.atom, inner.jaxpr.outvars), strict=True))
