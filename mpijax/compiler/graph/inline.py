"""The first stage: replaces each call (`jit`, `custom_jvp`, ...) by the equations of the called Jaxpr."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

from mpijax.core.base import config
from mpijax.core.base.errors import BrokenForm
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.base.source import UNKNOWN, Source
from mpijax.core.programs.jaxpr import Atom, ClosedJaxpr, DropVar, Eqn, Jaxpr, Literal, Var
from mpijax.core.rules.lowering import InlineJaxpr


@dataclass(frozen=True)
class InlinedJaxpr:
    """A Jaxpr without calls.

    apart: for each result of a `checkpoint`-like call, the number of that call. Equal operations in two such calls, or
    in one and outside, are not merged: the merged result would stay in memory, which `checkpoint` avoids.
    """

    closed: ClosedJaxpr
    apart: dict[Var, int] = field(default_factory=dict)


def inlined(closed: ClosedJaxpr) -> InlinedJaxpr:
    """A Jaxpr without calls."""
    if not any(map(_called, closed.jaxpr.eqns)):
        return InlinedJaxpr(closed)
    return _inlined(closed)


def _called(eqn: Eqn) -> ClosedJaxpr | None:
    lower = eqn.primitive.lower
    return eqn.params[lower.param] if isinstance(lower, InlineJaxpr) else None


@dataclass(frozen=True, eq=False)
class _CallFrame:
    """A Jaxpr whose equations are being copied.

    values: each variable's atom in the whole program; variables of the outermost Jaxpr map to themselves. call: the
    results of the call. source: the line of the call. scope: the innermost call that is apart; 0 for none.
    """

    jaxpr: Jaxpr
    values: dict[Var, Atom]
    call: list[Var]
    source: Source
    scope: int
    eqns: Iterator[Eqn]

    def read(self, atoms: list[Atom]) -> list[Atom]:
        values = self.values
        return [v if type(v) is Literal else values.get(v, v) for v in atoms]


@memo_on_jaxpr
def _inlined(closed: ClosedJaxpr) -> InlinedJaxpr:
    eqns: list[Eqn] = []
    constvars, consts = list(closed.jaxpr.constvars), list(closed.consts)
    apart: dict[Var, int] = {}
    scopes = 0
    frames = [_CallFrame(closed.jaxpr, {}, [], UNKNOWN, 0, iter(closed.jaxpr.eqns))]
    while True:
        frame = frames[-1]
        eqn = next(frame.eqns, None)
        if eqn is None:
            results = frame.read(frame.jaxpr.outvars)
            if len(frames) == 1:
                break
            frames.pop()
            frames[-1].values.update(zip(frame.call, results, strict=True))
            continue
        operands, source = frame.read(eqn.invars), eqn.source.within(frame.source)
        called = _called(eqn)
        if called is None:
            outvars = eqn.outvars
            if len(frames) > 1:
                outvars = [v if type(v) is DropVar else Var(v.aval) for v in eqn.outvars]
                frame.values.update(zip(eqn.outvars, outvars, strict=True))
            if frame.scope:
                apart.update(dict.fromkeys(outvars, frame.scope))
            eqns.append(Eqn(eqn.primitive, operands, outvars, eqn.params, eqn.effects, source))
            continue
        own = [Var(v.aval) for v in called.jaxpr.constvars]
        constvars += own
        consts += called.consts
        values: dict[Var, Atom] = dict(zip(called.jaxpr.constvars, own, strict=True))
        values.update(zip(called.jaxpr.invars, operands, strict=True))
        scope = frame.scope
        if eqn.primitive.lower.is_apart(eqn.params):
            scopes += 1
            scope = scopes
        frames.append(_CallFrame(called.jaxpr, values, eqn.outvars, source, scope, iter(called.jaxpr.eqns)))
    jaxpr = closed.jaxpr.replace(constvars=constvars, eqns=eqns, outvars=results)
    program = InlinedJaxpr(ClosedJaxpr(jaxpr, consts), apart)
    if config.values.jax_enable_checks:
        verify(program)
    return program


def verify(program: InlinedJaxpr) -> None:
    """Check the rules of a program after inlining.

    Raises:
      BrokenForm: a rule does not hold; the message names it.
    """
    jaxpr = program.closed.jaxpr
    known: set[Any] = {*jaxpr.constvars, *jaxpr.invars}
    for eqn in jaxpr.eqns:
        if _called(eqn) is not None:
            raise BrokenForm(f"An inlined program has no calls, but this one has {eqn.primitive.name} at {eqn.source}.")
        _check_known(eqn.invars, known, eqn)
        if known.intersection(new := [v for v in eqn.outvars if type(v) is not DropVar]):
            raise BrokenForm(
                f"Each variable is assigned once, but {eqn.primitive.name} at {eqn.source} assigns {new} again."
            )
        known.update(new)
    _check_known(jaxpr.outvars, known, "the results")
    if len(program.closed.consts) != len(jaxpr.constvars):
        raise BrokenForm(f"{len(jaxpr.constvars)} constants have {len(program.closed.consts)} values.")


def _check_known(atoms: list[Atom], known: set[Any], where: Any) -> None:
    unknown = [v for v in atoms if type(v) is not Literal and v not in known]
    if unknown:
        raise BrokenForm(f"Variables are assigned before they are read, but {unknown} are not, in {where}.")
