"""Rules of erf, erfc, erf_inv.

Near 0 erf is x P(x^2); beyond, 1 - erfc. erfc(x) = e^(-x^2) g(t) / (1 + 2 x) with t = (x - K) / (x + K). g is so smooth
that one polynomial is accurate from 1/2 to where erfc underflows. The computation includes the rounding error of x^2.
In float32, erf needs few digits of erfc: the fourth power of a polynomial. erf_inv is x P(w), w = -log(1 - x^2), with
other polynomials, in sqrt(w), for large w.

Measured maximum errors (in ulp): float32 erf 1.5, erfc 4.5, erf_inv 3.1; float64 erf 1.3, erfc 3.3,
erf_inv 2.7.
"""

from __future__ import annotations

import numpy as np

from mpijax.scalar.exponential import exp_parts, scaled
from mpijax.scalar.expr import Real, elementary, horner, is_single, polynomial, where
from mpijax.scalar.logarithm import log

# erf(x)/x - 1 in x^2, for |x| <= 1.1 (1 in float64)
ERF_F32 = (0.12837916612625122, -0.37612611055374146, 0.11283364146947861, -0.026843518018722534,
           0.005167731083929539, -0.0007824739441275597, 7.236068631755188e-05)
ERF_F64 = (0.1283791670955126, -0.376126389031841, 0.11283791670971104, -0.026866170648033257,
           0.005223977652723364, -0.0008548328538137492, 0.00012055386298572697, -1.4926884449288368e-05,
           1.6481113771697177e-06, -1.6557782692853772e-07, 1.6018078375304698e-08, -1.648517663086581e-09,
           1.43808475500309e-10)
# erfc(x)^(1/4) for 1.1 <= x <= ERF_ONE, where erf rounds to 1 in float32; accurate in the absolute error of erfc
ERF_ONE = 4.0
ROOT_ERFC_F32 = (1.0051876306533813, -0.30754977464675903, -0.06549227237701416, -0.04859764873981476,
                 0.06511437892913818, -0.02189643308520317, 0.003179963445290923, -0.0001756046840455383)
# erfc(x) e^(x^2) (1 + 2 x) in t
ERFC_CENTER_F32, ERFC_CENTER_F64 = 2.0, 3.0
ERFC_F32 = (1.2769783735275269, -0.09276381880044937, -0.16603034734725952, 0.16405074298381805,
            -0.05422111600637436, -0.008026116527616978, 0.008731379173696041, 0.0012231870787218213,
            -0.0014836181653663516, -0.0003207605623174459, 0.00023251655511558056)
ERFC_F64 = (1.2530080582697296, -0.1356211061245812, -0.04756229435345072, 0.12964515870276366,
            -0.11927366341531018, 0.0683080273438787, -0.023770514918569473, 0.002529391817543649,
            0.0018886903566650553, -0.0007798322837650154, -0.00010515976024402068, 0.00012509940278949673,
            4.949159980423546e-06, -2.0100666049953625e-05, -7.29970583648283e-07, 3.4723252092206026e-06,
            3.524015097304617e-07, -6.15700173078432e-07, -1.3377178157661108e-07, 9.967440115383433e-08,
            3.368317680668165e-08, -1.0986519053311574e-08, -4.0985793907506524e-09)
# erf_inv(x)/x in w - 2.5 (3.125) for small w, in sqrt(w) - 3.25 (and - 5) for larger
ERF_INV_F32_LOW = (1.5014094114303589, 0.24664020538330078, -0.0041778068989515305, -0.0012525689089670777,
                   0.00021888424817007035, -5.0633570936042815e-06, -3.7050290302431677e-06,
                   4.875893750977411e-07, 6.758627080216684e-08, -1.0320050591872132e-08,
                   -2.8394286921695766e-09)
ERF_INV_F32_HIGH = (3.083885669708252, 1.0052590370178223, 0.00537115428596735, -0.0037520751357078552,
                    0.0024885444436222315, -0.0016827532090246677, 0.0009658263297751546,
                    -0.0003698070358950645, 5.727901566388027e-07, 8.729146065888926e-05,
                    -2.921971827163361e-05)
ERF_INV_F64_LOW = (1.6536545626831027, 0.24015818242558826, -0.006033670871427754, -0.0007407025341539551,
                   0.00018673420802425744, -1.3882523395790352e-05, -1.3654691844366003e-06,
                   4.234788190759231e-07, -2.907038277351403e-08, -4.11266197660583e-09,
                   1.0512183978308718e-09, -5.414239046312834e-11, -1.2976958133208848e-11,
                   2.6303547066106084e-12, -8.117011047671919e-14, -3.9989802071841543e-14,
                   6.5947022234366615e-15, -4.286293457217375e-17, -1.3003919213755077e-16,
                   1.5759590859444024e-17, 1.1444147971622726e-18, -3.57542458268877e-19,
                   -1.009105604891697e-21, 3.3756240889353207e-21)
