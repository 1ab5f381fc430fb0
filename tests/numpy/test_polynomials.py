"""Polynomials, and cutting zeros off arrays."""

import numpy as np
import pytest
from numpy_oracle import check_error, check_jax, check_numpy, rows
from oracle import OURS, sample

X = sample(9, seed=3)[:4]

NUMPYS = rows("""
    n.vander(x)
    n.vander(x, 2, True)
    n.vander(x.astype(int), 3)
    n.polyval(x, x)
    n.polyval(x, 2.0)
    n.polyval(x.astype(int), 3)
    n.polyadd(x, x[:2])
    n.polyadd(x[:2], x)
    n.polysub(x[:2], x)
    n.polymul(x, x[:2])
    n.polyint(x)
    n.polyint(x, 3)
    n.polyint(x, 2, n.array([1.0, 2.0]))
    n.polyint(x, 0)
    n.polyder(x)
    n.polyder(x, 2)
    n.poly(x)
""")


@pytest.mark.parametrize("source", NUMPYS)
@pytest.mark.one_in(3)
def test_values(source):
    check_numpy(source, x=X)


@pytest.mark.parametrize("source", ["n.polyval(n.ones((3, 4)), x)", "n.polydiv(x, x[2:])", "n.polydiv(x[2:], x)"])
def test_values_as_jaxs(source):
    check_jax(source, x=X)


TRIMS = rows("""
    n.trim_zeros(x)
    n.trim_zeros(x, "f")
    n.trim_zeros(x, "b")
    n.trim_zeros(x * 0)
""")


@pytest.mark.parametrize("source", TRIMS)
def test_trim_zeros(source):
    check_numpy(source, jitted=False, x=np.array([0, 0, 1, 0, 2, 0]))


def test_trim_zeros_of_matrices():
    x = np.array([[0, 0, 0], [0, 1.0, 0]], np.float32)
    for axis, shape in ((None, (1, 1)), (0, (1, 3)), (1, (2, 1))):
        assert OURS.numpy.trim_zeros(x, axis=axis).shape == shape


ERRORS = rows("""
    n.vander(x[None])
    n.vander(x, -1)
    n.polyint(x, -1)
    n.polyint(x, 2, n.array([1.0, 2.0, 3.0]))
    n.polyder(x, -1)
    n.poly(n.ones((2, 3)))
    n.roots(x[None])
    n.polyfit(x, x, -1)
    n.polyfit(x[None], x, 1)
    n.polyfit(x, x[:2], 1)
    n.polyfit(x[:0], x[:0], 1)
    J.jit(n.trim_zeros)(x)
    J.jit(n.roots)(x)
""")


@pytest.mark.parametrize("source", ERRORS)
def test_errors(source):
    check_error(source, x=X)


def test_division_leaves_a_remainder():
    quotient, rest = OURS.numpy.polydiv(np.array([1.0, 3, 2]), np.array([1.0, 1]), trim_leading_zeros=True)
    np.testing.assert_array_equal(quotient, [1, 2])
    assert rest.shape == (0,)


@pytest.mark.parametrize("p", [[1.0, -3, 2], [0, 0, 2.0, 0, -8], [1.0, 0, 1], [3.0], [0.0, 0]])
def test_roots(p):
    p = np.array(p, np.float32)
    found, expected = np.asarray(OURS.numpy.roots(p)), np.roots(p)
    assert found.dtype == np.complex64 and found.shape == expected.shape
    np.testing.assert_allclose(np.sort_complex(np.round(found, 4)), np.sort_complex(expected), atol=1e-3)


def test_roots_under_jit_mark_what_leading_zeros_take_away():
    found = np.asarray(OURS.jit(lambda p: OURS.numpy.roots(p, strip_zeros=False))(np.array([0, 1, -3, 2], np.float32)))
    np.testing.assert_allclose(np.sort(found[:2].real), [1, 2], rtol=1e-4)
    assert np.isnan(found[2])


def test_fits():
    x = np.arange(6, dtype=np.float32)
    y = 2 * x**2 - x + 3 + np.array([0.1, -0.1, 0.2, 0, -0.2, 0.1], np.float32)
    w = np.arange(1, 7, dtype=np.float32)
    for how in ({}, {"w": w}):
        np.testing.assert_allclose(OURS.numpy.polyfit(x, y, 2, **how), np.polyfit(x, y, 2, **how), rtol=1e-2, atol=1e-2)
    two = OURS.numpy.polyfit(x, np.stack([y, 2 * y], 1), 2)
    np.testing.assert_allclose(two[:, 1], 2 * two[:, 0], rtol=1e-3)
    _, covariance = OURS.numpy.polyfit(x, y, 2, cov=True)
    np.testing.assert_allclose(covariance, np.polyfit(x, y, 2, cov=True)[1], rtol=2e-2, atol=1e-3)
    assert len(OURS.numpy.polyfit(x, y, 2, full=True)) == 5
