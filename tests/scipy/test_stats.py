"""Distributions beside SciPy's, statistics of samples, density estimates."""

import importlib

import numpy as np
import pytest
import scipy.stats as expected
from oracle import OURS, THEIRS
from quickly import one_in

import mpijax
from mpijax.scipy import stats

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=20) * 2, [0.0, 1.0, -1.0, 3.0, 1e-8, 40.0, -40.0]])
POSITIVE = abs(X) + 0.01
UNIT = np.concatenate([RNG.uniform(size=24), [0.0, 1.0, 0.5]])
COUNTS = np.concatenate([np.arange(-2, 24), [3]]).astype(float)
A, B = (RNG.uniform(0.5, 4, size=27) for _ in range(2))
P = RNG.uniform(0.05, 0.95, size=27)
Q = np.concatenate([RNG.uniform(0.01, 0.99, size=25), [0.5, 0.25]])

# distribution: (functions of values, values, parameters); quantiles of those that have them are tested too.
CONTINUOUS = "logpdf pdf"
ALL = "logpdf pdf cdf logcdf sf logsf"
TABLE = [
    ("bernoulli", "logpmf pmf", np.round(UNIT * 3) - 1, (P,)),
    ("bernoulli", "cdf", X, (P,)),
    ("beta", ALL, np.clip(UNIT, 0.001, 0.999) * 2 + 0.5, (A, B, 0.5, 2.0)),
    ("beta", ALL, X, (A + 1, B + 1)),
    ("betabinom", "logpmf pmf", COUNTS, (12.0, A, B)),
    ("binom", "logpmf pmf", COUNTS, (12.0, P)),
    ("cauchy", ALL, X, (0.3, A)),
    ("chi2", ALL, X, (A * 3, -0.5, B)),
    ("expon", ALL, X, (-0.5, A)),
    ("gamma", ALL, X, (A, -0.4, B)),
    ("gennorm", "logpdf pdf cdf", X[:20], (A,)),
    ("geom", "logpmf pmf", COUNTS, (P, 1)),
    ("gumbel_l", ALL, X[:25], (0.2, A)),
    ("gumbel_r", ALL, X[:25], (0.2, A)),
    ("laplace", "logpdf pdf cdf", X, (0.2, A)),
    ("logistic", "logpdf pdf cdf sf", X, (0.2, A)),
    ("nbinom", "logpmf pmf", COUNTS, (A * 3, P, 1)),
    ("norm", ALL, X, (0.3, A)),
    ("pareto", ALL, POSITIVE * 3, (A, -0.2, B)),
    ("poisson", "logpmf pmf cdf", COUNTS, (A * 3, 1)),
    ("t", CONTINUOUS, X, (A * 2, 0.1, B)),
    ("truncnorm", ALL, X[:24], (-A, B, 0.1, 1.5)),
    ("truncnorm", ALL, A + 4, (np.full(27, 4.0), np.full(27, 9.0))),
    ("uniform", "logpdf pdf cdf", X, (-0.7, A)),
    ("vonmises", CONTINUOUS, X[:24], (A * 2,)),
    ("wrapcauchy", CONTINUOUS, UNIT * 6, (P,)),
    ("bernoulli", "ppf", Q, (P,)),
    ("cauchy", "ppf isf", Q, (0.3, A)),
    ("expon", "ppf", Q, (0.3, A)),
    ("gumbel_l", "ppf", Q, (0.3, A)),
    ("gumbel_r", "ppf", Q, (0.3, A)),
    ("logistic", "ppf isf", Q, (0.3, A)),
    ("norm", "ppf isf", Q, (0.3, 2.0)),
    ("pareto", "ppf", Q, (A, 0.3, B)),
    ("uniform", "ppf", Q, (0.3, A)),
]
CASES = [(name, fun, x, args) for name, functions, x, args in TABLE for fun in functions.split()]


@pytest.mark.parametrize(("name", "fun", "x", "args"), one_in(3, CASES, rows=True), ids=[f"{c[0]}.{c[1]}" for c in CASES])
@pytest.mark.one_in(4)
def test_values_are_scipys(name, fun, x, args):
    args = [np.broadcast_to(a, (27,))[: len(x)] for a in args]
    with np.errstate(all="ignore"):
        theirs = getattr(getattr(expected, name), fun)(x, *args)
    function = getattr(getattr(stats, name), fun)
    assert function.__name__ == fun and function.__doc__
    with mpijax.enable_x64():
        ours = mpijax.jit(function)(x, *args)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    narrow = function(*(np.float32(v) for v in (x, *args)))
    assert narrow.dtype == np.float32
    finite = np.isfinite(theirs) & (abs(theirs) < 1e6)
    np.testing.assert_allclose(narrow[finite], theirs[finite], rtol=5e-4, atol=2e-5)


