"""Every transcendental function against extended precision: the errors its docstring states."""

import mpmath
import numpy as np
import pytest
from scalar.harness import run, ulp_error
from scipy import special

extended = np.finfo(np.longdouble).eps < 1e-18
needs_extended = pytest.mark.skipif(not extended, reason="long double is no wider than double here")


def around(*points, spread=1.0):
    return lambda rng, n: np.concatenate([p + rng.uniform(-spread, spread, n) for p in points])


def span(low, high):
    return lambda rng, n: rng.uniform(low, high, n)


def magnitudes(low, high):
    """Both signs, evenly by order of magnitude."""
    return lambda rng, n: rng.choice([-1, 1], n) * 10.0 ** rng.uniform(low, high, n)


def any_bits(rng, n, dtype):
    """Every exponent, NaN and infinity among them."""
    size = np.dtype(dtype).itemsize
    return rng.integers(0, 2 ** (8 * size), n, dtype="u8").astype(f"u{size}").view(dtype)


def logistic(x):
    return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))


# name: (oracle, samplers, largest error float32, float64)
TABLE = {
    "exp": (np.exp, [span(-110, 90), span(-1, 1), span(-750, 711)], 1.05, 1.05),
    "exp2": (np.exp2, [span(-150, 130), span(-1, 1), span(-1080, 1025)], 1.3, 1.5),
    "expm1": (np.expm1, [span(-20, 90), span(-1, 1), magnitudes(-30, 0)], 1.6, 1.9),
    "logistic": (logistic, [span(-110, 90), span(-8, 8)], 2.0, 2.0),
    "log": (np.log, [span(0, 4), around(1, spread=1e-3), magnitudes(-40, 38)], 1.0, 1.0),
    "log2": (np.log2, [span(0, 4), around(1, spread=1e-3), magnitudes(-40, 38)], 1.9, 1.8),
    "log1p": (np.log1p, [span(-1, 4), magnitudes(-30, 30)], 1.6, 1.4),
    "sqrt": (np.sqrt, [magnitudes(-40, 38)], 0.5, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), [magnitudes(-38, 38)], 1.5, 1.5),
    "cbrt": (np.cbrt, [magnitudes(-44, 38), span(-4, 4)], 1.05, 1.05),
    "tanh": (np.tanh, [span(-10, 10), magnitudes(-20, 0)], 2.0, 1.6),
    "sinh": (np.sinh, [span(-89.4, 89.4), span(-2, 2), magnitudes(-20, 0)], 1.7, 1.7),
    "cosh": (np.cosh, [span(-89.4, 89.4), span(-2, 2)], 1.6, 1.6),
    "asinh": (np.arcsinh, [span(-5, 5), magnitudes(-20, 38)], 1.9, 1.9),
    "acosh": (np.arccosh, [span(0.9, 5), magnitudes(0, 38)], 2.0, 2.0),
    "atanh": (np.arctanh, [span(-1.1, 1.1), magnitudes(-20, 0)], 2.2, 2.1),
    "asin": (np.arcsin, [span(-1.05, 1.05), magnitudes(-20, 0)], 1.3, 1.3),
    "acos": (np.arccos, [span(-1.05, 1.05), magnitudes(-20, 0)], 1.3, 1.3),
    "atan": (np.arctan, [span(-4, 4), magnitudes(-20, 38)], 2.0, 2.0),
}


@pytest.mark.sweep
@needs_extended
@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.one_in(3)
def test_unary(name, dtype):
    oracle, samplers, *bounds = TABLE[name]
    rng = np.random.default_rng(1)
    x = np.concatenate([s(rng, 40_000).astype(dtype) for s in samplers] + [any_bits(rng, 40_000, dtype)])
    with np.errstate(all="ignore"):
        exact = oracle(x.astype(np.longdouble))
        got = run(name, x)
    error = ulp_error(got, exact)
    worst = error.argmax()
    assert error[worst] <= bounds[dtype == "float64"], f"{name}({x[worst]!r}) = {got[worst]!r}"
    np.testing.assert_array_equal(run(name, x, lanes=1), got)


def by_mpmath(function, xs, digits=25):
    with mpmath.workdps(60):
        return np.array([np.longdouble(mpmath.nstr(function(mpmath.mpf(float(x))), digits)) for x in xs])


