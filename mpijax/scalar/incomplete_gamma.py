"""Rules of igamma and igammac: the regularized incomplete gamma functions, P(a, x) and Q(a, x) = 1 - P.

The smaller of the two is computed, by a method that converges. Up to x = a, P uses its series; beyond, Q uses
Legendre's continued fraction. Both are loops with as many iterations as the slowest lane needs. Near x = a, for large
a, Temme's uniform expansion needs no loop (N. M. Temme, "The asymptotic expansion of the incomplete gamma functions",
1979; DLMF 8.12 for its coefficients). For large a, the common factor x^a e^-x / Gamma(a + 1) is computed from log(x/a)
- (x/a - 1) and Stirling's series, because a log x - x would lose digits.

float32 is computed in float64 and rounded once. float64: 2e-14 relative for both functions for moderate a and x; for a
up to 10,000, 1e-13 for values above 1e-10, and 2e-12 for values above 1e-100.
"""

from __future__ import annotations

import numpy as np

from mpijax.scalar.exponential import exp, expm1
from mpijax.scalar.expr import Real, elementary, horner, in_double, is_single, polynomial, where
from mpijax.scalar.gamma import NEAR_ONE_AND_TWO, STIRLING, log_gamma_of_positive
from mpijax.scalar.guard import rarely
from mpijax.scalar.iteration import iterate
from mpijax.scalar.logarithm import log, log_of_mantissa
from mpijax.scalar.normal import erfcx_of_large
from mpijax.scalar.special import erfc_near_zero

TURNS = 500
PRECISION_F32, PRECISION_F64 = 2.0**-30, 2.0**-54
STIRLING_FROM = 8.0
TEMME_FROM, TEMME_WIDTH = 40.0, 0.4  # smallest a, largest |x - a| / a
# d_kn of the sum over k and n of d_kn eta^n a^-k, by k
TEMME = (
    (-0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073, 0.0003527336860670194,
     -0.0001787551440329218, 3.919263178522438e-05, -2.185448510679992e-06, -1.85406221071516e-06,
     8.296711340953087e-07, -1.7665952736826078e-07, 6.707853543401498e-09, 1.0261809784240309e-08,
     -4.382036018453353e-09, 9.14769958223679e-10, -2.5514193994946248e-11, -5.830772132550426e-11,
     2.4361948020667415e-11),
    (-0.001851851851851852, -0.003472222222222222, 0.0026455026455026454, -0.0009902263374485596,
     0.00020576131687242798, -4.018775720164609e-07, -1.8098550334489977e-05, 7.64916091608111e-06,
     -1.6120900894563446e-06, 4.647127802807434e-09, 1.378633446915721e-07, -5.752545603517705e-08,
     1.1951628599778148e-08, -1.7543241719747647e-11, -1.0091543710600413e-09, 4.162792991842583e-10,
     -8.56390702649298e-11),
    (0.004133597883597883, -0.0026813271604938273, 0.0007716049382716049, 2.0093878600823047e-06,
     -0.0001073665322636516, 5.2923448829120125e-05, -1.2760635188618728e-05, 3.423578734096138e-08,
     1.3721957309062934e-06, -6.298992138380055e-07, 1.4280614206064242e-07, -2.0477098421990866e-10,
     -1.409252991086752e-08, 6.228974084922022e-09, -1.3670488396617114e-09),
    (0.0006494341563786008, 0.00022947209362139917, -0.0004691894943952557, 0.00026772063206283885,
     -7.561801671883977e-05, -2.396505113867297e-07, 1.1082654115347302e-05, -5.6749528269915965e-06,
     1.4230900732435883e-06, -2.7861080291528143e-11, -1.6958404091930278e-07, 8.099464905388083e-08,
     -1.9111168485973655e-08),
    (-0.0008618882909167117, 0.0007840392217200666, -0.0002990724803031902, -1.4638452578843418e-06,
     6.641498215465122e-05, -3.968365047179435e-05, 1.1375726970678419e-05, 2.507497226237533e-10,
     -1.6954149536558305e-06, 8.907507532205309e-07, -2.292934834000805e-07),
    (-0.00033679855336635813, -6.972813758365857e-05, 0.0002772753244959392, -0.00019932570516188847,
     6.797780477937208e-05, 1.419062920643967e-07, -1.3594048189768693e-05, 8.018470256334202e-06,
     -2.291481176508095e-06),
    (0.0005313079364639922, -0.0005921664373536939, 0.0002708782096718045, 7.902353232660328e-07,
     -8.153969367561969e-05, 5.61168275310625e-05, -1.8329116582843375e-05),
    (0.00034436760689237765, 5.171790908260592e-05, -0.00033493161081142234, 0.0002812695154763237,
     -0.00010976582244684731),
    (-0.0006526239185953094, 0.0008394987206720873, -0.000438297098541721),
)


