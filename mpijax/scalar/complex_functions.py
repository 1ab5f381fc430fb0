"""Transcendental functions of complex arguments, computed from real functions.

The inverse functions follow Kahan ("Branch cuts for complex elementary functions", 1987): square roots of
1 + z and 1 - z, whose signed zeros put the result on the right side of the cuts. Infinities, NaN and zeros
follow C99's Annex G, as does the Python Array API standard.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mpijax.scalar import complex as cx
from mpijax.scalar import exponential, hyperbolic, inverse_trigonometric, logarithm, trigonometric
from mpijax.scalar.builder import Builder
from mpijax.scalar.expr import Real, is_single, where
from mpijax.scalar.registry import COMPLEX_RULES
from mpijax.scalar.types import Scalar, imag_part

Pair = tuple[Real, Real]


def _parts(b: Builder, z: Scalar) -> Pair:
    return Real(b, cx.real_part(z)), Real(b, imag_part(z))


def _join(z: Pair) -> Scalar:
    return cx.pair(z[0].s, z[1].s)


def on_pairs(function: Callable[..., Pair]) -> Callable[..., Pair]:
    """Register a function of (real, imaginary) pairs under its name."""

    def rule(b: Builder, *zs: Scalar) -> Scalar:
        return _join(function(*(_parts(b, z) for z in zs)))

    COMPLEX_RULES[function.__name__.rstrip("_")] = rule
    return function


def _divide(z: Pair, w: Pair) -> Pair:
    b = z[0].b
    return _parts(b, cx.div(b, _join(z), _join(w)))


def _times(z: Pair, w: Pair) -> Pair:
    return z[0] * w[0] - z[1] * w[1], z[0] * w[1] + z[1] * w[0]


def _size(z: Pair) -> Real:
    return Real(z[0].b, cx.abs_(z[0].b, _join(z)))


def _finite(x: Real) -> Real:
    return abs(x) < np.inf


def _infinite(x: Real) -> Real:
    return abs(x).eq(np.inf)


def _without_angle(z: Pair) -> tuple[Pair, Real]:
    """z with y = 0 if e^x is 0 and y is infinite or NaN (then e^z is 0); and whether e^x is infinite with such a y."""
    x, y = z
    no_angle = ~_finite(y)
    return (x, where(x.eq(-np.inf) & no_angle, 0.0, y)), x.eq(np.inf) & no_angle


@on_pairs
def exp(z: Pair) -> Pair:
    """e^x (cos y + i sin y); y = 0 is unchanged if e^x is infinite."""
    z, overflows = _without_angle(z)
    real, imag = _plain_exp(z)
    return where(overflows, np.inf, real), imag


def _plain_exp(z: Pair) -> Pair:
    x, y = z
    # Where e^x overflows, the product with cos y can be finite. So multiply by e^shift at the end.
    large, shift = (88.0, 32.0) if is_single(x) else (709.0, 64.0)
    far = x > large
    size = exponential.exp(where(far, x - shift, x))
    back = where(far, x.const(math.exp(shift)), 1.0)
    return size * trigonometric.cos(y) * back, where(y.eq(0.0), y, size * trigonometric.sin(y) * back)


@on_pairs
def exp2(z: Pair) -> Pair:
    return exp((z[0] * exponential.LN2, z[1] * exponential.LN2))


@on_pairs
def expm1(z: Pair) -> Pair:
    """e^z - 1, with real part (e^x - 1) cos y - 2 sin^2(y/2); that is +0 at z = 0 for all signs of the zeros."""
    (x, y), overflows = _without_angle(z)
    half = trigonometric.sin(y * 0.5)
    real = exponential.expm1(x) * trigonometric.cos(y) + (0.0 - 2.0 * half * half)
    return where(overflows, np.inf, real), where(y.eq(0.0), y, exponential.exp(x) * trigonometric.sin(y))


@on_pairs
def log(z: Pair) -> Pair:
    """log |z| + i arg z; near the unit circle by log1p(|z|^2 - 1) / 2."""
    x, y = abs(z[0]), abs(z[1])
    large, small = x.at_least(y), x.at_most(y)
    near = 0.5 * logarithm.log1p((large - 1.0).fma(large + 1.0, small * small))
    close = (large > 0.5) & (large < 2.0)
    # For z near the largest float, |z| overflows. So take the log of |z / 4|, and add log 4.
    huge = large > (2.0**126 if is_single(x) else 2.0**1022)
    part = where(huge, x.const(1 / 4), 1.0)
    far = logarithm.log(_size((x * part, y * part))) + where(huge, x.const(2 * math.log(2)), 0.0)
    return where(close, near, far), inverse_trigonometric.atan2(z[1], z[0])


@on_pairs
def log2(z: Pair) -> Pair:
    x, y = log(z)
    return x * logarithm.LOG2E, y * logarithm.LOG2E


@on_pairs
def log1p(z: Pair) -> Pair:
    """log(1 + z); near 0 by log1p(x (2 + x) + y^2) / 2."""
    x, y = z
    far, angle = log((1.0 + x, y))
    near = 0.5 * logarithm.log1p(x.fma(2.0 + x, y * y))
    return where(abs(x).at_least(abs(y)) < 0.5, near, far), angle


@on_pairs
def sqrt(z: Pair) -> Pair:
    """The square root with nonnegative real part; its imaginary part has the sign of y."""
    x, y = z
    # Scale by powers of 4 so that neither squares nor the sum of sizes overflow or underflow.
    large = abs(x).at_least(abs(y))
    high, low, power = (2.0**100, 2.0**-100, 2.0**60) if is_single(x) else (2.0**1000, 2.0**-900, 2.0**200)
    factor = where(large > high, x.const(1 / 16), where(large < low, x.const(power), 1.0))
    back = where(large > high, x.const(4.0), where(large < low, x.const(power**-0.5), 1.0))
    x, y = x * factor, y * factor
    root = ((abs(x) + _size((x, y))) * 0.5).sqrt()
    other = where(root.eq(0.0), abs(y), abs(y) / (root + root))
    other = where(root.eq(np.inf) & abs(y).eq(np.inf), root, other)
    left = x < 0.0
    real, imag = where(left, other, root) * back, where(left, root, other) * back
    upright = _infinite(y)
    return where(upright, np.inf, real), where(upright, np.inf, imag).with_sign_of(y)


@on_pairs
def atan2(y: Pair, x: Pair) -> Pair:
    """-i log((x + i y) / sqrt(x^2 + y^2)), which for real numbers is the angle of (x, y)."""
    square = x[0] * x[0] - x[1] * x[1] + y[0] * y[0] - y[1] * y[1], 2.0 * (x[0] * x[1] + y[0] * y[1])
    size, angle = log(_divide((x[0] - y[1], x[1] + y[0]), sqrt(square)))
    return angle, -size


@on_pairs
def rsqrt(z: Pair) -> Pair:
    """1 / sqrt(z); the sign of its imaginary part is opposite to that of y."""
    one = z[0].const(1.0), z[0].const(0.0)
    real, imag = _divide(one, sqrt(z))
    return real, abs(imag).with_sign_of(-z[1])


@on_pairs
def cbrt(z: Pair) -> Pair:
    x, y = log(z)
    return exp((x * (1 / 3), y * (1 / 3)))


@on_pairs
def sin(z: Pair) -> Pair:
    """sin x cosh y + i cos x sinh y; if x is infinite or NaN, y = 0 or infinity is unchanged."""
    x, y = z
    stays = (y.eq(0.0) | _infinite(y)) & ~_finite(x)
    return (where(x.eq(0.0), x, trigonometric.sin(x) * hyperbolic.cosh(y)),
            where(stays, y, trigonometric.cos(x) * hyperbolic.sinh(y)))


@on_pairs
def cos(z: Pair) -> Pair:
    """cos x cosh y - i sin x sinh y; zero times infinity or NaN is zero."""
    x, y = z
    no_angle = ~_finite(x)
    product = trigonometric.sin(x) * hyperbolic.sinh(y)
    product = where(x.eq(0.0), x * y.const(1.0).with_sign_of(y), product)
    return (where(_infinite(y) & no_angle, np.inf, trigonometric.cos(x) * hyperbolic.cosh(y)),
            -where(y.eq(0.0) & no_angle, y, product))


@on_pairs
def tan(z: Pair) -> Pair:
    """(t (1 - h^2) + i h (1 + t^2)) / (1 + t^2 h^2), t = tan x, h = tanh y."""
    x, y = z
    t, h = trigonometric.tan(x), hyperbolic.tanh(y)
    sech = 1.0 / hyperbolic.cosh(y)
    below = (t * h).fma(t * h, 1.0)
    no_angle = ~_finite(x)
    real = where(x.eq(0.0) | (_infinite(y) & no_angle), x.const(0.0).with_sign_of(x), t * sech * sech / below)
    return real, where((y.eq(0.0) | _infinite(y)) & no_angle, h, h * t.fma(t, 1.0) / below)


def _turned(function: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """f(iz)/i: sinh from sin, tanh from tan and so on."""

    def turned(z: Pair) -> Pair:
        x, y = function((-z[1], z[0]))
        return y, -x

    return turned


def _register(name: str, function: Callable[[Pair], Pair]) -> None:
    function.__name__ = name
    on_pairs(function)


_register("sinh", _turned(sin))
_register("tanh", _turned(tan))


@on_pairs
def cosh(z: Pair) -> Pair:
    return cos((-z[1], z[0]))


@on_pairs
def logistic(z: Pair) -> Pair:
    """1 / (1 + e^-z)."""
    x, y = exp((-z[0], -z[1]))
    return _divide((x.const(1.0), x.const(0.0)), (1.0 + x, y))


def _is_far(z: Pair) -> tuple[Real, Real]:
    """Whether a part is infinite; whether z is so large that 1 + z equals z."""
    infinite = _infinite(z[0]) | _infinite(z[1])
    return infinite, infinite | (abs(z[0]).at_least(abs(z[1])) > (1e18 if is_single(z[0]) else 1e150))


def _asinh_of_product(z: Pair, w: Pair, part: int, far: Real) -> Real:
    """asinh of the real or imaginary part of z w; asinh(p / 16) + log 16 if the product may overflow."""
    scale = where(far, z[0].const(1 / 16), 1.0)
    found = hyperbolic.asinh(_times((z[0] * scale, z[1] * scale), w)[part])
    return where(far, found + found.const(4 * math.log(2)).with_sign_of(found), found)


@on_pairs
def asin(z: Pair) -> Pair:
    x, y = z
    minus, plus = sqrt((1.0 - x, -y)), sqrt((1.0 + x, y))
    infinite, far = _is_far(z)
    real = inverse_trigonometric.atan2(x, where(far, abs(y), _times(minus, plus)[0]))
    size = _asinh_of_product((minus[0], -minus[1]), plus, 1, far)
    return where(x.eq(0.0), x, real), where(infinite, y.const(np.inf).with_sign_of(y), size)


@on_pairs
def acos(z: Pair) -> Pair:
    x, y = z
    minus, plus = sqrt((1.0 - x, -y)), sqrt((1.0 + x, y))
    infinite, far = _is_far(z)
    half = inverse_trigonometric.atan2(where(far, abs(y), minus[0]), where(far, x, plus[0]))
    size = _asinh_of_product((plus[0], -plus[1]), minus, 1, far)
    real = where(x.eq(0.0) & y.is_nan(), np.pi / 2, where(far, half, 2.0 * half))
    return real, where(infinite, -y.const(np.inf).with_sign_of(y), size)


@on_pairs
def acosh(z: Pair) -> Pair:
    x, y = z
    minus, plus = sqrt((x - 1.0, y)), sqrt((x + 1.0, y))
    infinite, far = _is_far(z)
    real = _asinh_of_product((minus[0], -minus[1]), plus, 0, far)
    half = inverse_trigonometric.atan2(where(far, y, minus[1]), where(far, x, plus[0]))
    angle = where(x.eq(0.0) & y.is_nan(), np.pi / 2, where(far, half, 2.0 * half))
    return where(infinite, np.inf, real), angle


@on_pairs
def atanh(z: Pair) -> Pair:
    """log1p(4 |x| / ((1 - |x|)^2 + y^2)) / 4 with the sign of x, and half the angle of the same quotient.

    Far from 0 these are |x| / (x^2 + y^2) and a right angle, computed without squares.
    """
    x, y = z
    a, b = abs(x), abs(y)
    rest = 1.0 - a
    large = a.at_least(b)
    far = _infinite(x) | _infinite(y) | (large > (1e18 if is_single(x) else 1e150))
    ratio = a.at_most(b) / large
    distant = where(_infinite(large) | large.is_nan(), 0.0, (a / large) / ratio.fma(ratio, 1.0) / large)
    real = 0.25 * logarithm.log1p(4.0 * a / rest.fma(rest, y * y))
    angle = 0.5 * inverse_trigonometric.atan2(2.0 * y, rest * (1.0 + a) - y * y)
    quarter = where(y.is_nan(), y, y.const(np.pi / 2).with_sign_of(y))
    return where(x.eq(0.0), 0.0, where(far, distant, real)).with_sign_of(x), where(far, quarter, angle)


_register("asinh", _turned(asin))
_register("atan", _turned(atanh))


def power(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """x ** y as e^(y log x); x * x for 2; x ** 0 is 1; 0 ** y is 0 if y has a positive real part."""
    dtype = x.dtype if x.imag is not None else y.dtype
    x, y = (s if s.imag is not None else b.convert(s, dtype) for s in (x, y))
    base, exponent = _parts(b, x), _parts(b, y)
    size, angle = log(base)
    # The imaginary zero of a real exponent must not be multiplied by an infinite logarithm: only its sign matters.
    turned = _times(exponent, (size, angle))
    real_exponent = exponent[1].eq(0.0)
    turned = (
        where(real_exponent, exponent[0] * size, turned[0]),
        where(real_exponent, exponent[0] * angle + exponent[1] * size.const(1.0).with_sign_of(size), turned[1]),
    )
    result = _plain_exp(turned)
    nothing = base[0].eq(0.0) & base[1].eq(0.0)
    none = exponent[0].eq(0.0) & exponent[1].eq(0.0)
    vanishes = nothing & (exponent[0] > 0.0)
    two = real_exponent & exponent[0].eq(2.0)
    square = _times(base, base)
    result = where(two, square[0], result[0]), where(two, square[1], result[1])
    real = where(none, 1.0, where(vanishes, 0.0, result[0]))
    return _join((real, where(none | vanishes, 0.0, result[1])))


COMPLEX_RULES["pow"] = power
