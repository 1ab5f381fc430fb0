"""Quotients of floats, and remainders that are exact as those of C's fmod.

If the quotient, rounded towards zero, is an integer that a float can hold, one fused multiply-add gives the remainder
without rounding. That integer is at most one too large. Larger quotients, infinities and NaN are left to the C library.
"""

from __future__ import annotations

import numpy as np

from mpijax.scalar.builder import Builder
from mpijax.scalar.expr import Real, where
from mpijax.scalar.guard import rarely
from mpijax.scalar.reciprocal import reciprocal_parts
from mpijax.scalar.types import FLOAT32, Scalar, info


def float_quotient(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """x / y, by multiplication if that gives the same number."""
    parts = None if y.constant is None else reciprocal_parts(y.constant, x.dtype)
    if parts is None:
        return b.div(x, y)
    high, low = (b.const(part, x.dtype) for part in parts)
    return b.mul(x, high) if parts[1] == 0 else b.fma(x, high, b.mul(x, low))


def float_remainder(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """x - n y with the sign of x and less than |y|, for an integer n."""
    if info(x.dtype).bits < 32:
        wide = float_remainder(b, b.convert(x, FLOAT32), b.convert(y, FLOAT32))
        return b.convert(wide, x.dtype)
    divisor = b.abs(y) if y.constant is None else b.const(abs(y.constant), y.dtype)
    size, of = abs(Real(b, x)), Real(b, divisor)
    times = Real(b, b.trunc(float_quotient(b, size.s, divisor)))
    rest = Real(b, b.fma(b.neg(times.s), divisor, size.s))
    rest = where(rest < 0, rest + of, rest)
    rest = where(size < of, size, rest)  # an infinite divisor, too
    usual = Real(b, b.copysign(rest.s, x))
    held = float(2 ** (np.finfo(x.dtype).nmant + 1))
    return rarely("remainder", _not_below(times, held), usual, _by_the_library, Real(b, x), Real(b, y)).s


def _not_below(x: Real, bound: float) -> Real:
    """Whether x is at least the bound, or NaN."""
    return Real(x.b, x.b.fcmp("uge", x.s, x.const(bound).s))


def _by_the_library(x: Real, y: Real) -> Real:
    return Real(x.b, x.b.op("frem", x.s, y.s))
