"""Rules of log, log2, log1p.

x = 2^e m with m between sqrt(1/2) and sqrt(2). float32: log(1+f) = f - f^2/2 + f^3 P(f) with f = m - 1.
float64: log(m) = 2 s + s^3 R(s^2) with s = f / (2 + f), arranged so that f stays exact. The exponent's
part e ln 2 is added in two pieces.

Measured maximum errors (in ulp): float32 log 0.9, log2 1.8, log1p 1.5; float64 log 0.9, log2 1.7, log1p 1.3.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpijax.scalar.expr import Real, elementary, is_single, polynomial, where
from mpijax.scalar.guard import rarely

# ln 2 with trailing zeros in the first part, so that its product with an exponent is exact.
LN2_F32 = (0.693359375, -2.12194440e-4)
LN2_F64 = (0.6931471803691238, 1.9082149292705877e-10)
LOG2E = 1.4426950408889634
SQRT_HALF = 0.7071067811865476

LOG_F32 = (0.3333333134651184, -0.250008225440979, 0.20001260936260223, -0.16623328626155853,
           0.14200915396213531, -0.13159574568271637, 0.1276763379573822, -0.07644107192754745)
LOG_F64 = (0.6666666666666734, 0.39999999999416547, 0.2857142874207753, 0.22222198596837917,
           0.18183563444957698, 0.15314065421837852, 0.1479586919977857)


def split(x: Real) -> tuple[Real, Real]:
    """(e as a signed integer shifted to the exponent field, m) of a positive normal x."""
    mantissa = 23 if is_single(x) else 52
    integer = np.float32(SQRT_HALF).view(np.int32) if is_single(x) else np.float64(SQRT_HALF).view(np.int64)
    bits = x.bits()
    field = (bits - int(integer)) & (-1 << mantissa)
    return field, (bits - field).as_float()


def exponent_value(field: Real, like: Real) -> Real:
    """e as a float from the shifted integer of `split`."""
    if is_single(like):
        return (field >> 23).cast("sitofp", like.dtype)
    # There is no vector conversion from 64-bit integers: put e + 2048 into the mantissa of 2^52 and subtract.
    high = field.b.lshr((field ^ (-1 << 63)).s, field.const(52).s)
    return (Real(field.b, high) | 0x4330000000000000).as_float() - (2.0**52 + 2048.0)


def log_of_mantissa(f: Real) -> Real:
    """log(1 + f) - f for 1 + f between sqrt(1/2) and sqrt(2)."""
    if is_single(f):
        square = f * f
        return square * f.fma(polynomial(f, LOG_F32), -0.5)
    half_square = f * f * 0.5
    s = f / (2.0 + f)
    z = s * s
    # log(1+f) = f - (f^2/2 - s (f^2/2 + z R(z)))
    return s * (half_square + z * polynomial(z, LOG_F64)) - half_square


def _scaled(x: Real) -> tuple[Real, Real]:
    """(x with denormals scaled to normal numbers, the correction to the exponent)."""
    least, power = (2.0**-126, 25) if is_single(x) else (2.0**-1022, 54)
    tiny = x < least
    return where(tiny, x * 2.0**power, x), where(tiny, x.const(-power), 0.0)


def _at_the_edges(x: Real, y: Real, zero_at: float) -> Real:
    """y with the limits of a logarithm: -inf at `zero_at`, NaN below, x itself for inf and NaN."""
    y = where(x < np.inf, y, x)
    return where(x <= zero_at, where(x.eq(zero_at), x.const(-np.inf), np.nan), y)


def _log_parts(x: Real) -> tuple[Real, Real]:
    """(e, f) with x = 2^e (1 + f)."""
    scaled, correction = _scaled(x)
    field, m = split(scaled)
    return exponent_value(field, x) + correction, m - 1.0


def _of_normal_numbers(name: str, x: Real, combine: Callable[[Real, Real], Real]) -> Real:
    """combine(e, f) of x's parts; zeros, denormals, negative numbers, infinity and NaN take the rare path."""
    field, m = split(x)
    usual = combine(exponent_value(field, x), m - 1.0)
    if is_single(x):
        # Positive normal numbers have bits 0x00800000 to 0x7f7fffff; the sum maps these to the lowest integers.
        rare = (x.bits() + 0x7F800000) >= 0xFF000000 - (1 << 32)
    else:
        rare = ~((x >= 2.0**-1022) & (x < np.inf))
    return rarely(name, rare, usual, lambda v: _at_the_edges(v, combine(*_log_parts(v)), 0.0), x)


@elementary
def log(x: Real) -> Real:
    """Natural logarithm; -inf at 0, NaN below."""
    hi, lo = LN2_F32 if is_single(x) else LN2_F64
    return _of_normal_numbers("log", x, lambda e, f: e.fma(hi, e.fma(lo, log_of_mantissa(f)) + f))


@elementary
def log2(x: Real) -> Real:
    """Logarithm to base 2; exact for powers of two."""
    return _of_normal_numbers("log2", x, lambda e, f: (log_of_mantissa(f) + f).fma(LOG2E, e))


@elementary
def log1p(x: Real) -> Real:
    """log(1 + x) without cancellation near 0; -inf at -1, NaN below."""
    u = 1.0 + x
    # The exact rounding error of 1 + x: subtract the larger of the two first.
    lost = where(x > 1.0, 1.0 - (u - x), x - (u - 1.0))
    return _at_the_edges(x, log_of_sum(u, lost), -1.0).with_sign_of(x)


def log_of_sum(u: Real, lost: Real) -> Real:
    """log(u + lost) for a positive normal u and its rounding error `lost`."""
    field, m = split(u)
    unit = where(u < 2.0**60, (u.const(1.0).bits() - field).as_float(), 0.0)  # 2^-e
    f = lost.fma(unit, m - 1.0)
    e = exponent_value(field, u)
    hi, lo = LN2_F32 if is_single(u) else LN2_F64
    return e.fma(hi, e.fma(lo, log_of_mantissa(f)) + f)
