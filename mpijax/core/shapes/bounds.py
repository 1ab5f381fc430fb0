"""Computes bounds of symbolic dimensions.

First by intervals: a variable is in [1, inf), and a polynomial is between the sums of its terms' bounds. If that does
not decide, by a linear program over the terms. Its constraints are the definitions of operations
(``floordiv(a, 2)*2 + mod(a, 2) = a``), the constraints of the scope, and that the product of a factor >= k and a rest
>= 0 is at least k times the rest. Its optimum over the rationals bounds the integers and is rounded towards them.
``max`` and ``min`` are split into cases.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mpijax.core.shapes.dimensions import ONE, DimExpr, DimFactor, DimOperation, Term, bounds, operation, product
from mpijax.core.shapes.linear_programs import UNBOUNDED, minimum

_INF = math.inf
_ALL = (-_INF, _INF)
_CHOICES = (DimOperation.MAX, DimOperation.MIN)
# Maximal number of cases for `max` and `min`. A dimension with more is bounded by intervals.
_MAX_CASES = 4

# A polynomial that is >= 0 (or = 0), as coefficients by term.
Fact = tuple[dict[Term, int], bool]


def bounds_of(x: DimExpr, settled: Callable[[float, float], bool]) -> tuple[float, float]:
    """A lower and an upper bound of x. `settled` tells whether bounds suffice for the caller."""
    known = x.scope.known_bounds
    low, high, best = known.get(x) or (*_interval(x.terms, x.scope), False)
    if not (best or settled(low, high)):
        known[x] = low, high, True  # read by recursive queries for x
        low, high = _by_cases(x, [], settled)
        known[x] = low, high, not settled(low, high)
    return low, high


def is_satisfiable(constraints: Iterable[Fact], scope: Any) -> bool:
    """Whether some sizes may satisfy all constraints."""
    return _least({}, [*constraints], scope) is not None


def fact(x: Any, equal: bool) -> Fact:
    """The fact that a size is >= 0, or = 0. Division by a common factor rounds, because sizes are integers."""
    found = dict(x.terms) if isinstance(x, DimExpr) else {ONE: x}
    common = math.gcd(*(k for t, k in found.items() if t))
    return (found if equal or not common else {t: k // common for t, k in found.items()}), equal


# ---------------------------------------------------------------- intervals


def _interval(terms, scope: Any) -> tuple[float, float]:
    parts = [_scaled(_interval_of_term(term, scope), k) for term, k in terms]
    return sum(low for low, _ in parts), sum(high for _, high in parts)


def _scaled(interval: tuple[float, float], k: int) -> tuple[float, float]:
    low, high = (_times(x, k) for x in interval)
    return (low, high) if k > 0 else (high, low)


def _times(x: float, y: float) -> float:
    """The product; 0 times infinity is 0."""
    return x * y if x and y else 0


def _interval_of_term(term: Term, scope: Any) -> tuple[float, float]:
    found: tuple[float, float] = (1, 1)
    for factor, power in term:
        for _ in range(power):
            ends = [_times(x, y) for x in found for y in _interval_of_factor(factor, scope)]
            found = min(ends), max(ends)
    return found


def _interval_of_variable(factor: DimFactor, scope: Any) -> tuple[float, float]:
    """[1, inf), or tighter bounds from the constraints."""
    x = DimExpr(((((factor, 1),), 1),), scope)
    if x not in scope.known_bounds:
        scope.known_bounds[x] = 1, _INF, True  # read by recursive queries
        if scope.facts:
            scope.known_bounds[x] = *_linear(x, []), True
    return scope.known_bounds[x][:2]


def _interval_of_factor(factor: DimFactor, scope: Any) -> tuple[float, float]:
    if not factor.operands:
        return _interval_of_variable(factor, scope)
    (low, high), (below, above) = map(bounds, factor.operands)
    if factor.name == DimOperation.MAX:
        return max(low, below), max(high, above)
    if factor.name == DimOperation.MIN:
        return min(low, below), min(high, above)
    if factor.name == DimOperation.MOD:
        if below > 0:
            return 0, above - 1
        return (below + 1, 0) if above < 0 else _ALL
    if below <= 0 <= above:
        return _ALL
    ends = [_quotient(x, y) for x in (low, high) for y in (below, above)]
    return min(ends), max(ends)


def _quotient(x: float, y: float) -> float:
    """``x // y``, or its limit if one of them is infinite."""
    if math.isinf(x):
        return x if y > 0 else -x
    if math.isinf(y):
        return 0 if x == 0 or (x > 0) == (y > 0) else -1
    return x // y


