"""Quantiles, medians, covariances, histograms."""

import numpy as np
import pytest
from numpy_oracle import check_error, check_jax, check_numpy, rows
from oracle import OURS, sample
from quickly import one_in

X = sample(3, 7)
GAPS = np.array([1, np.nan, 3, 2, np.nan, -1, 0.5], np.float32)
COUNTS = np.array([3, 1, 0, 3, 5, 1, 1], np.int32)
METHODS = ("linear", "lower", "higher", "midpoint", "inverted_cdf")


@pytest.mark.sweep
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("function", ["quantile", "nanquantile"])
@pytest.mark.one_in(2)
def test_quantiles(function, method):
    # Not at shares at which the position is an integer but for rounding.
    check_numpy(f"n.{function}(x, 0.4, axis=1, method='{method}')", x=X)
    check_numpy(f"n.{function}(x, n.array([0.23, 0.9]), axis=(0, 2), keepdims=True, method='{method}')", x=X[None])
    check_numpy(f"n.{function}(x, n.array([0.0, 0.3, 1.0]), method='{method}')", x=GAPS)


def test_nearest():
    check_jax("n.quantile(x, n.array([0.05, 0.5, 0.7]), axis=1, method='nearest')", x=X)


QUANTILES = rows("""
    n.percentile(x, 30)
    n.percentile(x, n.array([10, 50]), axis=0, keepdims=True)
    n.nanpercentile(x, 30.0, axis=-1)
    n.median(x)
    n.median(x, axis=(0, 1), keepdims=True)
    n.nanmedian(x, axis=1)
    n.median(x.astype(int))
    n.median(x.astype("float16"), axis=1)
    n.quantile(x, 0.3, weights=abs(x), method="inverted_cdf")
    n.quantile(x, n.array([0.3, 0.8]), axis=1, weights=n.arange(7.0), method="inverted_cdf")
    n.median(n.where(x > 1, n.nan, x), axis=0)
    n.nanmedian(x * n.nan)
""")


@pytest.mark.parametrize("source", QUANTILES)
@pytest.mark.one_in(3)
def test_percentiles_and_medians(source):
    check_numpy(source, x=X)


ERRORS = rows("""
    n.median(x + 1j)
    n.quantile(x, 0)
    n.quantile(x, x)
    n.quantile(x, 0.5, axis=(0, 0))
    n.quantile(x, 0.5, axis=4)
    n.quantile(x, 0.5, method="bogus")
    n.quantile(x, 0.3, weights=x)
    n.quantile(x, 0.3, weights=x * 1j, method="inverted_cdf")
    n.quantile(x, 0.3, weights=n.arange(7.0), method="inverted_cdf")
    n.quantile(x, 0.3, axis=0, weights=n.arange(7.0), method="inverted_cdf")
    n.quantile(x, 0.3, out=x)
    n.median(x[:0])
    n.nanmedian(x[:0], axis=0)
    n.nanquantile(x[:0], 0.5)
    n.median(x, overwrite_input=True)
    n.cov(x, fweights=n.arange(7.0))
    n.cov(x, fweights=n.arange(3))
    n.cov(x, aweights=x)
    n.cov(x[None])
    n.cov(x, x[None])
    n.cov(x, dtype=int)
    n.corrcoef(x, dtype="int8")
""")


@pytest.mark.parametrize("source", ERRORS)
def test_errors(source):
    check_error(source, x=X)


COVARIANCES = rows("""
    n.cov(x)
    n.cov(x, x * 2)
    n.cov(x, rowvar=False)
    n.cov(x, bias=True)
    n.cov(x, ddof=0)
    n.cov(x[0])
    n.cov(x, fweights=n.arange(7))
    n.cov(x, aweights=n.arange(7.0))
    n.cov(x, fweights=n.arange(7), aweights=n.arange(7.0))
    n.cov(x + 1j * x[::-1])
    n.cov(x.astype(int))
    n.corrcoef(x)
    n.corrcoef(x, rowvar=False)
    n.corrcoef(x[0])
    n.corrcoef(x + 1j * x[::-1])
""")


@pytest.mark.parametrize("source", one_in(3, COVARIANCES))
@pytest.mark.one_in(2)
def test_covariances(source):
    check_numpy(source, x=X, atol=1e-5)


def test_covariances_of_nothing():
    check_jax("n.cov(x)", x=X[:0])
    check_jax("n.cov(x)", x=X[:, :0])


def test_quantiles_have_gradients():
    for q, expected in ((0.5, [0, 0, 1]), (0.75, [0.5, 0, 0.5])):
        slope = OURS.grad(lambda x, q=q: OURS.numpy.quantile(x, q))(np.array([7.0, -1.0, 3.0], np.float32))
        np.testing.assert_allclose(slope, expected)


# Values under jit need lengths that are given, so that only some cases can be jitted.
HISTOGRAMS = rows("""
    n.histogram(x)
    n.histogram(x, bins=4, range=(0, 5))
    n.histogram(x, bins=n.array([0, 1, 3, 6]))
    n.histogram(x, 4, weights=x * 1.0, density=True)
    n.histogram_bin_edges(x, 5)
    n.histogram2d(x, x[::-1], [n.array([0.0, 2, 6]), n.array([0.0, 1, 7])], density=True)
    n.histogram2d(x, x[::-1], 3)
    n.histogramdd(n.stack([x, x * 2], 1), (2, 3), range=((0, 3), (0, 8)), weights=x * 1.0)
    n.histogramdd(n.stack([x, x * 2, x % 3], 1), 2)
""")


@pytest.mark.parametrize("source", one_in(3, HISTOGRAMS))
def test_histograms(source):
    check_numpy(source, x=COUNTS)


@pytest.mark.parametrize("source", ["n.bincount(x)", "n.bincount(x, weights=x * 0.5)", "n.bincount(x, minlength=9)"])
def test_bincount(source):
    check_numpy(source, x=COUNTS, jitted=False)


@pytest.mark.parametrize(
    "source", ["n.bincount(x, length=3)", "n.bincount(x - 2, length=4)", "n.bincount(x > 1, length=2)"]
)
def test_bincount_of_given_length(source):
    check_jax(source, x=COUNTS)


COUNT_ERRORS = rows("""
    n.bincount(x * 1.0)
    n.bincount(x[None])
    n.bincount(x, x[:2])
    J.jit(n.bincount)(x)
    n.histogram(x, weights=x[:2])
    n.histogram(x, "auto")
    n.histogram_bin_edges(x, 5, range=(1, 2, 3))
    n.histogramdd(n.stack([x, x * 2], 1), (2, 3, 4))
    n.histogramdd(n.stack([x, x * 2], 1), 2, range=((0, 3),))
    n.histogramdd(n.stack([x, x * 2], 1), 2, weights=x[:2])
""")


@pytest.mark.parametrize("source", COUNT_ERRORS)
@pytest.mark.one_in(3)
def test_errors_of_counting(source):
    check_error(source, x=COUNTS)
