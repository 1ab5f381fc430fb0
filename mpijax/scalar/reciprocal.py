"""Division by a constant without a division: a product and a fused multiply-add, rounded like the quotient.

1 / c is stored as the sum of two numbers of the same sign, high + low. x / c = x * high + x * low is rounded once,
by the fused operation (Brisebarre, Muller: Correctly rounded multiplication by arbitrary precision constants, 2008).
It takes 1 cycle, while a vector division takes 4.

Integer arithmetic decides for each constant whether this always gives the rounded quotient. With p bits of precision,
the error of the sum before the last rounding is below 2**(3 - p) halves of the last place. Let C be the mantissa of c
as an odd integer. The quotient X / c of a mantissa X is an integer number of halves of its last place plus s / C. Here
s is an integer, and not 0 if that number is odd, which is the midpoint of two floats. So an error is possible only if
|s| / C <= 2**(3 - p). The program tries these few X; if one gives a wrong result, it divides by the constant as usual.

Quotients below 2**-100 (2**-960 in double precision) may differ in their last bit, because x * low is not normal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from mpijax.scalar.types import FLOAT32, FLOAT64

# Bits of precision, and the largest |exponent| of a constant, so that both parts of 1 / c are normal numbers.
_FORMATS = {FLOAT32: (24, 60), FLOAT64: (53, 800)}


@lru_cache(maxsize=4096)
def reciprocal_parts(c: float, dtype: np.dtype) -> tuple[float, float] | None:
    """(high, low) with x / c == fma(x, high, x * low) for every x of `dtype`; None if c has none. low is 0 for 2**k."""
    if dtype not in _FORMATS or not math.isfinite(c) or c == 0:
        return None
    precision, limit = _FORMATS[dtype]
    fraction, exponent = math.frexp(c)
    if abs(exponent) > limit:
        return None
    mantissa = abs(int(fraction * 2**precision))
    exponent -= precision
    zeros = (mantissa & -mantissa).bit_length() - 1
    mantissa, exponent = mantissa >> zeros, exponent + zeros
    if mantissa == 1:
        return 1 / c, 0.0
    # 1 / |c| is (high + low / 2**fine) / 2**coarse with integers high and low of `precision` significant bits.
    coarse, fine = precision - 1 + mantissa.bit_length(), 3 * precision
    high, rest = divmod(1 << coarse, mantissa)
    low = _rounded((rest << fine) // mantissa | 1, precision)  # the set bit marks a nonzero remainder
    for x in _close_to_midpoints(mantissa, precision):
        product = (x * high << fine) + _rounded(x * low, precision)
        quotient = (x << coarse + fine) // mantissa | 1
        if _rounded(product, precision) != _rounded(quotient, precision):
            return None
    sign = math.copysign(1.0, c)
    return sign * math.ldexp(high, -coarse - exponent), sign * math.ldexp(low, -coarse - fine - exponent)


def _rounded(x: int, precision: int) -> int:
    """x, rounded to `precision` significant bits, ties to even."""
    cut = x.bit_length() - precision
    if cut <= 0:
        return x
    kept, rest, half = x >> cut, x & ((1 << cut) - 1), 1 << (cut - 1)
    return (kept + (rest > half or (rest == half and kept & 1))) << cut


def _close_to_midpoints(c: int, precision: int) -> Iterator[int]:
    """The mantissas whose quotients by the odd number c are within 2**(3 - precision) of a midpoint."""
    reach = c >> (precision - 3)
    low, high = 1 << (precision - 1), 1 << precision
    size = c.bit_length()
    for shift in (size, size + 1):  # one of them gives a quotient of precision + 1 bits: halves of its last place
        inverse = pow(1 << shift, -1, c)
        for s in [*range(-reach, 0), *range(1, reach + 1)]:
            x = s * inverse % c
            first = x + -(-(low - x) // c) * c if x < low else x
            for mantissa in range(first, high, c):
                halves = ((mantissa << shift) - s) // c
                if halves % 2 == 1 and halves.bit_length() == precision + 1:
                    yield mantissa
