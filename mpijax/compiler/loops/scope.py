"""Scopes: regions of code, with the loop variables and reduction results available to expressions in them."""

from __future__ import annotations

from typing import Any

from mpijax.compiler.fusion.expr import Choice, Expr, IndexValue, Load, ReducedValue, ordered
from mpijax.compiler.fusion.kernel import Member
from mpijax.compiler.loops.schedule import Loop, Schedule
from mpijax.core.shapes.index import Dynamic, Lin, LoopVar
from mpijax.scalar.types import Scalar

# Loops, each identified by its innermost variable, and reductions.
Needs = frozenset[LoopVar | Member]

class Scope:
    """A region of code.

    bound: the loop variables bound in it, with their names. vector: the vectorized variable, with `lanes` values at a
    time. fresh: how many of the last lanes count, if the others repeat elements that are done; 0: all count. known:
    values computed in it. available: the loop variables and reduction results that its code can use. phase: the current
    pass over the reduced axes.
    """

    __slots__ = ("parent", "bound", "vector", "lanes", "fresh", "known", "available", "phase")

    def __init__(
        self,
        parent: Scope | None,
        bound: dict[LoopVar, str],
        vector: LoopVar | None = None,
        lanes: int = 1,
        fresh: int = 0,
    ):
        self.parent = parent
        self.bound = bound
        self.known: dict[Any, Any] = {}
        self.available: Needs = frozenset(bound)
        self.vector, self.lanes, self.fresh, self.phase = vector, lanes, fresh, 0
        if parent is not None:
            self.available |= parent.available
            self.phase = parent.phase
            if vector is None:
                self.vector, self.lanes, self.fresh = parent.vector, parent.lanes, parent.fresh

    def at(self, v: LoopVar, i: str) -> Scope:
        """A scope inside this one with a variable bound to `i`."""
        return Scope(self, {v: i})

    def along(self, v: LoopVar, i: str, lanes: int, fresh: int = 0) -> Scope:
        """A scope inside this one with a variable bound to `lanes` values, from `i` on."""
        return Scope(self, {v: i}, v, lanes, fresh)

    def lookup(self, key: Any) -> Any:
        """A value known in this scope or one around it; else None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.known.get(key)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def binding(self, v: LoopVar) -> Scope:
        """This scope or the one around it in which a variable is bound."""
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
        """Make the result of a reduction available: its value, or a function that loads it in an inner scope."""
        self.known[member] = result
        self.available |= {member}


class Dependencies:
    """Computes and caches the dependencies of the expressions of one kernel."""

    def __init__(self, schedule: Schedule) -> None:
        kernel = schedule.source
        self.loop_of: dict[LoopVar, Loop] = {v: loop for loop in schedule.loops for v in loop}
        self._known: dict[Expr, Needs] = {}
        self._of_results = self._loops(kernel.kept)
        if kernel.cumulate is not None:
            self._known[kernel.cumulate.running] = self._loops(kernel.variables)

    def _loops(self, variables) -> Needs:
        return frozenset(self.loop_of[v][-1] for v in variables if v.size != 1)

    def of(self, e: Expr) -> Needs:
        """The loops and reductions that an expression depends on."""
        found = self._known.get(e)
        if found is None:
            for part in ordered([e], self._known):
                self._known[part] = self._own(part)
            found = self._known[e]
        return found

    def _own(self, e: Expr) -> Needs:
        """The dependencies of an expression whose operands' dependencies are known."""
        if isinstance(e, (Load, IndexValue)):
            return self.of_position(e.position)
        if isinstance(e, ReducedValue):
            return self._of_results | {e.member}
        found = frozenset().union(*[self._known[a] for a in e.args])
        return found | self.of_position(e.position) if isinstance(e, Choice) else found

    def of_position(self, position: Lin) -> Needs:
        """The dependencies of a position."""
        return frozenset().union(*[self.of_atom(atom) for atom, _ in position.terms])

    def of_atom(self, atom: Any) -> Needs:
        """The dependencies of an atom of a position."""
        if type(atom) is LoopVar:
            return frozenset((self.loop_of[atom][-1],))
        return self.of(atom.expr) if type(atom) is Dynamic else self.of_position(atom.of)

    def terms(self, position: Lin) -> list[tuple[Any, int]]:
        """The terms of a position; of each merged loop, only the term of its innermost variable."""
        return [t for t in position.terms if type(t[0]) is not LoopVar or self.loop_of[t[0]][-1] is t[0]]
