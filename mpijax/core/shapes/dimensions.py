"""Defines symbolic dimensions: ``a``, ``2*a + 1``, ``floordiv(a, 2)``, in exported programs with open sizes.

A `DimExpr` is a polynomial with integer coefficients over variables (integers >= 1) and over ``floordiv``, ``mod``,
``max`` and ``min`` of such polynomials. It can be used as a size. Arithmetic with `int`s gives a `DimExpr`, or an `int`
if no name remains. Bounds decide comparisons (`core.shapes.bounds`); if they do not, the comparison raises
InconclusiveDimensionOperation. `==` is true only for expressions that are equal for all sizes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property, reduce
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from mpijax.core.base import provided
from mpijax.core.base.errors import InconclusiveDimensionOperation


class DimOperation(StrEnum):
    """An operation on two dimensions, with its name in texts."""

    FLOORDIV = "floordiv"
    MOD = "mod"
    MAX = "max"
    MIN = "min"


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    DimOperation.FLOORDIV: lambda x, y: x // y,
    DimOperation.MOD: lambda x, y: x % y,
    DimOperation.MAX: lambda x, y: max_dim(x, y),
    DimOperation.MIN: lambda x, y: min_dim(x, y),
}


class DimFactor(NamedTuple):
    """A variable, or an operation on two dimensions. Factors are ordered by length, then by name."""

    length: int
    name: str
    operands: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(_text, self.operands))})" if self.operands else self.name

    @property
    def key(self) -> tuple:
        return self.length, self.name, tuple(map(_key, self.operands))


# Factors with their exponents, sorted. The empty term is the constant 1.
Term = tuple[tuple[DimFactor, int], ...]
ONE: Term = ()


def variable(name: str, scope: Any) -> DimExpr:
    """The dimension with a name."""
    return _expr({((DimFactor(1, name), 1),): 1}, scope)


def operation(name: DimOperation, x: DimExpr | int, y: DimExpr | int, scope: Any) -> DimExpr | int:
    """An operation on two dimensions, not simplified."""
    length = 1 + _length(x) + _length(y)
    return _expr({((DimFactor(length, name, (x, y)), 1),): 1}, scope)


def _length(x: DimExpr | int) -> int:
    return sum(1 + abs(k) * _term_key(t)[0] for t, k in x.terms) if isinstance(x, DimExpr) else 1


def _text(x: DimExpr | int) -> str:
    return f"- {-x}" if type(x) is int and x < 0 else str(x)


def _terms(x: DimExpr | int) -> tuple[tuple[Term, int], ...]:
    return x.terms if isinstance(x, DimExpr) else ((ONE, x),)


def _key(x: DimExpr | int) -> tuple:
    """The key that orders and compares dimensions."""
    terms = _terms(x)
    return _length(x), tuple((_term_key(t), k) for t, k in terms)


def _term_key(term: Term) -> tuple:
    return sum(1 + f.length * power for f, power in term), tuple((f.key, power) for f, power in reversed(term))


def term_text(term: Term) -> str:
    """``a^2*mod(b, 4)``."""
    return "*".join(str(f) if power == 1 else f"{f}^{power}" for f, power in term)


def product(s: Term, t: Term, sign: int = 1) -> Term:
    """The product of two terms; with ``sign=-1`` their quotient, whose exponents may be negative."""
    powers = dict(s)
    for factor, power in t:
        powers[factor] = powers.get(factor, 0) + sign * power
    return tuple(sorted(((f, p) for f, p in powers.items() if p), key=lambda pair: pair[0].key))


def _expr(coefficients: Mapping[Term, int], scope: Any) -> Any:
    """The sum of terms with coefficients, rewritten by the scope's equalities; an int if it is constant."""
    found = {t: k for t, k in coefficients.items() if k}
    for term, k in found.items():
        rewritten = scope.rewritten(term, k)
        if rewritten is not None:
            del found[term]
            return _expr(_add(found, rewritten, 1), scope)
    if not found.keys() - {ONE}:
        return found.get(ONE, 0)
    return DimExpr(tuple(sorted(found.items(), key=lambda pair: _term_key(pair[0]), reverse=True)), scope)


