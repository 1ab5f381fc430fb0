"""Rules of sine_integral, cosine_integral, fresnel_sine, fresnel_cosine: oscillating integrals.

Near 0 they are polynomials plus the first term of their series. Beyond, they are the sine and cosine of their phase
with the auxiliary functions f and g as amplitudes (DLMF 6.2.17 and 7.5.1), which are polynomials in (x - c) / (x + c).

float32 is computed in float64 and rounded once: measured error 0.5 ulp. float64: 4e-16 absolute or relative,
whichever is larger.
"""

from __future__ import annotations

import numpy as np

from mpijax.scalar.expr import Real, elementary, in_double, polynomial, where
from mpijax.scalar.logarithm import log
from mpijax.scalar.trigonometric import cos, of_quarter_turns, sin

NEAR = 4.0  # for the sine and cosine integrals
# Si(x) / x and (Ci(x) - log x - gamma) / x^2 in x^2 - 8
SINE_NEAR = (0.6488924209268717, -0.03374828824177748, 0.0010930369109785928, -1.988460909097556e-05,
             2.2608494643277086e-07, -1.7485077038497675e-09, 9.776698990455097e-12, -4.133858509099106e-14,
             1.3677525514883993e-16, -3.637405971938932e-19, 7.944555104763233e-22, -1.4511464630763061e-24,
             2.2475818196032703e-27)
COSINE_NEAR = (-0.18000156259038463, 0.007255170885314896, -0.00016681633532641317, 2.321729631140202e-06,
               -2.1333840788241508e-08, 1.3842094926032937e-10, -6.667569610656582e-13, 2.476778329346496e-15,
               -7.308605151564754e-18, 1.754237028883302e-20, -3.491644448436069e-23, 5.858388740174555e-26,
               -8.391491301901774e-29)
# x f(x) and x^2 g(x) in (x - 6) / (x + 6) - 0.4
SINE_F = (0.9903444712754641, 0.04366141594949422, -0.07329027938214008, 0.06354555452970195, -0.03910627823372152,
          0.019662667232951004, -0.009732012736732975, 0.0052268208817677604, -0.002789994100074171,
          0.0014825326480667964, -0.0008407609785189689, 0.0004716601089187268, -0.0002650929699942416,
          0.00015877685710286382, -9.109706530419945e-05, 5.3249644432118906e-05, -3.293397247436675e-05,
          2.1291926236635574e-05, -1.3963981800775867e-05, 3.567764940561462e-06, -1.3947800840208266e-06,
          6.894390892182328e-06, -4.460496693141272e-06)
SINE_G = (0.9720066765766766, 0.12268981701028886, -0.19015919362058598, 0.13220848801609505, -0.04764959279553406,
          0.005300117306136667, 0.000700971068873339, 4.0262197346943815e-05, 0.0009719319753130856,
          -0.0008091492288795901, 0.0002884184720877675, -0.00032052373542417313, 0.00019056044423221508,
          -7.252185610716836e-05, 9.044668455729019e-05, -3.285239131450114e-05, 2.0826008997246714e-05,
          -2.862033757140487e-05, 5.846061990370819e-07, -4.982683512830645e-06, 6.456498437585513e-06,
          -2.2101269068667826e-06, 4.3950616002449536e-06)
FRESNEL_NEAR = 2.56  # bound of x^2
# S(x) / x^3 and C(x) / x in x^4 - 3.3
FRESNEL_SINE_NEAR = (0.2876948188112672, -0.053536043089093745, 0.004653923174314385, -0.000216262893049126,
                     6.181119671264457e-06, -1.1933002412749498e-07, 1.6594571044111274e-09, -1.7413324789674832e-11,
                     1.4278605346235995e-13, -9.401890273284012e-16, 5.083834776391205e-18, -2.297673108616139e-20)
FRESNEL_COSINE_NEAR = (0.4409895830630762, -0.10604357594554883, 0.015430863019012541, -0.001009123592925532,
                       3.7089447236555404e-05, -8.735614427705666e-07, 1.4321755493539864e-08, -1.7296363675932763e-10,
                       1.6034683841102972e-12, -1.1773840181925617e-14, 7.018234173832359e-17, -3.466191252774792e-19,
                       1.4417001276806886e-21)
