"""Special functions against mpmath and SciPy: the errors their docstrings state."""

import mpmath
import numpy as np
import pytest
from scalar.harness import build, call, run, ulp_error
from scalar.test_accuracy import by_mpmath, needs_extended
from scipy import special

from mpijax.scalar.expr import Real
from mpijax.scalar.iteration import iterate


def _quantile(p):
    """Of the normal distribution, by Newton's method on the logarithm of the tail."""
    q = min(p, 1 - p)
    if q > 0.05:
        return mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)
    y = mpmath.sqrt(-2 * mpmath.log(q))
    for _ in range(40):
        tail = mpmath.erfc(y / mpmath.sqrt(2)) / 2
        step = mpmath.log(tail / q) * tail / mpmath.npdf(y)
        y += step
        if abs(step) < mpmath.mpf(10) ** -30:
            break
    return -y if p < 0.5 else y


def _log_ndtr(x):
    tail = mpmath.erfc(abs(x) / mpmath.sqrt(2)) / 2
    return mpmath.log1p(-tail) if x > 0 else mpmath.log(tail)


def _orders(rng, low, high, n):
    return 10.0 ** rng.uniform(low, high, n)


def _probabilities(rng):
    return [rng.uniform(0, 1, 100), rng.uniform(0.45, 0.55, 50), _orders(rng, -44, -1, 50), 1 - _orders(rng, -7, -1, 50)]


def _tails(rng):
    return [rng.uniform(-5, 5, 150), rng.uniform(-50, 10, 100), rng.uniform(5, 37, 50), -_orders(rng, -20, 18, 50)]


def _small_and_large(rng):
    return [rng.uniform(-26, 5, 200), rng.uniform(0, 60, 200), rng.uniform(26, 29, 50), _orders(rng, -20, 30, 100)]


def _moderate(rng):
    return [rng.uniform(-20, 20, 300), rng.uniform(3, 12, 200), _orders(rng, -20, 4, 100)]


def _positive(rng):
    return [rng.uniform(0, 20, 100), rng.uniform(0.9, 1.1, 30), _orders(rng, -20, 1.5, 50)]


def _dawson(x):
    """By its series in 1 / x where e^(x^2) is too large a number."""
    far = (1 + 1 / (2 * x * x) + 3 / (4 * x**4) + 15 / (8 * x**6)) / (2 * x)
    return far if abs(x) > 300 else mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x)


# name: (reference, samplers, largest errors float32 and float64, values at 0, inf, -inf, nan)
TABLE = {
    "ndtri": (_quantile, _probabilities, 3.5, 4.5, [-np.inf, np.nan, np.nan, np.nan]),
    "log_ndtr": (_log_ndtr, _tails, 4, 4, [np.log(0.5), 0, -np.inf, np.nan]),
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), _small_and_large, 2.5, 2.5, [1, 0, np.inf, np.nan]),
    "bessel_i0e": (lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), _moderate, 3, 4, [1, 0, 0, np.nan]),
    "expi": (mpmath.ei, _moderate, 0.6, 4, [-np.inf, np.inf, 0, np.nan]),
    "exp1": (mpmath.e1, _positive, 0.6, 4, [np.inf, 0, np.nan, np.nan]),
    "dawsn": (_dawson, _moderate, 0.6, 4, [0, 0, 0, np.nan]),
    "spence": (lambda x: mpmath.polylog(2, 1 - x).real, _positive, 0.6, 4, [np.pi**2 / 6, np.nan, np.nan, np.nan]),
    "sine_integral": (mpmath.si, _moderate, 0.6, 3, [0, np.pi / 2, -np.pi / 2, np.nan]),
    "fresnel_sine": (mpmath.fresnels, _moderate, 0.6, 3, [0, 0.5, -0.5, np.nan]),
    "fresnel_cosine": (mpmath.fresnelc, _moderate, 0.6, 3, [0, 0.5, -0.5, np.nan]),
    "bessel_i1e": (lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)), _moderate, 3, 4.5, [0, 0, 0, np.nan]),
}  # fmt: skip


