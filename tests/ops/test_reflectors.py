"""Householder reflections against LAPACK as SciPy calls it, in programs that call no Python."""

import numpy as np
import pytest
from scipy.linalg import lapack

import mpijax as jax
from mpijax.lax import linalg
from mpijax.ops.linalg.orthogonal import geqp3, geqrf

DTYPES = ("float32", "float64", "complex64", "complex128")
SIZES = [(1, 1), (5, 3), (3, 5), (40, 40), (200, 140), (0, 3), (3, 0)]


def matrices(dtype, *shape):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if dtype.startswith("c") else x).astype(dtype)


def named(name, dtype):
    prefix = dict(zip(DTYPES, "sdcz", strict=True))[dtype]
    return getattr(lapack, prefix + (name.replace("or", "un", 1) if dtype.startswith("c") else name))


def assert_close(x, y):
    assert x.dtype == y.dtype and x.shape == y.shape
    tolerance = 1e-4 if x.dtype in (np.float32, np.complex64) else 1e-11
    np.testing.assert_allclose(x, y, tolerance, tolerance)


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_are_those_of_lapack(dtype):
    for m, n in SIZES:
        x = matrices(dtype, 2, m, n)
        factors, taus = map(np.asarray, geqrf(x))
        assert taus.shape == (2, min(m, n)) and taus.dtype == x.dtype
        for k in range(2 if x.size else 0):
            expected = named("geqrf", dtype)(x[k])
            assert_close(factors[k], expected[0])
            assert_close(taus[k], expected[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.one_in(2)
def test_products_are_those_of_lapack(dtype):
    for m, n, k in [(1, 1, 1), (5, 3, 3), (5, 3, 2), (5, 3, 0), (60, 50, 50), (4, 0, 0)]:
        a, c = matrices(dtype, 2, m, n), matrices(dtype, 2, m, 4)
        factors, taus = (np.asarray(x) for x in geqrf(a))
        taus = taus[:, :k]
        products = np.asarray(linalg.householder_product(factors, taus))
        for i in range(2 if a.size else 0):
            expected = named("orgqr", dtype)(factors[i], taus[i])[0] if k else np.eye(m, n, dtype=dtype)
            assert_close(products[i], expected)
        for left in (True, False):
            for transpose in (True, False):
                operand = c if left else np.ascontiguousarray(c.swapaxes(1, 2))
                out = np.asarray(linalg.ormqr(factors, taus, operand, left=left, transpose=transpose))
                whole = np.zeros((2, m, m), dtype)
                whole[:, :, :k] = factors[:, :, :k]
                q = np.asarray(linalg.householder_product(whole, taus))
                q = q.conj().swapaxes(1, 2) if transpose else q
                assert_close(out, q @ operand if left else operand @ q)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("integers", ("int8", "int16", "int32", "int64"))
def test_exchanges_leave_the_columns_that_go_first(dtype, integers):
    a = matrices(dtype, 3, 6, 5)
    first = np.array([[0, 0, 0, 0, 0], [0, 1, 0, 0, 1], [1, 1, 1, 1, 1]], integers)
    factors, order, taus = map(np.asarray, geqp3(a, first))
    assert order.dtype == integers and order[1][:2].tolist() == [2, 5] and order[2].tolist() == [1, 2, 3, 4, 5]
    for k in range(3):
        assert_close(factors[k], np.asarray(geqrf(a[k][:, order[k] - 1])[0]))
    expected = named("geqp3", dtype)(a[0])
    assert_close(factors[0], expected[0])
    np.testing.assert_array_equal(order[0], expected[1])
    assert_close(taus[0], expected[2])
    assert geqp3(a[:, :0], first)[1].tolist() == first.tolist()


def test_loops_that_factor_call_no_python():
    def turn(i, x):
        factors, taus = geqrf(x)
        return linalg.ormqr(factors, taus, linalg.householder_product(factors, taus), transpose=True) + x

    x = matrices("float64", 4, 3)
    compiled = jax.jit(lambda x: jax.lax.fori_loop(0, 3, turn, x)).lower(x).compile()
    text = compiled.as_text()
    assert " host " not in text and all(f"native {n}" in text for n in ("geqrf", "ormqr", "householder_product"))
    assert_close(np.asarray(compiled(x)), x + 3 * np.eye(4, 3))
    stacked = jax.jit(jax.vmap(lambda x: jax.lax.fori_loop(0, 3, turn, x)))(np.stack([x, 2 * x]))
    assert_close(np.asarray(stacked[1]), 2 * x + 3 * np.eye(4, 3))


def test_factors_that_no_column_has_are_refused():
    with pytest.raises(ValueError, match="at most min.* reflections from a matrix of shape .*, got 3 factors"):
        linalg.ormqr(np.ones((4, 2)), np.ones(3), np.ones((4, 1)))
    with pytest.raises(ValueError, match="one integer for each column of a. Got .*jpvt shape"):
        geqp3(np.ones((4, 2)), np.ones(3, np.int32))
