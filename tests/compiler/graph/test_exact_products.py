"""Products of integers of 8 bits, which BLAS takes as floats: exact, for the largest sums too."""

import numpy as np
import pytest

import mpijax
import mpijax.numpy as jnp
from mpijax import lax

SIZES = [(64, 64, 64), (100, 1024, 33), (50, 1500, 70), (16, 5000, 40)]


def extremes(dtype, shape, seed: int) -> np.ndarray:
    """Half of the numbers are the least and the largest ones."""
    rng, limits = np.random.default_rng(seed), np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return np.where(rng.random(shape) < 0.5, rng.choice([limits.min, limits.max], shape), x).astype(dtype)


@pytest.mark.sweep
@pytest.mark.parametrize("m, k, n", SIZES)
@pytest.mark.parametrize("left, right", [("i1", "i1"), ("u1", "u1"), ("i1", "u1")])
@pytest.mark.one_in(2)
def test_values(left, right, m, k, n):
    x, y = extremes(left, (m, k), 1), extremes(right, (k, n), 2)
    exact = x.astype("i8") @ y.astype("i8")
    into = lambda dtype: mpijax.jit(lambda x, y: jnp.matmul(x, y, preferred_element_type=dtype))(x, y)
    np.testing.assert_array_equal(into(jnp.int32), exact)
    if left == right:
        np.testing.assert_array_equal(into(left), exact.astype(left))


def test_largest_sums():
    for dtype, value in (("i1", -128), ("u1", 255)):
        x = np.full((8, 3000), value, dtype)
        got = mpijax.jit(lambda x: lax.dot_general(x, x, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32))(x)
        np.testing.assert_array_equal(got, np.full((8, 8), 3000 * value**2))


def test_batches():
    x, y = extremes("i1", (5, 40, 60), 3), extremes("i1", (5, 60, 30), 4)
    numbers = (((2,), (1,)), ((0,), (0,)))
    product = lambda x, y: lax.dot_general(x, y, numbers, preferred_element_type=jnp.int32)
    np.testing.assert_array_equal(mpijax.jit(product)(x, y), x.astype("i4") @ y.astype("i4"))


def test_integers_of_16_bits_wrap():
    x = extremes("i2", (70, 70), 5)
    got = mpijax.jit(lambda x: jnp.matmul(x, x, preferred_element_type=jnp.int32))(x)
    np.testing.assert_array_equal(got, (x.astype("i8") @ x.astype("i8")).astype("i4"))