def _precision_name(single: bool) -> str:
    return "single" if single else "double"


def _exponent(a: Real, x: Real) -> Real:
    """log(x/a) - (x/a - 1), which is negative, without cancellation near x = a."""
    far = x / a - 1.0
    mu = (x - a) / a
    near = abs(mu) < 0.29
    return where(near, log_of_mantissa(where(near, mu, 0.0)), log(x / a) - where(far < np.inf, mu, far))


def factor_of(a: Real, x: Real) -> Real:
    """x^a e^-x / Gamma(a + 1)."""
    large = a >= STIRLING_FROM
    inverse = 1.0 / where(large, a, STIRLING_FROM)
    series = inverse * polynomial(inverse * inverse, STIRLING)
    power = where(large, a * _exponent(a, x) - series, a * log(x) - x - log_gamma_of_positive(1.0 + a))
    return exp(power) * where(large, (inverse * (0.5 / np.pi)).sqrt(), 1.0)


def _series(a: Real, x: Real, factor: Real, single: bool) -> Real:
    """P by 1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ..., four terms with one division."""
    precision = PRECISION_F32 if single else PRECISION_F64

    def step(total: Real, term: Real, n: Real, x: Real) -> tuple[list[Real], Real]:
        first, second, third, fourth = (n + float(k) for k in range(1, 5))
        last_two = third * fourth
        product = second * last_two
        numerator = (fourth + x).fma(x, last_two).fma(x, product) * x
        square = x * x
        scale = term / (first * product)
        total = scale.fma(numerator, total)
        term = scale * (square * square)
        return [total, term, fourth], term > total * precision

    one = a.const(1.0)
    total, *_ = iterate(f"igamma.series.{_precision_name(single)}", step, TURNS, factor > 0.0, [one, one, a], x)
    return factor * total


def _fraction(a: Real, x: Real, factor: Real, single: bool) -> Real:
    """Q by the continued fraction."""
    return where(factor > 0.0, factor * a * legendre_fraction(a, x, factor > 0.0, single), 0.0)