# pi x f(x) and pi^2 x^3 g(x) in (x^2 - 3) / (x^2 + 3) - 0.46
FRESNEL_F = (0.9955988224304007, 0.021341563455110128, -0.0371882111281147, 0.031701579478742525,
             -0.019040001260975416, 0.009764453331480905, -0.005344279348176237, 0.003103018118534953,
             -0.0017045367390742805, 0.0009856474052010995, -0.0005965900799406289, 0.00033644175768791684,
             -0.00020830994186057074, 0.0001272992878485911, -7.209352943214402e-05, 5.2226614856073226e-05,
             -2.8335669576532263e-05, 1.1236813502477648e-05, -1.182150909592039e-05, 1.3118294571911186e-05,
             -7.40740548984254e-06)
FRESNEL_G = (0.9787731338023914, 0.09961417314062389, -0.1592535319315091, 0.10486606455978224, -0.03249394254060077,
             0.00380151271891867, -0.003147369060530143, 0.0017716292223074644, 0.00047739152262887797,
             0.00021411580389995704, -0.00013148690786179542, -0.0002550563718997541, -0.00011740764565821093,
             -4.451450428537174e-05, 6.474836692792469e-05, 7.16097493710579e-05, 0.00010055713252062107,
             5.4031922751615005e-05, -6.527247197677745e-05, -0.0001137727928939383, -1.1469941172285747e-06,
             3.99385879134936e-05)


def _amplitudes(a: Real) -> tuple[Real, Real]:
    """f and g of the sine and cosine integrals at a >= 4."""
    bounded, inverse = a.at_most(1e20), 1.0 / a
    t = (bounded - 6.0) / (bounded + 6.0) - 0.4
    return inverse * polynomial(t, SINE_F), inverse * inverse * polynomial(t, SINE_G)


def _sine_integral(x: Real) -> Real:
    a = abs(x)
    near = a * polynomial(a * a - 8.0, SINE_NEAR)
    f, g = _amplitudes(a)
    far = 0.5 * np.pi - where(a < np.inf, f * cos(a) + g * sin(a), 0.0)
    return where(x.is_nan(), x, where(a < NEAR, near, far).with_sign_of(x))


def _cosine_integral(x: Real) -> Real:
    a = abs(x)
    square = a * a
    near = square.fma(polynomial(square - 8.0, COSINE_NEAR), log(a) + np.euler_gamma)
    f, g = _amplitudes(a)
    far = where(a < np.inf, f * sin(a) - g * cos(a), 0.0)
    return where(a < NEAR, near, where(x > -np.inf, far, np.nan))


def _fresnel_parts(x: Real) -> tuple[Real, Real, Real, Real, Real, Real]:
    """(|x|, x^2, f, g, sine, cosine) for the phase pi x^2 / 2, which is x^2 quarter turns."""
    a = abs(x).at_most(1e100)
    square = a * a
    turns = square - 4.0 * (square * 0.25).roundeven()
    sine, cosine = of_quarter_turns(turns, a.fma(a, -square))
    inverse, t = (1.0 / np.pi) / a, (square - 3.0) / (square + 3.0) - 0.46
    f = inverse * polynomial(t, FRESNEL_F)
    g = inverse * ((1.0 / np.pi) / square) * polynomial(t, FRESNEL_G)
    return a, square, f, g, sine, cosine


def _fresnel_sine(x: Real) -> Real:
    a, square, f, g, sine, cosine = _fresnel_parts(x)
    near = a * square * polynomial(square * square - 3.3, FRESNEL_SINE_NEAR)
    return _odd(x, where(square < FRESNEL_NEAR, near, 0.5 - (f * cosine + g * sine)))


def _fresnel_cosine(x: Real) -> Real:
    a, square, f, g, sine, cosine = _fresnel_parts(x)
    near = a * polynomial(square * square - 3.3, FRESNEL_COSINE_NEAR)
    return _odd(x, where(square < FRESNEL_NEAR, near, 0.5 + (f * sine - g * cosine)))


def _odd(x: Real, of_size: Real) -> Real:
    """An odd function from its value for |x|. As in JAX and SciPy, it is 0 at -0."""
    return where(x < 0.0, -of_size, of_size)


@elementary
def sine_integral(x: Real) -> Real:
    """The integral of sin t / t from 0 to x."""
    return in_double(_sine_integral, x)


@elementary
def cosine_integral(x: Real) -> Real:
    """The integral of cos t / t from inf to |x|."""
    return in_double(_cosine_integral, x)


@elementary
def fresnel_sine(x: Real) -> Real:
    """The integral of sin(pi t^2 / 2) from 0 to x."""
    return in_double(_fresnel_sine, x)


@elementary
def fresnel_cosine(x: Real) -> Real:
    """The integral of cos(pi t^2 / 2) from 0 to x."""
    return in_double(_fresnel_cosine, x)
