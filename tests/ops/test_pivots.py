"""lu_pivots_to_permutation: exchanges of rows, as machine code of the program that solves with them."""

import numpy as np
import pytest

import mpijax as jax
from mpijax.lax import linalg

SWAPS = np.random.default_rng(0)


def exchanged(pivots, size):
    order = np.arange(size)
    for i, j in enumerate(pivots):
        order[[i, j]] = order[[j, i]]
    return order


@pytest.mark.parametrize(("stack", "few", "size"), [((), 3, 5), ((2, 3), 4, 4), ((2,), 1, 1), ((4,), 0, 3), ((0,), 2, 3)])
def test_the_order_is_that_of_the_exchanges(stack, few, size):
    pivots = SWAPS.integers(0, size, (*stack, few), np.int32)
    order = linalg.lu_pivots_to_permutation(pivots, size)
    expected = [exchanged(row, size) for row in pivots.reshape(-1, few)] if pivots.size else [np.arange(size)] * 4
    assert order.dtype == np.int32 and order.shape == (*stack, size)
    if order.size:
        np.testing.assert_array_equal(np.reshape(order, (-1, size)), expected)


def test_pivots_that_are_no_rows_exchange_nothing():
    pivots = np.array([7, -1, 0], np.int32)
    f = jax.jit(lambda p: linalg.lu_pivots_to_permutation(p, 3))
    assert f(pivots).tolist() == [2, 1, 0] == linalg.lu_pivots_to_permutation(pivots, 3).tolist()


def test_a_loop_that_solves_calls_no_python():
    """As in implicit steps of differential equations: one factorization for many right-hand sides."""

    def solve(a, b):
        factors = jax.scipy.linalg.lu_factor(a)
        return jax.lax.fori_loop(0, 5, lambda i, x: jax.scipy.linalg.lu_solve(factors, x), b)

    a, b = np.array([[1.0, 4, 2], [5, 1, 1], [0, 2, 3]], np.float32), np.ones(3, np.float32)
    compiled = jax.jit(solve).lower(a, b).compile()
    assert " host " not in compiled.as_text() and "native lu_pivots_to_permutation" in compiled.as_text()
    np.testing.assert_allclose(compiled(a, b), np.linalg.matrix_power(np.linalg.inv(a), 5) @ b, rtol=1e-3)
