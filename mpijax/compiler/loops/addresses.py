"""Computes pointers to positions in memory, and integers made of loop variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.loops.scope import Needs, Scope
from mpijax.core.shapes.index import Dynamic, Lin, LoopVar, Quotient, atom_key
from mpijax.scalar.types import Scalar

if TYPE_CHECKING:
    from mpijax.compiler.loops.nest import LoopNest

INT64 = np.dtype(np.int64)

# Positions at most this many elements apart share one base pointer, with the distance as an immediate. Neighbours in a
# row then need one register. A stencil over several arrays would otherwise run out of registers.
NEAR = 8

# An atom of a position, its coefficient, and the loops and reductions that the atom depends on.
Term = tuple[Any, int, Needs]


def _scaled(nest: LoopNest, name: str, c: int) -> str:
    return name if c == 1 else nest.function.builder(1).emit(f"mul i64 {name}, {nest.function.param(c)}")


def _atom_value(nest: LoopNest, atom: Any, scope: Scope) -> Scalar:
    """A quotient, remainder or run-time integer as int64; a vector if it differs between lanes."""
    if type(atom) is Dynamic:
        return nest.eval(atom.expr, scope)
    x = int_value(nest, atom.of, scope)
    b = nest.function.builder(scope.lanes if nest.varies(nest.needs.of_position(atom.of), scope) else 1)
    by = b.splat(Scalar(INT64, nest.function.param(atom.by)))
    return b.udiv(x, by) if type(atom) is Quotient else b.urem(x, by)


def int_value(nest: LoopNest, position: Lin, scope: Scope, dtype: np.dtype = INT64) -> Scalar:
    """An index as an integer; a vector if it varies along the vectorized loop."""
    varies = nest.varies(nest.needs.of_position(position), scope)
    param, one = nest.function.param, nest.function.builder(1)
    base = str(position.offset) if position.offset in (0, 1) else param(position.offset)
    vector_part: list[tuple[Scalar, int]] = []
    ramp = 0
    for atom, c in nest.needs.terms(position):
        if type(atom) is LoopVar:
            name = scope.variable(atom)
            if varies and atom is scope.vector:
                ramp = c
        else:
            x = _atom_value(nest, atom, scope)
            if nest.varies(nest.needs.of_atom(atom), scope):
                vector_part.append((x, c))
                continue
            name = x.ir
        term = _scaled(nest, name, c)
        base = term if base == "0" else one.emit(f"add i64 {base}, {term}")

    def number(b, x: Scalar) -> Scalar:
        return x if dtype == INT64 else b.convert(x, dtype)

    start = number(one, Scalar(INT64, base))
    if not varies:
        return start
    b = nest.function.builder(scope.lanes)
    total = b.splat(start)
    for x, c in [(b.iota(), ramp), *vector_part] if ramp else vector_part:
        x = number(b, x)
        total = b.add(total, x if c == 1 else b.mul(x, b.splat(number(one, Scalar(INT64, param(c))))))
    return total


def pointer(nest: LoopNest, value: Value, position: Lin, scope: Scope) -> str:
    """Pointer to the first lane's element, without per-lane run-time parts; outer terms are added in outer scopes."""
    terms = []
    for atom, c in nest.needs.terms(position):
        needs = nest.needs.of_atom(atom)
        if type(atom) is LoopVar or scope.lanes == 1 or not nest.varies(needs, scope):
            terms.append((atom, c, needs))
    anchor = _anchor(nest, value, position)
    if anchor == position.offset:
        return _pointer_in(nest, value, position, terms, scope, scope)
    base = _pointer_in(nest, value, Lin(anchor, position.terms), terms, scope, scope)
    return nest.function.element(base, value.element, position.offset - anchor)


def _anchor(nest: LoopNest, value: Value, position: Lin) -> int:
    """The offset of the shared base pointer: that of the first position within `NEAR` elements, or its own."""
    _, terms = position.key
    known = nest.anchors.setdefault((value, terms), [])
    for offset in known:
        if abs(offset - position.offset) <= NEAR:
            return offset
    known.append(position.offset)
    return position.offset


def _pointer_in(nest: LoopNest, value: Value, position: Lin, terms: list[Term], scope: Scope, at: Scope) -> str:
    """The address from the terms known in `scope`. The code is emitted in `at`; only that scope caches it."""
    around = scope.parent
    here, outer = terms, []
    if around is not None:
        here = [t for t in terms if not t[2] <= around.available]
        outer = [t for t in terms if t[2] <= around.available]
        if not here:
            return _pointer_in(nest, value, position, outer, around, at)
    key = (value, position.key, frozenset([atom_key(atom) for atom, _, _ in terms]))
    base = at.lookup(key)
    if base is not None:
        return base
    if around is None:
        base = nest.function.operand(value, position.offset)
    else:
        base = _pointer_in(nest, value, position, outer, around, at)
    for atom, c, _ in here:
        name = scope.variable(atom) if type(atom) is LoopVar else _atom_value(nest, atom, at).ir
        base = nest.function.element(base, value.element, _scaled(nest, name, c))
    at.known[key] = base
    return base


def hoist_pointer(nest: LoopNest, value: Value, position: Lin, scope: Scope) -> None:
    """Compute the part of an address that depends only on variables available in the scope."""
    terms: list[Term] = []
    for atom, c in nest.needs.terms(position):
        if type(atom) in (LoopVar, Dynamic):
            needs = nest.needs.of_atom(atom)
            if needs <= scope.available and (type(atom) is LoopVar or not nest.varies(needs, scope)):
                terms.append((atom, c, needs))
    _pointer_in(nest, value, position, terms, scope, scope)


def vector_step(nest: LoopNest, position: Lin, scope: Scope) -> tuple[int, list[tuple[Any, int]]]:
    """The step along the vectorized loop, and the parts of the position that are computed per lane."""
    step = 0
    parts = []
    for atom, c in nest.needs.terms(position):
        if type(atom) is LoopVar:
            if atom is scope.vector:
                step = c
        elif nest.varies(nest.needs.of_atom(atom), scope):
            parts.append((atom, c))
    return step, parts


def lane_offsets(nest: LoopNest, scope: Scope, step: int, parts: list[tuple[Any, int]]) -> Scalar:
    """Per-lane element offsets relative to `pointer`."""
    b = nest.function.builder(scope.lanes)
    total = None
    for atom, c in [(None, step), *parts] if step and scope.lanes > 1 else parts:
        x = b.iota() if atom is None else _atom_value(nest, atom, scope)
        if c != 1:
            x = b.mul(x, b.splat(Scalar(INT64, nest.function.param(c))))
        total = x if total is None else b.add(total, x)
    assert total is not None  # callers pass at least one part
    return total
