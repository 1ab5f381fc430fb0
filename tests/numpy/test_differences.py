"""Differences, integrals, interpolation, windows, cross products."""

import numpy as np
import pytest
from numpy_oracle import check_error, check_jax, check_numpy, rows
from oracle import OURS, check, sample
from quickly import one_in

X = sample(3, 7)

NUMPYS = rows("""
    n.diff(x)
    n.diff(x, 2, 0)
    n.diff(x, 0)
    n.diff(x, n=9)
    n.diff(x > 0)
    n.diff(x, prepend=1, append=x[:, :1])
    n.ediff1d(x)
    n.ediff1d(x, to_end=1, to_begin=x[0])
    n.gradient(x)
    n.gradient(x, 2.0)
    n.gradient(x, 2.0, n.arange(7.0) ** 2)
    n.gradient(x, axis=1)
    n.gradient(x, n.arange(3.0) ** 2, axis=0)
    n.gradient(x.astype(int), axis=(0, 1))
    n.unwrap(x * 5)
    n.unwrap(x * 5, axis=0, discont=4.0)
    n.unwrap((x * 4).astype(int), period=4)
    n.unwrap(x[:, :0])
    n.interp(x, n.arange(5.0), n.arange(5.0) ** 2)
    n.interp(x, n.arange(5.0), n.arange(5.0) ** 2, left=-1.0, right=9)
    n.interp(x, n.array([3.0, 1, 2]), n.arange(3.0), period=2.5)
    n.interp(x.astype(int), n.arange(5), n.arange(5) * 1j)
    n.interp(2.0, n.arange(5), n.arange(5))
    n.cross(x[:, :3], x[:, 3:6])
    n.cross(x[:, :3], x[:, 3:6], axis=0)
    n.cross(x[0, :3], x[:, 3:6], axisc=0)
    n.i0(x)
""")


@pytest.mark.parametrize("source", one_in(3, NUMPYS))
@pytest.mark.one_in(3)
def test_values(source):
    check_numpy(source, x=X)


JAXS = rows("""
    n.interp(x, n.arange(5.0), n.arange(5.0) ** 2, left="extrapolate", right="extrapolate")
    n.cross(x[:, :2], x[:, 3:6])
    n.cross(x[:, :2], x[:, 3:5])
    n.diff((x > 0).astype("uint8"), 2)
""")


@pytest.mark.parametrize("source", JAXS)
@pytest.mark.one_in(2)
def test_values_numpy_does_not_have(source):
    check_jax(source, x=X)


ERRORS = rows("""
    n.diff(x, -1)
    n.diff(x, axis=5)
    n.diff(x[0, 0])
    n.diff([1, 2])
    n.gradient(x, 1.0, 2.0, 3.0)
    n.gradient(x[:1])
    n.gradient(x, edge_order=2)
    n.gradient(x, x)
    n.gradient(x, n.arange(3.0), axis=1)
    n.unwrap(x + 1j)
    n.interp(x, n.arange(5.0), n.arange(5.0) ** 2, left="a")
    n.interp(x + 1j, n.arange(5.0), n.arange(5.0))
    n.interp(x, n.arange(5.0), n.arange(4.0))
    n.interp(x, n.arange(5.0), n.arange(5.0), period=x)
    n.cross(x, x)
    n.i0(x + 1j)
""")


@pytest.mark.parametrize("source", ERRORS)
def test_errors(source):
    check_error(source, x=X)


@pytest.mark.parametrize(
    "arguments", [{}, {"dx": 0.5, "axis": 0}, {"x": np.arange(7.0) ** 2}, {"x": X * 2}, {"dx": np.ones(6)}]
)
def test_trapezoid(arguments):
    expected = getattr(np, "trapezoid", getattr(np, "trapz", None))(X, **arguments)
    found = OURS.numpy.trapezoid(X, **arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found.dtype == np.float32
    assert OURS.numpy.trapezoid(np.arange(4)).dtype == np.float32


@pytest.mark.parametrize("window", ["bartlett", "blackman", "hamming", "hanning"])
@pytest.mark.parametrize("m", [0, 1, 2, 7])
def test_windows(window, m):
    found = getattr(OURS.numpy, window)(m)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, getattr(np, window)(m), atol=1e-6)


def test_kaiser():
    np.testing.assert_allclose(OURS.numpy.kaiser(7, 3.5), np.kaiser(7, 3.5), rtol=1e-5)
    with pytest.raises(OURS.errors.ConcretizationTypeError, match=r"M argument of jnp\.hanning"):
        OURS.jit(OURS.numpy.hanning)(3)


def test_slope_of_i0_is_odd():
    points = np.array([0.0, 1.0, -2.0], np.float32)
    check(lambda J: J.grad(lambda x: J.numpy.i0(x).sum()), points, jaxpr=False, jitted=False, rtol=1e-6)


def test_gradients_of_interpolation():
    def slope(left):
        f = lambda x: OURS.numpy.interp(x, np.arange(3.0), np.array([0.0, 2.0, 1.0]), left=left)
        return [float(OURS.grad(f)(x)) for x in (-1.0, 0.5, 1.5, 3.0)]

    assert slope(None) == [0, 2, -1, 0]
    assert slope("extrapolate") == [2, 2, -1, 0]