@needs_extended
@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
@pytest.mark.parametrize("name", TABLE)
@pytest.mark.one_in(3)
def test_accuracy(name, dtype):
    reference, samplers, *bounds, edges = TABLE[name]
    x = np.concatenate(samplers(np.random.default_rng(1))).astype(dtype)
    if name == "ndtri":
        x = x[(x > 0) & (x < 1)]
    got = run(name, x)
    error = ulp_error(got, by_mpmath(reference, x))
    assert error.max() <= bounds[dtype == "float64"], f"{name}({x[error.argmax()]!r}) = {got[error.argmax()]!r}"
    np.testing.assert_array_equal(run(name, x, lanes=1), got)
    np.testing.assert_allclose(run(name, np.array([0, np.inf, -np.inf, np.nan], dtype)), edges, rtol=1e-7)


def test_quantiles_of_the_smallest_and_impossible_probabilities():
    p = np.array([5e-324, 1, 1.5, -0.5, 0.5])
    np.testing.assert_allclose(run("ndtri", p), [-38.46740561714434, np.inf, np.nan, np.nan, 0], rtol=1e-15)


# ---------------------------------------------------------------- of two arguments, with loops

P, Q = special.gammainc, special.gammaincc


def _pairs(rng):
    """Where the incomplete gamma functions have their methods: series, fraction, small and large shapes, x near to them."""
    moderate = rng.uniform(0.01, 20, (2, 300))
    small = 10.0 ** rng.uniform([[-8], [-8]], [[1], [1.5]], (2, 200))
    shape = 10.0 ** rng.uniform(0, 4, 400)
    spread = 1 + np.concatenate([rng.uniform(-0.7, 1, 200), rng.uniform(-3, 3, 200) / np.sqrt(shape[200:])])
    return np.concatenate([moderate, small, [shape, shape * np.maximum(spread, 0.01)]], 1)


@pytest.mark.parametrize("name, exact", [("igamma", P), ("igammac", Q)])
def test_incomplete_gamma(name, exact):
    a, x = _pairs(np.random.default_rng(2))
    expected, got = exact(a, x), run(name, a, x)
    ordinary = expected > 1e-10
    assert ordinary.sum() > 500
    np.testing.assert_allclose(got[ordinary], expected[ordinary], rtol=2e-13)
    np.testing.assert_allclose(got, expected, rtol=4e-12, atol=1e-100)
    np.testing.assert_array_equal(run(name, a, x, lanes=1), got)
    single = run(name, a.astype("f4"), x.astype("f4"))
    np.testing.assert_allclose(single, exact(*(v.astype("f4").astype("f8") for v in (a, x))), rtol=2e-7, atol=1e-37)


def test_incomplete_gamma_at_the_edges():
    """Those of JAX, and P = 1 for a = 0 everywhere above 0."""
    a = np.array([0, 0, 0.5, 0.5, -1, 1, np.inf, np.inf, np.nan, 1, 1e300])
    x = np.array([0, 0.5, 0, np.inf, 1, -1, 2, np.inf, 1, np.nan, 1.0])
    lower = np.array([np.nan, 1, 0, 1, np.nan, np.nan, 0, 1, np.nan, np.nan, 0])
    np.testing.assert_array_equal(run("igamma", a, x), lower)
    np.testing.assert_array_equal(run("igammac", a, x), 1 - lower)


@pytest.mark.parametrize("dtype, rtol", [("float32", 1.3e-7), ("float64", 3e-15)])
@pytest.mark.one_in(2)
def test_zeta(dtype, rtol):
    rng = np.random.default_rng(3)
    x, q = (v.astype(dtype) for v in (1 + 10.0 ** rng.uniform(-3, 1.3, 400), 10.0 ** rng.uniform(-2, 2, 400)))
    exact = special.zeta(x.astype("f8"), q.astype("f8"))
    np.testing.assert_allclose(run("zeta", x, q), exact, rtol=rtol, atol=1e-37)
    n = rng.integers(0, 6, 400).astype(dtype)
    exact = special.polygamma(n.astype(int), q.astype("f8"))
    np.testing.assert_allclose(run("polygamma", n, q), exact, rtol=max(rtol, 1e-14), atol=1e-14)
    assert (run("polygamma", n, q, lanes=1) == run("polygamma", n, q)).all()