ERF_INV_F64_MIDDLE = (3.0838856104922208, 1.005258967694165, 0.005370914553524138, -0.00375120850818568,
                      0.0024914420997631617, -0.001688275536638749, 0.0009532893006239131,
                      -0.00035503779731176706, 2.4031984432523987e-05, 6.828699393459469e-05,
                      -4.732379913519589e-05, 1.2465571319421395e-05, 2.9451322213512157e-06,
                      -3.987148756743446e-06, 1.4503218390062583e-06, -2.53411693006516e-08,
                      -1.9841353754823306e-07, 1.2962495347003887e-07, -6.015662443366426e-08,
                      -1.4594175980636295e-08, 2.1579584720378038e-08)
ERF_INV_F64_HIGH = (4.849906401408584, 1.0103004648645457, -0.00013871931837350544, -0.00021503011984157664,
                    7.599527791788206e-05, -1.9681770527539082e-05, 4.526054361250003e-06,
                    -9.930303586683874e-07, 2.290434610597131e-07, -6.75532795643183e-08,
                    2.9045298582857994e-08, -1.5260030311779502e-08, 7.777015736752e-09,
                    -3.4665222574351986e-09, 1.359045996516522e-09, -4.4002700867828816e-10,
                    4.709258994307714e-11, 4.3387009303245476e-11, -1.550444854816062e-11)


def _near_zero(x: Real) -> Real:
    """erf(x) for |x| <= 1 (1.1 in float32)."""
    return x.fma(horner(x * x, ERF_F32) if is_single(x) else polynomial(x * x, ERF_F64), x)


@elementary
def erf(x: Real) -> Real:
    """Error function."""
    a = abs(x)
    if is_single(x):
        # Horner chains of few operations, not trees: the processor works on several vectors at once.
        root = horner(a.at_most(ERF_ONE), ROOT_ERFC_F32)
        square = root * root
        return where(a < 1.1, _near_zero(x), (-square).fma(square, 1.0).with_sign_of(x))
    return where(a < 1.0, _near_zero(x), (1.0 - _tail(a.at_most(6.0))).with_sign_of(x))


def erfc_ratio(a: Real) -> Real:
    """erfc(a) e^(a^2) for a from 1/2 to where erfc underflows."""
    center = ERFC_CENTER_F32 if is_single(a) else ERFC_CENTER_F64
    t = (a - center) / (a + center)
    return polynomial(t, ERFC_F32 if is_single(a) else ERFC_F64) / a.fma(2.0, 1.0)


def erfc_near_zero(x: Real) -> Real:
    """erfc(x) for |x| <= 1/2."""
    return (-x).fma(polynomial(x * x, ERF_F32 if is_single(x) else ERF_F64), 1.0 - x)


def _tail(a: Real) -> Real:
    """erfc(a) for a >= 1/2."""
    a = a.at_most(10.5 if is_single(a) else 28.0)
    square = a * a
    lost = a.fma(a, -square)
    g = erfc_ratio(a)
    p, bits = exp_parts(-square)
    # Multiply by the power of two last, because it may make the result denormal.
    return scaled(p * (-lost).fma(g, g), bits)


@elementary
def erfc(x: Real) -> Real:
    """Complementary error function, 1 - erf(x), without cancellation."""
    a = abs(x)
    tail = _tail(a)
    return where(a < 0.5, erfc_near_zero(x), where(x < 0.0, 2.0 - tail, tail))


def erf_inv_over_x(w: Real) -> Real:
    """erf_inv(x) / x for w = -log(1 - x^2), while x does not round to 1."""
    root = w.sqrt()
    if is_single(w):
        return where(w < 5.0, polynomial(w - 2.5, ERF_INV_F32_LOW), polynomial(root - 3.25, ERF_INV_F32_HIGH))
    high = where(w < 16.0, polynomial(root - 3.25, ERF_INV_F64_MIDDLE), polynomial(root - 5.0, ERF_INV_F64_HIGH))
    return where(w < 6.25, polynomial(w - 3.125, ERF_INV_F64_LOW), high)


@elementary
def erf_inv(x: Real) -> Real:
    """Inverse error function; infinite at 1 and -1, NaN beyond."""
    p = erf_inv_over_x(-log((-x).fma(x, 1.0)))
    return where(abs(x).eq(1.0), x * np.inf, x * p)
