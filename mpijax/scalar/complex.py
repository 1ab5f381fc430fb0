"""Complex arithmetic on pairs of reals: the four operations, abs, sign, order.

The transcendental functions of a complex argument are in mpijax.scalar.complex_functions.
"""

from __future__ import annotations

import numpy as np

from mpijax.scalar.builder import Builder
from mpijax.scalar.types import Scalar, imag_part, info

Parts = tuple[Scalar, Scalar]


def real_part(x: Scalar) -> Scalar:
    """The real part as a real Scalar (x itself if real)."""
    return x if x.imag is None else Scalar(info(x.dtype).part, x.ir)


def pair(re: Scalar, im: Scalar) -> Scalar:
    """The complex value re + i im of two float32 or two float64."""
    return Scalar(np.result_type(re.dtype, np.complex64), re.ir, im)


def add(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    return pair(b.add(real_part(x), real_part(y)), b.add(imag_part(x), imag_part(y)))


def sub(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    return pair(b.sub(real_part(x), real_part(y)), b.sub(imag_part(x), imag_part(y)))


def mul(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """The four-product formula, without C's recovery of infinities (as in XLA and NumPy)."""
    a, c, p, q = real_part(x), imag_part(x), real_part(y), imag_part(y)
    return pair(b.sub(b.mul(a, p), b.mul(c, q)), b.add(b.mul(a, q), b.mul(c, p)))


def square(b: Builder, x: Scalar) -> Scalar:
    """z * z. The real part (|re| - |im|) (|re| + |im|) is exact for close parts, and 0, not -0, for equal parts.

    It is 0 for equal parts also if their sum overflows.
    """
    a, c = real_part(x), imag_part(x)
    product, p, q = b.mul(a, c), b.abs(a), b.abs(c)
    d = b.sub(p, q)
    real = b.select(b.compare("eq", d, b.const(0.0, d.dtype)), d, b.mul(d, b.add(p, q)))
    return pair(real, b.add(product, product))


def scale(b: Builder, x: Scalar, factor: Scalar) -> Scalar:
    """x times a real."""
    return pair(b.mul(real_part(x), factor), b.mul(imag_part(x), factor))


def div(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """Smith's method: divide by the larger part of y first, so that no square overflows.

    y = 0 gives infinities with the signs of the parts of x (NaN for 0/0), as in real division. Infinite / finite is
    infinite, and finite / infinite is 0, whatever the other parts are.
    """
    a, c, p, q = real_part(x), imag_part(x), real_part(y), imag_part(y)
    if p.constant == 1 and q.constant == 0:
        return x  # infinities and NaN are unchanged, as in XLA
    swap = b.compare("lt", b.abs(p), b.abs(q))
    large, small = b.select(swap, q, p), b.select(swap, p, q)
    zero = b.const(0, p.dtype)
    ratio = b.div(small, large)
    # The ratio of equal infinities is 1, not NaN; the ratio 0/0 is 0, so that the zero divisor below decides.
    both = b.compare("eq", b.abs(small), b.abs(large))
    infinite = b.compare("eq", b.abs(large), b.const(np.inf, p.dtype))
    unit = b.mul(b.copysign(b.const(1, p.dtype), small), b.copysign(b.const(1, p.dtype), large))
    ratio = b.select(b.and_(both, infinite), unit, ratio)
    nothing = b.and_(b.compare("eq", large, zero), b.compare("eq", small, zero))
    ratio = b.select(nothing, zero, ratio)
    denominator = b.select(nothing, large, b.add(large, b.mul(small, ratio)))

    def share(v: Scalar) -> Scalar:
        # For y = 0, an infinite part must not be multiplied by the ratio 0.
        return b.select(nothing, zero, b.mul(v, ratio))

    first, second = b.select(swap, c, a), b.select(swap, a, c)
    re = b.div(b.add(first, share(second)), denominator)
    im_plain = b.sub(c, share(a))
    im_swapped = b.sub(share(c), a)
    im = b.div(b.select(swap, im_swapped, im_plain), denominator)
    return _recovered(b, (re, im), (a, c), (p, q))


def _recovered(b: Builder, quotient: Parts, x: Parts, y: Parts) -> Scalar:
    """x / y where both parts of the quotient are NaN: infinities and zeros as in C99, Annex G.5.1."""
    (re, im), (a, c), (p, q) = quotient, x, y
    zero, one, inf = (b.const(v, p.dtype) for v in (0, 1, np.inf))

    def infinite(v: Scalar) -> Scalar:
        return b.compare("eq", b.abs(v), inf)

    def finite(v: Scalar) -> Scalar:
        return b.compare("lt", b.abs(v), inf)

    def unit(v: Scalar) -> Scalar:
        """1 for an infinity and 0 for other numbers, with their sign."""
        return b.copysign(b.select(infinite(v), one, zero), v)

    lost = b.and_(b.compare("ne", re, re), b.compare("ne", im, im))
    large = b.and_(b.or_(infinite(a), infinite(c)), b.and_(finite(p), finite(q)))
    small = b.and_(b.or_(infinite(p), infinite(q)), b.and_(finite(a), finite(c)))
    a, c = b.select(large, unit(a), a), b.select(large, unit(c), c)
    p, q = b.select(small, unit(p), p), b.select(small, unit(q), q)
    factor = b.select(large, inf, zero)
    lost = b.and_(lost, b.or_(large, small))
    re = b.select(lost, b.mul(factor, b.add(b.mul(a, p), b.mul(c, q))), re)
    im = b.select(lost, b.mul(factor, b.sub(b.mul(c, p), b.mul(a, q))), im)
    return pair(re, im)


def abs_(b: Builder, x: Scalar) -> Scalar:
    """sqrt(re^2 + im^2) without overflow; infinite if either part is, else NaN if either is; <= 2 ulp."""
    p, q = b.abs(real_part(x)), b.abs(imag_part(x))
    swap = b.compare("lt", p, q)
    large, small = b.select(swap, q, p), b.select(swap, p, q)
    ratio = b.div(small, large)
    one, zero, inf = (b.const(v, p.dtype) for v in (1, 0, np.inf))
    result = b.mul(large, b.sqrt(b.fma(ratio, ratio, one)))
    result = b.select(b.compare("eq", large, zero), b.add(large, small), result)
    infinite = b.or_(b.compare("eq", p, inf), b.compare("eq", q, inf))
    return b.select(infinite, inf, result)


def sign(b: Builder, x: Scalar) -> Scalar:
    """x / |x|; 0 at 0."""
    size = abs_(b, x)
    zero = b.const(0, size.dtype)
    nothing = b.compare("eq", size, zero)
    return pair(b.select(nothing, zero, b.div(real_part(x), size)),
                b.select(nothing, zero, b.div(imag_part(x), size)))


def ordered(b: Builder, name: str, x: Scalar, y: Scalar) -> Scalar:
    """lt le gt ge by real part, then by imaginary part."""
    p, q = real_part(x), real_part(y)
    strict = {"le": "lt", "ge": "gt"}.get(name, name)
    return b.select(b.compare("eq", p, q), b.compare(name, imag_part(x), imag_part(y)), b.compare(strict, p, q))