def test_zeta_at_the_edges():
    """Poles, and arguments below 0, where whole powers have values."""
    x = np.array([1, 0.5, 2, 2, 3, 2, 3, 1.5, np.nan, 2])
    q = np.array([5, 2, 0, -1, -1, -1.5, -20.25, -1.5, 1, np.nan])
    below = [9.379246644989124, sum((-20.25 + k) ** -3 for k in range(21)) + special.zeta(3, 0.75)]
    expected = [np.inf, np.nan, np.inf, np.inf, np.nan, *below, np.nan, np.nan, np.nan]
    np.testing.assert_allclose(run("zeta", x, q), expected, rtol=1e-14)
    np.testing.assert_array_equal(run("polygamma", np.array([-1, 0.5, 1.0]), np.array([1, 1, 0.0])), [np.nan, np.nan, np.inf])


@pytest.mark.parametrize("lanes", [1, 8])
def test_loops_stop_a_lane_at_a_time(lanes):
    """Counts halvings down to 1: each lane its own, none for those that are not active, no more than the limit."""

    def halvings(b, x):
        def step(count, rest, like):
            return [count + like, rest * 0.5], rest > 2.0

        x = Real(b, x)
        return iterate("test.halvings", step, 6, x > 1.0, [x.const(0.0), x], x.const(1.0))[0].s

    x = np.array([0.5, 1, 2, 3, 4, 9, 64, 1e6, np.nan])
    kernel, dtype = build(halvings, (x.dtype,), lanes)
    np.testing.assert_array_equal(call(kernel, dtype, lanes, [x]), [0, 0, 1, 2, 2, 4, 6, 6, 0])


def _slope_of_sample(a, x):
    """-(dP/da) / (dP/dx) with 40 digits, by differences of fourth order of whichever of P and Q is small."""
    with mpmath.workdps(40):
        a, x = mpmath.mpf(float(a)), mpmath.mpf(float(x))
        h = a / 10**10
        ends = (0, x) if x < max(a, 1) else (x, mpmath.inf)
        p = lambda k: mpmath.gammainc(a + k * h, *ends, regularized=True) * (1 if ends[0] == 0 else -1)
        by_shape = (8 * (p(1) - p(-1)) - (p(2) - p(-2))) / (12 * h)
        density = mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))
        return float(-by_shape / density), float(by_shape)


def test_slopes_by_the_shape_of_gamma_variables():
    rng = np.random.default_rng(4)
    moderate = rng.uniform(0.01, 20, (2, 15))
    small = 10.0 ** rng.uniform([[-4], [-6]], [[1], [1.5]], (2, 15))
    shape = 10.0 ** rng.uniform(1, 4, 10)
    a, x = np.concatenate([moderate, small, [shape, shape * (1 + rng.uniform(-3, 3, 10) / np.sqrt(shape))]], 1)
    slopes, by_shape = np.transpose([_slope_of_sample(*pair) for pair in zip(a, x, strict=True)])
    np.testing.assert_allclose(run("random_gamma_grad", a, x), slopes, rtol=1e-12)
    np.testing.assert_allclose(run("igamma_grad_a", a, x), by_shape, rtol=1e-12)
    np.testing.assert_array_equal(run("random_gamma_grad", a, x, lanes=1), run("random_gamma_grad", a, x))
    single = run("random_gamma_grad", a.astype("f4"), x.astype("f4"))
    np.testing.assert_allclose(single, slopes, rtol=3e-5)  # the operands' rounding


def test_slopes_of_large_shapes_and_at_the_edges():
    a = np.array([1.1e4, 1.1e4, 1e5])
    x = a + np.array([5, -4, 1]) * np.sqrt(a)
    slopes = [_slope_of_sample(*pair)[0] for pair in zip(a, x, strict=True)]
    np.testing.assert_allclose(run("random_gamma_grad", a, x), slopes, rtol=1e-6)
    a = np.array([0, 0.5, -1, 1, 1, np.inf, np.nan, 1, 2])
    x = np.array([0.5, 0, 1, -1, np.inf, 2, 1, np.nan, 1e30])
    np.testing.assert_array_equal(run("igamma_grad_a", a, x), [np.nan, 0, np.nan, np.nan, 0, np.nan, np.nan, np.nan, 0])
    np.testing.assert_allclose(
        run("random_gamma_grad", a, x),
        [np.nan, 0, np.nan, np.nan, np.inf, np.nan, np.nan, np.nan, np.log(1e30) - special.digamma(2)])