@pytest.mark.sweep
@needs_extended
@pytest.mark.parametrize("name, bound", [("sin", 1.6), ("cos", 1.6), ("tan", 2.2)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_periodic(name, bound, dtype):
    """Also near multiples of pi/2, and where the argument is larger than the reduction serves."""
    rng = np.random.default_rng(2)
    x = np.concatenate(
        [
            rng.uniform(-20, 20, 1000),
            np.arange(1, 1500) * (np.pi / 2),
            np.arange(10**5, 10**5 + 500) * (np.pi / 2),
            rng.uniform(-1e9, 1e9, 500),
            magnitudes(-30, 30)(rng, 500),
            [1e22, 16367173.0 * 2.0**72],
        ]
    ).astype(dtype)
    got = run(name, x)
    error = ulp_error(got, by_mpmath(getattr(mpmath, name), x))
    assert error.max() <= bound, f"{name}({x[error.argmax()]!r}) = {got[error.argmax()]!r}"
    np.testing.assert_array_equal(run(name, x, lanes=1), got)


def test_periodic_of_infinity():
    for name in ("sin", "cos", "tan"):
        with np.errstate(invalid="ignore"):
            assert np.isnan(run(name, np.array([np.inf, -np.inf, np.nan], np.float32))).all()


@pytest.mark.parametrize("name, bound", [("erf", 1.5), ("erfc", 3.6), ("erf_inv", 3.2)])
def test_error_functions_single(name, bound):
    rng = np.random.default_rng(3)
    if name == "erf_inv":
        x = np.concatenate([span(-1, 1)(rng, 40_000), 1 - 10.0 ** rng.uniform(-7, -1, 10_000)])
    else:
        x = np.concatenate(
            [span(-6, 6)(rng, 40_000), span(-3, 11)(rng, 20_000), magnitudes(-30, 0)(rng, 5000)]
        )
    x = x.astype(np.float32)
    exact = {"erf": special.erf, "erfc": special.erfc, "erf_inv": special.erfinv}[name](x.astype(np.float64))
    assert ulp_error(run(name, x), exact).max() <= bound


@needs_extended
@pytest.mark.parametrize("name, bound", [("erf", 1.5), ("erfc", 3.6)])
def test_error_functions_double(name, bound):
    rng = np.random.default_rng(4)
    x = np.concatenate([span(-6, 6)(rng, 800), span(-3, 26)(rng, 800), magnitudes(-30, 0)(rng, 200)])
    assert ulp_error(run(name, x), by_mpmath(getattr(mpmath, name), x)).max() <= bound


GAMMA = {"lgamma": lambda t: mpmath.log(abs(mpmath.gamma(t))), "digamma": mpmath.digamma}


@needs_extended
@pytest.mark.parametrize("name, absolute", [("lgamma", 3e-15), ("digamma", 3e-15)])
@pytest.mark.one_in(2)
def test_gamma(name, absolute):
    rng = np.random.default_rng(8)
    x = np.concatenate(
        [rng.uniform(-10, 10, 1500), rng.uniform(10, 200, 300), 10.0 ** rng.uniform(-20, 5, 200)]
    )
    np.testing.assert_allclose(run(name, x), by_mpmath(GAMMA[name], x).astype("f8"), rtol=3e-15, atol=absolute)
    single = x.astype(np.float32)
    assert ulp_error(run(name, single), by_mpmath(GAMMA[name], single)).max() <= 0.51
    edges = np.array([0, -1, -2, np.inf, -np.inf, np.nan, 1, 2])
    expected = {
        "lgamma": [np.inf, np.inf, np.inf, np.inf, np.inf, np.nan, 0, 0],
        "digamma": [np.nan, np.nan, np.nan, np.inf, np.nan, np.nan, -0.5772156649015329, 0.42278433509846713],
    }
    np.testing.assert_allclose(run(name, edges), expected[name], rtol=1e-14)
    np.testing.assert_array_equal(run(name, x, lanes=1), run(name, x))


@needs_extended
def test_lgamma_next_to_its_zeros():
    """Of relative accuracy next to 1, 2 and its zeros between -3 and -2; exact to half a unit where it is large."""
    rng = np.random.default_rng(9)
    away = 10.0 ** rng.uniform(-16, -1, 300) * rng.choice([-1, 1], 300)
    positive = np.concatenate([1 + away, 2 + away, rng.uniform(0, 8, 500), [5e-324, 2.0**-1060, 2.0**-1022]])
    large = np.concatenate([np.arange(8.0, 172.0), 10.0 ** rng.uniform(1, 6, 200)])
    zeros = np.concatenate([zero + away / 8 for zero in (-2.4570247382208006, -2.7476826467274127)])
    for x, bound in [(positive, 4), (large, 0.8), (zeros, 60)]:
        assert ulp_error(run("lgamma", x), by_mpmath(GAMMA["lgamma"], x)).max() <= bound
    x = np.array([2.5e305, 2.6e305, 1.7e308, -5e-324])
    np.testing.assert_allclose(run("lgamma", x), [1.7555118602376452e308, np.inf, np.inf, 744.4400719213812], rtol=1e-15)


def test_erf_inv_double():
    """erf takes it back; in the tail erfc does."""
    rng = np.random.default_rng(5)
    x = np.concatenate([span(-0.9, 0.9)(rng, 5000), 1 - 10.0 ** rng.uniform(-15.5, -1, 5000)])
    y = run("erf_inv", x)
    middle = np.abs(x) < 0.9
    np.testing.assert_allclose(special.erf(y[middle]), x[middle], rtol=1e-15)
    # d log erfc / dy is about 2 y, so that an ulp of y shows as 2 y^2 ulp of erfc.
    np.testing.assert_allclose(special.erfc(y[~middle]), 1 - x[~middle], rtol=8e-14)


@needs_extended
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pow(dtype):
    rng = np.random.default_rng(6)
    x = np.concatenate(
        [
            10.0 ** rng.uniform(-5, 5, 40_000),
            10.0 ** rng.uniform(-30, 30, 40_000),
            1 + rng.normal(0, 1e-3, 20_000),
        ]
    ).astype(dtype)
    y = np.concatenate([rng.normal(0, 3, 80_000), rng.normal(0, 1e4, 20_000)]).astype(dtype)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
        got = run("pow", x, y)
    assert ulp_error(got, exact).max() <= 1.6
    np.testing.assert_array_equal(run("pow", x, y, lanes=1), got)


@needs_extended
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_atan2(dtype):
    rng = np.random.default_rng(7)
    y, x = (
        np.concatenate([rng.normal(0, 1, 40_000), magnitudes(-30, 30)(rng, 40_000)]).astype(dtype)
        for _ in range(2)
    )
    assert (
        ulp_error(run("atan2", y, x), np.arctan2(y.astype(np.longdouble), x.astype(np.longdouble))).max() <= 2
    )
