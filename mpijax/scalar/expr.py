"""Defines `Real`: a Scalar with operators, so that rules read like formulas.

Python numbers become constants of the other operand's dtype. Comparisons give bool. `.eq` and `.ne` replace `==` and
`!=`, which keep Python's meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mpijax.scalar.builder import Builder
from mpijax.scalar.registry import COMPLEX_RULES, RULES
from mpijax.scalar.types import FLOAT32, FLOAT64, Scalar, info


class Real:
    """A real value and the builder that computes with it."""

    __slots__ = ("b", "s")

    def __init__(self, b: Builder, s: Scalar):
        self.b = b
        self.s = s

    @property
    def dtype(self) -> np.dtype:
        return self.s.dtype

    def const(self, value) -> Real:
        """A constant of this dtype."""
        return Real(self.b, self.b.const(value, self.s.dtype))

    def _with(self, other) -> Scalar:
        return other.s if isinstance(other, Real) else self.b.const(other, self.s.dtype)

    def _do(self, operation: Callable, *others) -> Real:
        return Real(self.b, operation(self.s, *(self._with(o) for o in others)))

    def _reversed(self, operation: Callable, other) -> Real:
        return Real(self.b, operation(self._with(other), self.s))

    def __add__(self, other) -> Real:
        return self._do(self.b.add, other)

    def __sub__(self, other) -> Real:
        return self._do(self.b.sub, other)

    def __mul__(self, other) -> Real:
        return self._do(self.b.mul, other)

    def __truediv__(self, other) -> Real:
        return self._do(self.b.div, other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other) -> Real:
        return self._reversed(self.b.sub, other)

    def __rtruediv__(self, other) -> Real:
        return self._reversed(self.b.div, other)

    def __neg__(self) -> Real:
        return self._do(self.b.neg)

    def __abs__(self) -> Real:
        return self._do(self.b.abs)

    def __and__(self, other) -> Real:
        return self._do(self.b.and_, other)

    def __or__(self, other) -> Real:
        return self._do(self.b.or_, other)

    def __xor__(self, other) -> Real:
        return self._do(self.b.xor, other)

    def __invert__(self) -> Real:
        return self._do(self.b.not_)

    def __lshift__(self, other) -> Real:
        return self._do(self.b.shl, other)

    def __rshift__(self, other) -> Real:
        """Shift right, filling with the sign for signed integers."""
        return self._do(self.b.ashr if self.s.dtype.kind == "i" else self.b.lshr, other)

    def _compare(self, name: str, other) -> Real:
        return Real(self.b, self.b.compare(name, self.s, self._with(other)))

    def __lt__(self, other) -> Real:
        return self._compare("lt", other)

    def __le__(self, other) -> Real:
        return self._compare("le", other)

    def __gt__(self, other) -> Real:
        return self._compare("gt", other)

    def __ge__(self, other) -> Real:
        return self._compare("ge", other)

    def eq(self, other) -> Real:
        return self._compare("eq", other)

    def ne(self, other) -> Real:
        return self._compare("ne", other)

    def is_nan(self) -> Real:
        return self._do(self.b.is_nan)

    def fma(self, factor, term) -> Real:
        """self * factor + term, rounded once."""
        return self._do(self.b.fma, factor, term)

    def at_least(self, bound) -> Real:
        """max(self, bound); NaN stays NaN."""
        return self._do(self.b.maximum, bound)

    def at_most(self, bound) -> Real:
        """min(self, bound); NaN stays NaN."""
        return self._do(self.b.minimum, bound)

    def sqrt(self) -> Real:
        return self._do(self.b.sqrt)

    def floor(self) -> Real:
        return self._do(self.b.floor)

    def roundeven(self) -> Real:
        return self._do(self.b.roundeven)

    def trunc(self) -> Real:
        return self._do(self.b.trunc)

    def with_sign_of(self, other: Real) -> Real:
        return self._do(self.b.copysign, other)

    def cast(self, opcode: str, dtype) -> Real:
        """One LLVM cast (sitofp, fptosi, fpext, ...)."""
        return Real(self.b, self.b.cast(opcode, self.s, dtype))

    def bits(self) -> Real:
        """The bits of a float as a signed integer."""
        return Real(self.b, self.b.bitcast(self.s, f"i{self.s.dtype.itemsize}"))

    def as_float(self) -> Real:
        """The float with these bits."""
        return Real(self.b, self.b.bitcast(self.s, f"f{self.s.dtype.itemsize}"))


def where(condition: Real, yes, no) -> Real:
    """yes where condition, else no; one of them may be a number."""
    like = yes if isinstance(yes, Real) else no
    return Real(condition.b, condition.b.select(condition.s, like._with(yes), like._with(no)))


def horner(x: Real, coefficients: Sequence[float]) -> Real:
    """c[0] + c[1] x + c[2] x^2 + ... by fused multiply-adds, from the highest power down."""
    value = x.const(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = value.fma(x, c)
    return value


def polynomial(x: Real, coefficients: Sequence[float]) -> Real:
    """The same value by a tree (Estrin's scheme), except the last step, which determines the rounding error.

    A chain of dependent multiply-adds stalls the processor. The tree needs a few more squarings and has less than half
    the latency.
    """
    terms: list = list(coefficients[1:])
    power = x
    while len(terms) > 1:
        pairs = [low if high is None else _times_plus(power, high, low)
                 for low, high in zip(terms[::2], [*terms[1::2], None], strict=False)]
        terms, power = pairs, power * power if len(pairs) > 1 else power
    return _times_plus(x, terms[0], coefficients[0])


def _times_plus(power: Real, factor, term) -> Real:
    return factor.fma(power, term) if isinstance(factor, Real) else power.fma(factor, term)


def is_single(x: Real) -> bool:
    """Whether x is float32 (else it is float64)."""
    return x.dtype == FLOAT32


def in_double(function: Callable[..., Real], *xs: Real) -> Real:
    """function(*xs) in float64, rounded once to the operands' type."""
    if not is_single(xs[0]):
        return function(*xs)
    return function(*(x.cast("fpext", FLOAT64) for x in xs)).cast("fptrunc", FLOAT32)


def elementary(function: Callable) -> Callable:
    """Register a function of float32 or float64 `Real`s as the rule with its name for all float dtypes.

    Narrow floats are computed in float32 and rounded once. Complex operands use the function of the same name in
    mpijax.scalar.complex_functions. Parameters of the primitive (`accuracy`) are ignored.
    """
    name = function.__name__.rstrip("_")

    def rule(b: Builder, *xs: Scalar, **_) -> Scalar:
        if xs[0].imag is not None:
            return COMPLEX_RULES[name](b, *xs)
        return on_floats(b, function, *xs)

    rule.__name__, rule.__doc__ = function.__name__, function.__doc__
    RULES[name] = rule
    return function


def on_floats(b: Builder, function: Callable, *xs: Scalar) -> Scalar:
    """function on `Real`s of the operands; narrow floats are widened before and rounded after.

    >>> from mpijax.extend import core, lowering
    >>> rule = lowering.Elementwise(lambda b, x, y: lowering.on_floats(b, lambda x, y: x * x + y, x, y))
    >>> p = core.Primitive("square_plus", type_rule=lambda x, y: x, reference=lambda x, y: x * x + y, lower=rule)
    >>> p.bind(jnp.array([2.0, 3.0]), jnp.array([1.0, 1.0]))
    Array([ 5., 10.], dtype=float32)
    """
    dtype = xs[0].dtype
    if info(dtype).kind != "n":
        return function(*(Real(b, x) for x in xs)).s
    wide = function(*(Real(b, Scalar(FLOAT32, x.ir)) if x.dtype == dtype else Real(b, x) for x in xs))
    return b.convert(wide.s, dtype)