def legendre_fraction(a: Real, x: Real, active: Real, single: bool) -> Real:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / ...)), four steps with one division, in lanes `active`.

    The state is the numerators and denominators of the last two convergents, divided by the last denominator.
    """
    precision = PRECISION_F32 if single else PRECISION_F64

    def step(p: Real, p_before: Real, q_before: Real, n: Real, b: Real, a: Real) -> tuple[list[Real], Real]:
        value, q = p, p.const(1.0)
        for _ in range(4):
            n, b = n + 1.0, b + 2.0
            weight = n * (a - n)
            p, p_before = p.fma(b, weight * p_before), p
            q, q_before = q.fma(b, weight * q_before), q
        scale = 1.0 / q
        p = p * scale
        return [p, p_before * scale, q_before * scale, n, b], abs(p - value) > p * precision

    b = x + (1.0 - a)
    first = 1.0 / b
    start = [first, a.const(0.0), first, a.const(0.0), b]
    value, *_ = iterate(f"igamma.fraction.{_precision_name(single)}", step, TURNS, active, start, a)
    return value


def _uniform(a: Real, x: Real) -> Real:
    """The smaller of P and Q, for large a and x near a."""
    square = -2.0 * _exponent(a, x)  # eta^2
    eta = square.sqrt().with_sign_of(x - a)
    z = (0.5 * a * square).sqrt()
    density = exp(-0.5 * a * square)
    tail = where(z < 0.5, erfc_near_zero(z), erfcx_of_large(z) * density)
    inverse = 1.0 / a
    rest = horner(eta, TEMME[-1])
    for row in TEMME[-2::-1]:
        rest = rest.fma(inverse, horner(eta, row))
    rest = density * rest * (inverse * (0.5 / np.pi)).sqrt()
    return 0.5 * tail + where(x < a, -rest, rest)


def _upper_of_small(a: Real, x: Real) -> Real:
    """Q for a and x up to about 1, where P is nearly 1: -expm1(u) - e^u (the sum over n > 0 of a (-x)^n / ((a + n)
    n!)), e^u = x^a / Gamma(a + 1)."""
    u = a * log(x) - a * (a - 1.0) * polynomial(a - 0.5, NEAR_ONE_AND_TWO)
    total, term = a.const(0.0), a.const(1.0)
    for n in range(1, 20):
        term = term * (x * (-1.0 / n))
        total = total + term * (a / (a + float(n)))
    return -expm1(u) - exp(u) * total


def _both(a: Real, x: Real, single: bool, upper: bool) -> Real:
    """P, or Q if `upper`, in float64."""
    ordinary = (a > 0.0) & (x > 0.0) & (a < np.inf)
    uniform = (a > TEMME_FROM) & (abs(x - a) < TEMME_WIDTH * a) & ordinary
    above = (x > 1.0) & (x > a)
    factor = factor_of(a, x)
    name = _precision_name(single)
    value = a.const(0.0)
    apart = ordinary & ~uniform
    for method, lanes in ((_series, apart & ~above), (_fraction, apart & above)):
        value = rarely(f"igamma{method.__name__}.{name}", lanes, value,
                       lambda a, x, f, method=method: method(a, x, f, single), a, x, where(lanes, factor, 0.0))
    value = rarely("igamma.uniform", uniform, value, _uniform, a, x)
    is_upper = above | (uniform & (x >= a))
    result = where(is_upper, value, 1.0 - value) if upper else where(is_upper, 1.0 - value, value)
    if upper:
        small = ordinary & ~above & (a < 1.0) & (x < 1.0)
        result = rarely("igammac.small", small, result, _upper_of_small, a, x)
    return _at_the_edges(a, x, result, upper)


def _at_the_edges(a: Real, x: Real, result: Real, upper: bool) -> Real:
    """NaN for negative operands and for a = x = 0; all weight is at 0 for a = 0, at infinity for infinite a."""
    below, above = (1.0, 0.0) if upper else (0.0, 1.0)
    result = where(x.eq(0.0) | a.eq(np.inf), below, result)
    result = where(x.eq(np.inf) | (a.eq(0.0) & (x > 0.0)), above, result)
    possible = (a >= 0.0) & (x >= 0.0) & ((a > 0.0) | (x > 0.0))
    return where(possible, result, np.nan)


@elementary
def igamma(a: Real, x: Real) -> Real:
    """P(a, x), the probability that a variable with a gamma distribution of shape a is below x."""
    single = is_single(x)
    return in_double(lambda a, x: _both(a, x, single, False), a, x)


@elementary
def igammac(a: Real, x: Real) -> Real:
    """Q(a, x) = 1 - P(a, x)."""
    single = is_single(x)
    return in_double(lambda a, x: _both(a, x, single, True), a, x)
