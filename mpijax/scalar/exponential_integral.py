"""Rules of expi, exp1, expn: the exponential integrals.

E1 up to 1 is -log x plus a polynomial, beyond it is e^-x / x times a polynomial in (x - 2) / (x + 2). Ei up to 6 is
log(x / r) plus x - r times a polynomial, where r is its zero; beyond it is e^x / x times a polynomial in 1 / x. En up
to 1 is its power series (DLMF 8.19.8), beyond it is Legendre's continued fraction of an incomplete gamma function.

float32 is computed in float64 and rounded once: measured error 0.5 ulp. float64: E1 and Ei 4 ulp, En 4e-15.
"""

from __future__ import annotations

import numpy as np

from mpijax.scalar.exponential import exp
from mpijax.scalar.expr import Real, elementary, in_double, is_single, polynomial, where
from mpijax.scalar.gamma import digamma_of_double, log_gamma_of_positive
from mpijax.scalar.guard import rarely
from mpijax.scalar.incomplete_gamma import legendre_fraction
from mpijax.scalar.logarithm import log

# (E1(x) + log x + gamma) / x in x - 0.5, for x up to 1
EXP1_NEAR = (0.8876841582354967, -0.20149095532152714, 0.042165868918854835, -0.007597455347199385,
             0.0011819302440720918, -0.00016078042470793867, 1.9375519875434145e-05, -2.092585722969633e-06,
             2.0456925389127528e-07, -1.8255924390339434e-08, 1.498068250774141e-09, -1.1417743114579995e-10,
             8.061339084762383e-12)
# x e^x E1(x) in (x - 2) / (x + 2) - 0.33, for x from 1
EXP1_FAR = (0.8244301433429463, 0.2859198921742244, -0.055018566016736985, 0.03437130666857685, -0.012839532380174205,
            0.008650654761697784, -0.0039147811368298105, 0.0028000329335676286, -0.001368534806445204,
            0.001037156863396637, -0.0005181397699006979, 0.0004197149411579111, -0.00020593169446863176,
            0.00018102827506166145, -8.04276013646739e-05, 8.71937707653693e-05, -4.7875743873927637e-05,
            2.088467252622607e-05, 3.972037058968555e-05, 8.89884423206679e-05, -0.00013196761175420966,
            -0.00015041633909294971, 0.00020661691143286602, 0.0002616306030316648, -0.00019836923039238288,
            -0.0002355962420454474, 9.261795300242945e-05, 0.00011070475839290802)
# Ei's zero as a sum of two numbers, and (Ei(x) - log(x / zero)) / (x - zero) in x - 3, for x up to 6
ZERO = (0.3725074107813666, 1.3140183414386028e-17)
EXPI_NEAR = (2.986772243435986, 1.2845225183414326, 0.3816411761263823, 0.0859896331959558, 0.0156352800186179,
             0.002387150639494069, 0.0003144793663706449, 3.6461618884855095e-05, 3.7769330804105115e-06,
             3.536979186224422e-07, 3.0231256286549145e-08, 2.376973695331473e-09, 1.7306198680913013e-10,
             1.1733488280086066e-11, 7.443943404241219e-13, 4.437716703354203e-14, 2.4952268700389467e-15,
             1.327813075430847e-16, 6.704790533445518e-18, 3.2079067460675518e-19, 1.4712258125572336e-20,
             7.058160655991298e-22, 2.941649002826465e-23)
# x e^-x Ei(x) in 1 / x - 0.11 up to 18, in 1 / x - 0.028 beyond
EXPI_MIDDLE = (1.150547483595937, 1.982418214907728, 7.341847950089059, -18.209500061324867, -541.6059682036513,
               1114.4122276172811, 34077.179562720936, -251943.98594522895, -772484.2877296316, 24679496.649120916,
               -164866229.4019888, -231328131.29257843, 14933510511.829203, -148723620491.4326, 577794271752.8766,
               4658654251097.169, -99092447754644.06, 831154643189487.1, -4741619073638909.0, 2.098333172088953e+16,
               5.558561948860841e+17, -1.383981205991189e+19, 6.187263212441363e+19, 7.338560555688563e+20,
               -5.817674546557254e+21)