def test_one_call_of_each_kind_maps_and_differentiates():
    slope = lambda fun, *args: float(mpijax.jit(mpijax.grad(fun))(*args))
    assert slope(stats.norm.logpdf, 0.7) == pytest.approx(-0.7)
    assert slope(stats.norm.logcdf, -30.0) == pytest.approx(30.0333, rel=1e-4)
    assert slope(stats.norm.ppf, 0.5) == pytest.approx(np.sqrt(2 * np.pi), rel=1e-5)
    assert slope(stats.gamma.logpdf, -1.0, 2.0) == 0
    assert slope(stats.poisson.logpmf, 3.0, 2.0) != 0
    assert slope(lambda mu: stats.poisson.logpmf(3, mu), 2.0) == pytest.approx(0.5)
    assert slope(stats.truncnorm.logpdf, 0.3, -1.0, 1.0) == pytest.approx(-0.3)
    mapped = mpijax.vmap(stats.t.logpdf, (0, None))(X, 3.0)
    np.testing.assert_allclose(mapped, stats.t.logpdf(X, 3.0), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("mu", [-1.0, 0.0, 0.5, 5.0, 50.0, 200.0])
@pytest.mark.one_in(2)
def test_poisson_entropy(mu):
    np.testing.assert_allclose(stats.poisson.entropy(mu), expected.poisson.entropy(mu), rtol=1e-4, atol=1e-6)
    assert stats.poisson.entropy(np.full((2, 1), mu), np.zeros(3)).shape == (2, 3)


@pytest.mark.parametrize("columns", [3, 2])
def test_dirichlet(columns):
    alpha, x = np.array([1.5, 2.0, 0.7]), RNG.dirichlet([1, 2, 3], size=5)
    ours = stats.dirichlet.logpdf(x.T[:columns], alpha)
    np.testing.assert_allclose(ours, [expected.dirichlet.logpdf(row, alpha) for row in x], rtol=1e-4)
    assert float(stats.dirichlet.logpdf(np.array([0.5, 0.6, 0.1]), alpha)) == -np.inf


def test_multinomial():
    x, p = np.array([[1, 2, 3], [3, 0, 3]]), np.array([0.2, 0.3, 0.5])
    each = mpijax.vmap(lambda x: stats.multinomial.logpmf(x, 6, p))(x)
    np.testing.assert_allclose(each, expected.multinomial.logpmf(x, 6, p), rtol=1e-5)
    assert float(stats.multinomial.pmf(x[0], 7, p)) == 0


@pytest.mark.parametrize("shape", [(), (4,), (2, 4)])
def test_multivariate_normal(shape):
    mean, root = RNG.normal(size=3), RNG.normal(size=(3, 3))
    cov, x = root @ root.T + np.eye(3), RNG.normal(size=(*shape, 3))
    for ours, theirs in ((cov, cov), (2.0, 2 * np.eye(3))):
        value = stats.multivariate_normal.logpdf(x, mean, ours)
        np.testing.assert_allclose(value, expected.multivariate_normal.logpdf(x, mean, theirs), rtol=1e-4)
    one = stats.multivariate_normal.pdf(x, 0.5, 2.0)
    np.testing.assert_allclose(one, expected.norm.pdf(x, 0.5, np.sqrt(2)), rtol=1e-4)
    slope = mpijax.grad(lambda c: stats.multivariate_normal.logpdf(x, mean, c).sum())(cov.astype(np.float32))
    assert np.isfinite(slope).all() and np.any(slope != 0)


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.one_in(3)
def test_mode(axis, keepdims):
    x = RNG.integers(0, 4, size=(7, 5))
    ours, theirs = stats.mode(x, axis, keepdims=keepdims), expected.mode(x, axis, keepdims=keepdims)
    np.testing.assert_array_equal(ours.mode, theirs.mode)
    np.testing.assert_array_equal(ours.count, theirs.count)
    nan = stats.mode(np.array([1.0, np.nan, np.nan]))
    assert np.isnan(nan.mode) and nan.count == 2
    assert stats.mode(np.zeros((0, 2))).mode.shape == (2,)


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.one_in(3)
def test_rankdata(method, axis):
    x = RNG.integers(0, 4, size=(7, 5))
    ours = mpijax.jit(lambda x: stats.rankdata(x, method, axis=axis))(x)
    np.testing.assert_array_equal(ours, expected.rankdata(x, method, axis=axis))
    assert np.isnan(stats.rankdata(np.array([1.0, np.nan]), method)).all()


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_sem(axis):
    x = RNG.normal(size=(4, 5))
    np.testing.assert_allclose(stats.sem(x, axis), expected.sem(x, axis), rtol=1e-5)
    x[0, 1] = np.nan
    ours, theirs = (s.sem(x, axis, nan_policy="omit") for s in (stats, expected))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


# ---------------------------------------------------------------- density estimates


@pytest.mark.sweep
@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("method", [None, "silverman", 0.4, lambda kde: 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.one_in(2)
def test_kde(dimension, method, weighted):
    data = RNG.normal(size=(dimension, 30))
    weights = RNG.uniform(0.1, 1, size=30) if weighted else None
    points = RNG.normal(size=(dimension, 7))
    ours, theirs = (s.gaussian_kde(data, method, weights) for s in (stats, expected))
    np.testing.assert_allclose(ours.covariance, theirs.covariance, rtol=1e-4)
    np.testing.assert_allclose(ours(points), theirs(points), rtol=2e-3)
    with OURS.numpy_rank_promotion("raise"):
        logs = mpijax.jit(lambda kde, p: kde.logpdf(p))(ours, points)
    np.testing.assert_allclose(logs, theirs.logpdf(points), rtol=2e-3)
    mean, cov = np.zeros(dimension), np.eye(dimension)
    np.testing.assert_allclose(ours.integrate_gaussian(mean, cov), theirs.integrate_gaussian(mean, cov), rtol=1e-3)
    np.testing.assert_allclose(ours.integrate_kde(ours), theirs.integrate_kde(theirs), rtol=1e-3)
    if dimension == 1:
        np.testing.assert_allclose(ours.integrate_box_1d(-1, 1), theirs.integrate_box_1d(-1, 1), rtol=1e-4)
    assert (ours.d, ours.n) == (dimension, 30)


def test_samples_of_a_kde_are_jaxs():
    data = RNG.normal(size=(2, 20)).astype(np.float32)
    ours, theirs = (J.scipy.stats.gaussian_kde(data).resample(J.random.key(0), (3,)) for J in (OURS, THEIRS))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    with pytest.raises(AttributeError, match="gaussian_kde is immutable"):
        stats.gaussian_kde(data).neff = 1


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.gaussian_kde(np.ones(1)),
        lambda s: s.gaussian_kde(np.ones(3) * 1j),
        lambda s: s.gaussian_kde(np.arange(4.0), "wide"),
        lambda s: s.gaussian_kde(np.arange(4.0), weights=np.ones(3)),
        lambda s: s.gaussian_kde(np.arange(4.0)).pdf(np.ones((2, 3))),
        lambda s: s.gaussian_kde(np.arange(4.0)).integrate_box(0, 1),
        lambda s: s.gaussian_kde(np.arange(4.0)).set_bandwidth(0.1),
        lambda s: s.mode(np.arange(3), nan_policy="ignore"),
        lambda s: s.mode(np.arange(3), nan_policy="omit"),
        lambda s: s.rankdata(np.arange(3), "first"),
        lambda s: s.rankdata(np.arange(3), nan_policy="raise"),
        lambda s: s.sem(np.arange(3), nan_policy="raise"),
        lambda s: s.multinomial.logpmf(np.ones(2), 2, np.ones(2) / 2),
        lambda s: s.multivariate_normal.logpdf(np.ones(2), np.ones(2), np.ones(3)),
        lambda s: s.multivariate_normal.logpdf(np.ones(2), np.ones(2), np.eye(2), allow_singular=True),
        lambda s: s.dirichlet.logpdf(np.ones(2), np.ones((2, 2))),
        lambda s: s.dirichlet.logpdf(np.ones(4), np.ones(2)),
    ],
)
@pytest.mark.one_in(3)
def test_errors_are_jaxs(call):
    kinds = []
    for library in (THEIRS, OURS):
        with pytest.raises(Exception) as caught:
            call(library.scipy.stats)
        kinds.append(caught.type.__name__)
    assert kinds[0] == kinds[1]


def test_all_of_jaxs_names_are_there():
    public = lambda module: {n for n in dir(module) if not n.startswith("_")}
    assert public(importlib.import_module("jax.scipy.stats")) - public(stats) == set()
    for name in public(THEIRS.scipy.stats) & {c[0] for c in CASES}:
        assert public(importlib.import_module(f"jax.scipy.stats.{name}")) - public(getattr(stats, name)) == set()