def _add(into: Mapping[Term, int], x: DimExpr | int, times: int) -> dict[Term, int]:
    found = dict(into)
    for term, k in _terms(x):
        found[term] = found.get(term, 0) + times * k
    return found


class DimExpr:
    """A dimension that depends on symbolic dimensions.

    Attributes:
      terms: pairs of a term and its coefficient, longest term first.
      scope: the `SymbolicScope` of its names.

    >>> a, b = mpijax.export.symbolic_shape("a, b")
    >>> (2 * a * b + 1) * a, (4 * a + 2) // 2, a % 4, a + 1 > a
    (2*a^2*b + a, 2*a + 1, mod(a, 4), True)
    """

    __array_priority__ = 1000

    def __init__(self, terms: tuple[tuple[Term, int], ...], scope: Any):
        self.terms = terms
        self.scope = scope

    def variables(self) -> set[str]:
        """The names in the expression."""
        inner = [f for term, _ in self.terms for f, _ in term]
        named = {f.name for f in inner if not f.operands}
        return named.union(*(x.variables() for f in inner for x in f.operands if isinstance(x, DimExpr)))

    def evaluate(self, sizes: Mapping[str, Any]) -> Any:
        """The size for given sizes of the names. The given sizes may be symbolic themselves."""

        def value(factor: DimFactor) -> Any:
            if not factor.operands:
                return sizes[factor.name]
            return OPERATIONS[factor.name](*(evaluate(x, sizes) for x in factor.operands))

        return sum(k * math.prod(value(f) ** power for f, power in term) for term, k in self.terms)

    # ------------------------------------------------------------ arithmetic

    def __add__(self, other):
        return self._combined(other, operator.add, lambda x: _expr(_add(_add({}, self, 1), x, 1), self.scope))

    def __sub__(self, other):
        return self._combined(other, operator.sub, lambda x: _expr(_add(_add({}, self, 1), x, -1), self.scope))

    def __rsub__(self, other):
        return self._combined(other, _swapped(operator.sub), lambda x: x + -self)

    def __neg__(self):
        return _expr({term: -k for term, k in self.terms}, self.scope)

    def __mul__(self, other):
        return self._combined(other, operator.mul, self._times)

    __radd__, __rmul__ = __add__, __mul__

    def _times(self, x: DimExpr | int) -> Any:
        found: dict[Term, int] = {}
        for s, j in self.terms:
            for t, k in _terms(x):
                term = product(s, t)
                found[term] = found.get(term, 0) + j * k
        return _expr(found, self.scope)

    def __pow__(self, power):
        if isinstance(power, DimExpr):
            return self.__jax_array__() ** power.__jax_array__()
        if power != int(power) or power < 0:
            kind = "negative" if power < 0 else "non-integer"
            raise ValueError(f"Symbolic dimension cannot be raised to {kind} powers: '{self}' ** '{power}'")
        return reduce(operator.mul, [self] * int(power), 1)

    def __rpow__(self, base):
        return base ** self.__jax_array__()

    def __floordiv__(self, other):
        return self._combined(other, operator.floordiv, lambda x: _divided(self, x)[0])

    def __rfloordiv__(self, other):
        return self._combined(other, _swapped(operator.floordiv), lambda x: _divided(x, self)[0])

    def __mod__(self, other):
        return self._combined(other, operator.mod, lambda x: _divided(self, x)[1])

    def __rmod__(self, other):
        return self._combined(other, _swapped(operator.mod), lambda x: _divided(x, self)[1])

    def __divmod__(self, other):
        return self._combined(other, divmod, lambda x: _divided(self, x))

    def __rdivmod__(self, other):
        return self._combined(other, _swapped(divmod), lambda x: _divided(x, self))

    def __truediv__(self, other):
        return self.__jax_array__() / other

    def __rtruediv__(self, other):
        return other / self.__jax_array__()

    def _combined(self, other: Any, on_arrays: Callable, on_sizes: Callable) -> Any:
        """An operation with another dimension. With an array, the operation on the value of this dimension."""
        x = other if isinstance(other, (int, DimExpr)) else _as_int(other)
        if x is None:
            return on_arrays(self.__jax_array__(), other)
        if isinstance(x, DimExpr):
            self.scope.check_same(x, "in arithmetic")
        return on_sizes(x)

    # ------------------------------------------------------------ comparison

    def __eq__(self, other) -> bool:
        if isinstance(other, DimExpr):
            return self.scope is other.scope and self.terms == other.terms
        return False

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    def __ge__(self, other):
        return self._at_least(self, other, ">=", other)

    def __le__(self, other):
        return self._at_least(other, self, "<=", other)

    def __gt__(self, other):
        return not self._at_least(other, self, ">", other)

    def __lt__(self, other):
        return not self._at_least(self, other, "<", other)

    def _at_least(self, x: Any, y: Any, sign: str, other: Any) -> bool:
        low, high = bounds(x - y, settled=lambda low, high: low >= 0 or high < 0)
        if low >= 0 or high < 0:
            return low >= 0
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension comparison '{self}' {sign} '{other}' is inconclusive.{self.scope.said_constraints()}"
        )

    # ------------------------------------------------------------ as other kinds

    def __int__(self) -> int:
        raise InconclusiveDimensionOperation(f"Symbolic dimension '{self}' used in a context that requires a constant")

    @property
    def aval(self) -> Any:
        """The type of its value: a weakly typed integer."""
        return provided.type_of_size()

    def __jax_array__(self):
        return provided.dim_as_value(self)

    dimension_as_value = __jax_array__

    def __deepcopy__(self, _memo) -> DimExpr:
        return self

    def __str__(self) -> str:
        first, *others = [_signed(term, k) for term, k in self.terms]
        return " ".join([first.removeprefix("+ "), *others])

    __repr__ = __str__