# ---------------------------------------------------------------- linear programs


def _by_cases(
    x: Any, known: list[Fact], settled: Callable[[float, float], bool], cases: int = 0
) -> tuple[float, float]:
    """Bounds of x under the facts `known`. Splits `max` and `min` into cases until `settled`."""
    if not isinstance(x, DimExpr):
        return x, x
    low, high = _linear(x, known)
    choice = next((f for t, _ in x.terms for f, _ in t if f.name in _CHOICES and f.operands), None)
    if choice is None or low == high or cases == _MAX_CASES or settled(low, high):
        return low, high
    value = DimExpr(((((choice, 1),), 1),), x.scope)
    found = []
    for chosen, other in itertools.permutations(choice.operands):
        difference = chosen - other if choice.name == DimOperation.MAX else other - chosen
        case = [*known, fact(difference, False), fact(value - chosen, True)]
        if is_satisfiable([*case, *x.scope.facts], x.scope):
            found.append(_by_cases(_with(x, choice, chosen), case, settled, cases + 1))
    if not found:
        return low, high
    return max(low, min(least for least, _ in found)), min(high, max(most for _, most in found))


def _with(x: DimExpr, factor: DimFactor, value: Any) -> Any:
    """x with a factor replaced by a value."""
    found: Any = 0
    for term, k in x.terms:
        power = dict(term).get(factor, 0)
        rest = product(term, ((factor, power),), -1) if power else term
        found = found + DimExpr(((rest, k),), x.scope) * value**power if rest else found + k * value**power
    return found


def _linear(x: DimExpr, known: list[Fact]) -> tuple[float, float]:
    facts = [*known, *x.scope.facts]
    low, high = _interval(x.terms, x.scope)
    least, most = (_least({t: sign * k for t, k in x.terms}, facts, x.scope) for sign in (1, -1))
    return max(low, -_INF if least is None else least), min(high, _INF if most is None else -most)


def _least(polynomial: Mapping[Term, int], facts: list[Fact], scope: Any) -> float | None:
    """An integer lower bound of a polynomial under the facts; None if the facts contradict each other.

    It is the largest number c such that the polynomial equals c plus a nonnegative combination of facts.
    """
    facts = _with_meanings({*polynomial, *(t for f, _ in facts for t in f)}, facts, scope)
    terms = dict.fromkeys(t for f in (polynomial, *(f for f, _ in facts)) for t in f if t)
    for term in terms:
        low, high = _interval_of_term(term, scope)
        facts += [({term: 1, ONE: -int(low)}, False)] if not math.isinf(low) else []
        facts += [({term: -1, ONE: int(high)}, False)] if not math.isinf(high) else []
    # An equality may be used with both signs.
    usable = [f for f, _ in facts] + [{t: -k for t, k in f.items()} for f, equal in facts if equal]
    found = minimum(
        [f.get(ONE, 0) for f in usable],
        [[f.get(t, 0) for f in usable] for t in terms],
        [polynomial.get(t, 0) for t in terms],
    )
    if isinstance(found, str):
        return None if found == UNBOUNDED else -_INF
    return math.ceil(polynomial.get(ONE, 0) - found)


def _with_meanings(terms: set[Term], facts: list[Fact], scope: Any) -> list[Fact]:
    """The facts, plus the meanings of the operations and products in them, recursively."""
    found, todo, done = list(facts), [t for t in terms if t], set(terms)
    while todo:
        for meaning in _meanings(todo.pop(), scope):
            found.append(meaning)
            fresh = meaning[0].keys() - done - {ONE}
            done |= fresh
            todo += fresh
    return found


def _meanings(term: Term, scope: Any) -> Iterable[Fact]:
    """The facts that define one term."""
    if len(term) > 1 or term[0][1] > 1:
        for factor, _ in term:
            rest = product(term, ((factor, 1),), -1)
            low = _interval_of_factor(factor, scope)[0]
            if not math.isinf(low) and _interval_of_term(rest, scope)[0] >= 0:
                yield {term: 1, rest: -int(low)}, False
        return
    factor = term[0][0]
    if not factor.operands:
        return
    x, y = factor.operands
    value: Any = DimExpr(((term, 1),), scope)
    if factor.name in _CHOICES:
        for of in (x, y):
            yield fact(value - of if factor.name == DimOperation.MAX else of - value, False)
        return
    whole, remainder = (operation(name, x, y, scope) for name in (DimOperation.FLOORDIV, DimOperation.MOD))
    yield fact(y * whole + remainder - x, True)
    if bounds(y)[0] > 0:
        yield fact(remainder, False)
        yield fact(y - 1 - remainder, False)
