"""Rules of bessel_i0e, bessel_i1e, bessel_jv: Bessel functions of the first kind; modified ones times e^-|x|.

Up to 5 (10 in float64), I0(x) and I1(x)/x are polynomials in x^2 with positive terms. Beyond, e^-x I(x) sqrt(x) is a
polynomial in 1/x, like its asymptotic series (Abramowitz and Stegun, 9.6.10 and 9.7.1).
J of integer order uses the downward recurrence, scaled so that J0 + 2 J2 + 2 J4 + ... is 1 (J. C. P. Miller; DLMF
3.6.9), and Hankel's expansion (DLMF 10.17.3) far from 0.

Measured maximum errors (in ulp): I float32 2.9, float64 4.3. J in float32 is computed in float64 and rounded once;
float64: 1e-15 absolute, 1e-13 relative for x below the order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpijax.scalar.exponential import exp
from mpijax.scalar.expr import Real, elementary, in_double, is_single, polynomial, where
from mpijax.scalar.guard import rarely
from mpijax.scalar.iteration import iterate
from mpijax.scalar.trigonometric import cos, sin

NEAR_F32, NEAR_F64 = 5.0, 10.0
I0_NEAR_F32 = (1.0, 0.25, 0.015625007450580597, 0.00043402460869401693, 6.7823316385329235e-06, 6.774279626142743e-08,
               4.758978211505394e-10, 2.212155372077751e-12, 1.3243217828785847e-14)
I0_FAR_F32 = (0.3989422917366028, 0.04986236244440079, 0.028614236041903496, 0.00738654425367713, 0.4448564946651459,
              -3.6345627307891846, 17.038461685180664, -27.176414489746094)
I1_NEAR_F32 = (0.5, 0.0625, 0.002604166977107525, 5.4253316193353385e-05, 6.781999672966776e-07,
               5.647788015039623e-09, 3.388121727621041e-11, 1.4083245474753175e-13, 7.113408631425624e-16)
I1_FAR_F32 = (0.3989422619342804, -0.14959721267223358, -0.04738700017333031, -0.016409019008278847,
              -0.5038497447967529, 4.01845645904541, -18.77043914794922, 29.579275131225586)
I0_NEAR_F64 = (1.0, 0.25, 0.015625, 0.0004340277777777778, 6.78168402777777e-06, 6.78168402777791e-08,
               4.709502797066403e-10, 2.402807549536394e-12, 9.38596698963272e-15, 2.8969033951276073e-17,
               7.242258378209006e-20, 1.496334660238752e-22, 2.597797478737561e-25, 3.842986237187568e-28,
               4.900661801553118e-31, 5.455552388326672e-34, 5.2545231682674355e-37, 4.920896186678978e-40,
               2.4744234082604395e-43, 4.572173157518896e-46)
I0_FAR_F64 = (0.3989422804014327, 0.04986778505017159, 0.02805062910246244, 0.0292193980379646, 0.04474458365115731,
              0.09013261113968878, 0.29033542076578567, -5.030368435906223, 387.0323590857017, -19320.26055653403,
              739067.242555758, -21732037.71242868, 494243388.2267679, -8694112787.411514, 117649983772.0163,
              -1209996120371.0137, 9261711808532.572, -50969527140639.85, 190163234610240.7, -429958174544334.0,
              444309451338886.1)
I1_NEAR_F64 = (0.5, 0.0625, 0.0026041666666666665, 5.4253472222222226e-05, 6.781684027777776e-07,
               5.651403356481512e-09, 3.363930569333867e-11, 1.5017547184555502e-13, 5.214426105576929e-16,
               1.4484516967469935e-18, 3.2919356491260955e-21, 6.234727265263592e-24, 9.991536821989939e-27,
               1.3724847709630247e-29, 1.6336547793755124e-32, 1.704121167077929e-35, 1.549374123432806e-38,
               1.3526387609893249e-41, 6.829380889464665e-45, 1.1104104975591475e-47)
I1_FAR_F64 = (0.3989422804014327, -0.1496033551505289, -0.046751048497540526, -0.04090715942699438,
              -0.057528297894178064, -0.11022465018148302, -0.337073531766161, 5.378970975337723, -416.2753291332411,
              20695.68361104751, -788967.6801018387, 23124336.03408998, -524312966.17921716, 9196711270.942377,
              -124115264345.76305, 1273222404802.304, -9721940095604.615, 53378052132106.15, -198707545367860.2,
              448324683667066.94, -462351474180787.0)


def _scaled_bessel(x: Real, near: Sequence[float], far: Sequence[float], factor: Real | float) -> Real:
    a = abs(x)
    limit = NEAR_F32 if is_single(x) else NEAR_F64
    inside = a < limit
    bounded = where(inside, a, limit)
    beyond = where(inside, limit, a)
    small = factor * polynomial(bounded * bounded, near) * exp(-bounded)
    # Not the root of 1 / x, which may be denormal and then flushed to zero.
    return where(inside, small, polynomial(1.0 / beyond, far) / beyond.sqrt())


@elementary
def bessel_i0e(x: Real) -> Real:
    """e^-|x| I0(x)."""
    near, far = (I0_NEAR_F32, I0_FAR_F32) if is_single(x) else (I0_NEAR_F64, I0_FAR_F64)
    return _scaled_bessel(x, near, far, 1.0)


@elementary
def bessel_i1e(x: Real) -> Real:
    """e^-|x| I1(x), with the sign of x."""
    near, far = (I1_NEAR_F32, I1_FAR_F32) if is_single(x) else (I1_NEAR_F64, I1_FAR_F64)
    return _scaled_bessel(x, near, far, abs(x)).with_sign_of(x)


# ---------------------------------------------------------------- Bessel functions of whole orders

HANKEL_FROM, HANKEL_TERMS = 25.0, 10  # used where x also exceeds half the square of the order
MOST_TURNS, BEYOND = 100_000, {True: 5.0, False: 9.0}  # start BEYOND * sqrt(larger) above the larger of n and x
TINY, LARGE = 1e-140, 1e150  # smallest argument of the recurrence; threshold for scaling values down


def _by_recurrence(n: Real, x: Real, single: bool) -> Real:
    """J_n for n >= 0 and x > 0, from an even order far above both down to 0."""
    larger = where(x > n, x, n)
    start = 2.0 * (0.5 * ((larger + 2.0).sqrt().fma(BEYOND[single], larger) + 6.0)).floor()

    def step(value: Real, above: Real, wanted: Real, total: Real, k: Real,
             n: Real, twice: Real) -> tuple[list[Real], Real]:  # fmt: skip
        # value is J_k; all values are scaled down together when it grows too large.
        scale = where(abs(value) > LARGE, value.const(1.0 / LARGE), 1.0)
        value, above, wanted, total = value * scale, above * scale, wanted * scale, total * scale
        wanted = where(k.eq(n), value, wanted)
        half = k * 0.5
        total = total + where(half.floor().eq(half), value, 0.0)
        return [k.fma(twice * value, -above), value, wanted, total, k - 1.0], k > 0.5

    zero, one = x.const(0.0), x.const(1.0)
    state = [one, zero, zero, zero, start]
    _, zeroth, wanted, total, _ = iterate(f"bessel.miller.{single}", step, MOST_TURNS, x > 0.0, state, n, 2.0 / x)
    return wanted / (2.0 * total - zeroth)


def _by_hankel(n: Real, x: Real) -> Real:
    """sqrt(2 / (pi x)) (P cos chi - Q sin chi), chi = x - (n / 2 + 1 / 4) pi."""
    square, inverse = 4.0 * n * n, 0.125 / x
    p, q, term = n.const(1.0), n.const(0.0), n.const(1.0)
    for k in range(1, 2 * HANKEL_TERMS):
        term = term * ((square - float((2 * k - 1) ** 2)) * inverse * (1.0 / k))
        if k % 2:
            q = q + term if k % 4 == 1 else q - term
        else:
            p = p + term if k % 4 == 0 else p - term
    s, c = sin(x), cos(x)
    # cos and sin of x - pi / 4, times sqrt(2), then rotated back by n quarter turns
    plus, minus = c + s, s - c
    quarter = n - 4.0 * (n * 0.25).floor()
    odd, beyond = quarter.eq(1.0) | quarter.eq(3.0), quarter >= 2.0
    cosine, sine = where(odd, minus, plus), where(odd, -plus, minus)
    value = (p * cosine - q * sine) * np.pi**-0.5 / x.sqrt()  # pi x may overflow
    return where(beyond, -value, value)


def _bessel_j(n: Real, x: Real, single: bool) -> Real:
    """J_n for integer orders of either sign."""
    order, a = abs(n), abs(x)
    far = (a > HANKEL_FROM) & (2.0 * a > order * order)
    near = (a > TINY) & (a < np.inf) & ~far
    value = where(order.eq(0.0), 1.0, where(order.eq(1.0), 0.5 * a, 0.0))
    value = rarely(f"bessel.recurrence.{single}", near, value, lambda n, x: _by_recurrence(n, x, single),
                   where(near, order, 0.0), where(near, a, 0.0))
    value = rarely("bessel.hankel", far & (a < np.inf), value, _by_hankel, order, a)
    half = n * 0.5
    flips = half.floor().ne(half) & ((n < 0.0) ^ (x < 0.0))
    return where((a < np.inf) & n.eq(n), where(flips, -value, value), np.nan)


@elementary
def bessel_jv(n: Real, x: Real) -> Real:
    """J of integer order n."""
    single = is_single(x)
    return in_double(lambda n, x: _bessel_j(n, x, single), n, x)
