"""Long sums of floats round little, along any axes."""

import numpy as np
import pytest

import mpijax as jax
import mpijax.numpy as jnp

# A serial sum is wrong by 0.8e-6 to 5e-6 for each of these.
SUMS = [((1280, 27), 0), ((1000, 1000), 0), ((64, 5000, 8), 1), ((100_000, 4), 0), ((200, 300, 7), (0, 1)), ((3, 70_000), 1)]


@pytest.mark.parametrize("shape, axis", SUMS)
def test_sums_are_as_accurate_as_sums_of_blocks(shape, axis):
    x = (np.random.default_rng(0).normal(size=shape) ** 2).astype(np.float32)
    exact = (x.astype(np.float64) ** 2).sum(axis)
    total, square = jax.jit(lambda x: (jnp.sum(x, axis), jnp.sum(x * x, axis)))(x)
    np.testing.assert_allclose(total, x.astype(np.float64).sum(axis), rtol=6e-7)
    np.testing.assert_allclose(square, exact, rtol=6e-7)


@pytest.mark.parametrize("n", [127, 128, 129, 191, 192, 8191, 8192, 8193, 8255])
@pytest.mark.parametrize("columns", [1, 3, 16, 40])
def test_whole_and_broken_blocks(n, columns):
    """Each element is added once. With other reductions in the same pass, too."""
    x = np.random.default_rng(n).integers(-9, 9, size=(n, columns)).astype(np.float32)
    f = jax.jit(lambda x: (x.sum(0), x.max(0), jnp.prod(jnp.where(x == 0, 2.0, 1.0)[:20], 0), x.sum(1), x.sum()))
    found = f(x)
    expected = x.sum(0), x.max(0), np.prod(np.where(x == 0, 2.0, 1.0)[:20], 0), x.sum(1), x.sum()
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_complex_and_narrow_sums():
    x = np.random.default_rng(0).normal(size=(3000, 5)) + 1j * np.random.default_rng(1).normal(size=(3000, 5))
    np.testing.assert_allclose(jnp.sum(x.astype(np.complex64), 0), x.sum(0), rtol=1e-5, atol=1e-4)
    half = np.abs(x.real).astype(np.float16)
    np.testing.assert_allclose(jnp.sum(half, 0), half.astype(np.float64).sum(0), rtol=1e-3)


@pytest.mark.parametrize("n", [127, 128, 129, 191, 1023, 1024, 8193, 16385])
@pytest.mark.parametrize("shape, axis", [((), 0), ((3,), 0), ((40,), 0), ((3,), 1), ((2000,), 0)])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.one_in(3)
def test_running_sums_of_whole_and_broken_blocks(n, shape, axis, reverse):
    dims = (n, *shape) if axis == 0 else (*shape, n)
    x = np.random.default_rng(n).integers(-9, 9, size=dims).astype(np.float32)
    expected = np.flip(np.cumsum(np.flip(x, axis), axis), axis) if reverse else np.cumsum(x, axis)
    np.testing.assert_array_equal(jax.lax.cumsum(x, axis, reverse), expected)


@pytest.mark.parametrize("shape, axis", [((1_000_000,), 0), ((2000, 300), 0), ((20_000, 4), 0)])
def test_running_sums_are_as_accurate_as_sums_of_blocks(shape, axis):
    x = (np.random.default_rng(0).normal(size=shape) ** 2).astype(np.float32)
    np.testing.assert_allclose(jnp.cumsum(x, axis), np.cumsum(x.astype(np.float64), axis), rtol=8e-7)