EXPI_FAR = (1.02971696461148, 1.1286857172944003, 2.6525206824615455, 10.117496730846987, 56.4111402027705,
            440.19056445119725, 4795.012660884518, 74427.60096451266, 1532274.2929024487, 29453001.874750238,
            -10193239.471128497, -34926102585.507256, -1262418562869.2485, 5120760227814.761, 1448780160346326.5,
            1.390378118048137e+16, -1.2135696041548984e+18, -1.7740417285903776e+19, 8.416911023571412e+20,
            1.2087310343175825e+22, -4.4904655770017204e+23, -4.7928058101862186e+24, 1.5721589116655147e+26,
            8.618867597398333e+26, -2.624878053046137e+28)
EXPN_TERMS = 20  # of the power series up to 1


def _exp1(x: Real, logarithm: Real, decay: Real) -> Real:
    """E1 for x > 0, from log x (needed up to 1 only) and e^-x."""
    near = x.fma(polynomial(x - 0.5, EXP1_NEAR), -np.euler_gamma) - logarithm
    bounded = x.at_most(1e3)
    far = decay / x * polynomial((bounded - 2.0) / (bounded + 2.0) - 0.33, EXP1_FAR)
    return where(x < 1.0, near, far)


def _exp1_of_any(x: Real) -> Real:
    return where(x >= 0.0, _exp1(x, log(x), exp(-x)), np.nan)


def _expi(x: Real) -> Real:
    """Ei(x) for positive x, -E1(-x) for negative x, with one logarithm and one exponential for both."""
    a = abs(x)
    high, low = ZERO
    beyond = (x - high) - low
    close = abs(beyond) < 0.1
    ratio = beyond * (1.0 / high)
    one_more = 1.0 + ratio
    lost = where(close, ratio - (one_more - 1.0), 0.0)
    logarithm = log(where(x < 0.0, a, where(close, one_more, a * (1.0 / high))))
    near = beyond.fma(polynomial(x - 3.0, EXPI_NEAR), logarithm + lost)
    inverse = 1.0 / a.at_most(1e4)
    far = inverse * where(x < 18.0, polynomial(inverse - 0.11, EXPI_MIDDLE), polynomial(inverse - 0.028, EXPI_FAR))
    root = exp(0.5 * x.at_most(1500.0))  # e^x may overflow although e^x / x does not
    return where(x < 0.0, -_exp1(a, logarithm, root * root), where(x < 6.0, near, root * far * root))


def _expn_by_series(n: Real, x: Real) -> Real:
    """(-x)^(n - 1) (digamma n - log x) / (n - 1)! minus the sum over k != n - 1 of (-x)^k / ((k - n + 1) k!)."""
    logarithm, before = log(x), n - 1.0
    total, term = n.const(0.0), n.const(1.0)
    for k in range(EXPN_TERMS):
        total = total + where(before.eq(float(k)), 0.0, term / (float(k) - before))
        term = term * (x * (-1.0 / (k + 1)))
    half = before * 0.5
    sign = where(half.floor().eq(half), n.const(1.0), -1.0)
    own = sign * exp(before * logarithm - log_gamma_of_positive(n)) * (digamma_of_double(n) - logarithm)
    return own - total


def _expn(n: Real, x: Real, single: bool) -> Real:
    n = n.floor()
    ordinary = (n > 0.0) & (x > 0.0) & (n < np.inf)
    near, far = ordinary & (x <= 1.0), ordinary & (x > 1.0)
    decay = exp(-x)
    value = rarely("expn.series", near, x.const(0.0), _expn_by_series, n, x)
    value = rarely(f"expn.fraction.{single}", far, value,
                   lambda n, x, decay: decay * legendre_fraction(1.0 - n, x, x < 746.0, single), n, x, decay)
    value = where(n.eq(0.0), decay / x, value)
    value = where(x.eq(0.0), where(n < 2.0, np.inf, 1.0 / (n - 1.0)), value)
    return where((n >= 0.0) & (x >= 0.0), value, np.nan)


@elementary
def expi(x: Real) -> Real:
    """The integral of e^t / t from -inf to x."""
    return in_double(_expi, x)


@elementary
def exp1(x: Real) -> Real:
    """The integral of e^-t / t from x to inf; NaN below 0."""
    return in_double(_exp1_of_any, x)


@elementary
def expn(n: Real, x: Real) -> Real:
    """The integral of e^(-x t) / t^n over t from 1 to inf; NaN below 0."""
    single = is_single(x)
    return in_double(lambda n, x: _expn(n, x, single), n, x)
