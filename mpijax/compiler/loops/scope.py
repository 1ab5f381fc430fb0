"""Regions of code: the loop variables bound in them, and what is known there."""

from __future__ import annotations

from typing import Any

from mpijax.compiler.fusion.kernel import Member
from mpijax.core.index import LoopVar
from mpijax.scalar.types import Scalar


class Scope:
    """A region of code.

    bound: the loop variables bound in it, with their names. vector: the variable of which it has `lanes` values at a
    time. known: what has been computed in it. available: the loop variables and results of reductions that are known
    in it. phase: the pass over the reduced axes that it is in.
    """

    __slots__ = ("parent", "bound", "vector", "lanes", "known", "available", "phase")

    def __init__(self, parent: Scope | None, bound: dict[LoopVar, str], vector: LoopVar | None = None, lanes: int = 1):
        self.parent = parent
        self.bound = bound
        self.known: dict[Any, Any] = {}
        self.available: frozenset[LoopVar | Member] = frozenset(bound)
        self.vector, self.lanes, self.phase = vector, lanes, 0
        if parent is not None:
            self.available |= parent.available
            self.phase = parent.phase
            if vector is None:
                self.vector, self.lanes = parent.vector, parent.lanes

    def at(self, v: LoopVar, i: str) -> Scope:
        """The region inside of this one in which a variable is `i`."""
        return Scope(self, {v: i})

    def along(self, v: LoopVar, i: str, lanes: int) -> Scope:
        """The region inside of this one in which a variable has `lanes` values, from `i` on."""
        return Scope(self, {v: i}, v, lanes)

    def lookup(self, key: Any) -> Any:
        """What is known here or around."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.known.get(key)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def binding(self, v: LoopVar) -> Scope:
        """The region, this one or one around it, in which a variable is bound."""
        scope: Scope | None = self
        while scope is not None:
            if v in scope.bound:
                return scope
            scope = scope.parent
        raise KeyError(v)

    def variable(self, v: LoopVar) -> str:
        """The name of a variable."""
        return self.binding(v).bound[v]

    def finish(self, member: Member, result: Scalar | Any) -> None:
        """From here on the result of a reduction is known: itself, or what reads it in a region inside of this one."""
        self.known[member] = result
        self.available |= {member}