def _signed(term: Term, k: int) -> str:
    parts = [str(abs(k))] if abs(k) != 1 or not term else []
    return f"{'-' if k < 0 else '+'} {'*'.join([*parts, *([term_text(term)] if term else [])])}"


def _swapped(of: Callable) -> Callable:
    return lambda x, y: of(y, x)


def _as_int(x: Any) -> int | None:
    """A constant size as an int; None for anything else, including arrays, because they may be traced."""
    if hasattr(x, "aval"):
        return None
    try:
        return operator.index(x)
    except TypeError:
        return None


def _divided(x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient and remainder: polynomials if the division has no remainder, else unsimplified operations."""
    scope = (x if isinstance(x, DimExpr) else y).scope
    if type(y) is int and y == 0:
        raise ZeroDivisionError(f"Symbolic dimension '{x}' divided by 0")
    quotient, rest = 0, x
    while isinstance(rest, DimExpr):
        (term, k), divisor = rest.terms[0], ((ONE, y) if type(y) is int else y.terms[0])
        part = product(term, divisor[0], -1)
        if k % divisor[1] or any(power < 0 for _, power in part):
            return operation(DimOperation.FLOORDIV, x, y, scope), operation(DimOperation.MOD, x, y, scope)
        step = _expr({part: k // divisor[1]}, scope)
        quotient, rest = quotient + step, rest - step * y
    if type(y) is int:
        return quotient + rest // y, rest % y
    if rest:
        return operation(DimOperation.FLOORDIV, x, y, scope), operation(DimOperation.MOD, x, y, scope)
    return quotient, 0


# ---------------------------------------------------------------- sizes of either kind


def is_symbolic_dim(x: Any) -> bool:
    """Whether a size is symbolic.

    >>> mpijax.export.is_symbolic_dim(3), mpijax.export.is_symbolic_dim(mpijax.export.symbolic_shape("a")[0])
    (False, True)
    """
    return isinstance(x, DimExpr)


def is_constant_dim(x: Any) -> bool:
    """Whether a size is a number, neither symbolic nor a traced value."""
    try:
        operator.index(x)
    except Exception:  # a user-defined class of sizes may raise any error
        return False
    return True


def is_constant_shape(shape: Sequence[Any]) -> bool:
    """Whether all sizes are numbers."""
    return all(map(is_constant_dim, shape))


def dimension(x: Any) -> Any:
    """A size: an int for any object with an index, a symbolic dimension unchanged. Else raises TypeError."""
    return x if isinstance(x, DimExpr) else operator.index(x)


def ceil_div(x: Any, y: Any) -> Any:
    """x / y, rounded up."""
    return -(-x // y)


def steps_between(distance: Any, stride: Any) -> Any:
    """The number of steps of size `stride` from 0 to below `distance`, which may be negative."""
    return max_dim(0, distance + stride - 1) // stride


def is_longer(x: Any, limit: int) -> bool:
    """Whether a size certainly exceeds a limit. Symbolic dimensions are assumed to be below it."""
    return not isinstance(x, DimExpr) and x > limit


def position_dtype(size: Any, least: Any = np.int32) -> np.dtype:
    """The dtype of positions along `size` elements: the signed dtype `least`, or a wider one that can hold the size."""
    wider = (np.dtype(d) for d in (least, np.int32) if not is_longer(size, ml_dtypes.iinfo(d).max))
    return next(wider, np.dtype(np.int64))


def slice_bounds(part: slice, size: Any) -> tuple[Any, Any, Any]:
    """`part.indices(size)`, also for symbolic dimensions."""
    if not any(isinstance(x, DimExpr) for x in (size, part.start, part.stop, part.step)):
        return part.indices(size)
    step = 1 if part.step is None else dimension(part.step)
    if type(step) is int and step == 0:
        raise ValueError("slice step cannot be zero")
    least, most = (0, size) if step > 0 else (-1, size - 1)

    def bound(x: Any, default: Any) -> Any:
        if x is None:
            return default
        x = dimension(x)
        return max_dim(least, x + size) if x < 0 else min_dim(most, x)

    first, last = (least, most) if step > 0 else (most, least)
    return bound(part.start, first), bound(part.stop, last), step


def evaluate(x: Any, sizes: Mapping[str, Any]) -> Any:
    """A dimension for given sizes of the names."""
    return x.evaluate(sizes) if isinstance(x, DimExpr) else x


def max_dim(x: Any, y: Any) -> Any:
    """The larger of two sizes.

    >>> a, b = mpijax.export.symbolic_shape("a, b")
    >>> mpijax.core.max_dim(a, b), mpijax.core.max_dim(a, a + 1), mpijax.core.max_dim(2, 3)
    (max(a, b), a + 1, 3)
    """
    return _chosen(DimOperation.MAX, x, y)


def min_dim(x: Any, y: Any) -> Any:
    """The smaller of two sizes.

    >>> a, b = mpijax.export.symbolic_shape("a, b")
    >>> mpijax.core.min_dim(a, b), mpijax.core.min_dim(a, a + 1), mpijax.core.min_dim(2, 3)
    (min(a, b), a, 2)
    """
    return _chosen(DimOperation.MIN, x, y)


def _chosen(name: DimOperation, x: Any, y: Any) -> Any:
    if type(x) is int and type(y) is int:
        return max(x, y) if name is DimOperation.MAX else min(x, y)
    difference = x - y
    low, high = bounds(difference, settled=lambda low, high: low >= 0 or high <= 0)
    if low >= 0 or high <= 0:
        return x if (low >= 0) == (name is DimOperation.MAX) else y
    return operation(name, x, y, difference.scope)


def bounds(x: Any, settled: Callable[[float, float], bool] = lambda _low, _high: False) -> tuple[float, float]:
    """A lower and an upper bound of a size. settled: whether the bounds found so far suffice for the caller."""
    if not isinstance(x, DimExpr):
        return x, x
    return provided.bounds_of(x, settled)
