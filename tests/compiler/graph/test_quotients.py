"""Quotients by known numbers become products, with JAX's bits."""

import jax as theirs
import numpy as np
import pytest

import mpijax as jax
import mpijax.numpy as jnp


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("number", [3.0, -7.3, 5000.0, 0.25])
def test_bits_are_jaxs(dtype, number):
    x = np.random.default_rng(0).normal(size=1000).astype(dtype)
    expected = np.asarray(theirs.jit(lambda x: x / number)(x))
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x / number)(x)), expected)
    np.testing.assert_array_equal(np.asarray(jnp.asarray(x) / number), x / dtype(number))  # eager, as in JAX


@pytest.mark.parametrize("number", [0.0, -0.0, np.inf, np.nan, 1e-39, 3e38])
def test_no_reciprocal_leaves_the_normal_numbers(number):
    x = np.array([0.0, 1.0, -2e-30, 3e38, np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        divisor = np.float32(number) if not abs(number) < 1e-38 else np.copysign(np.float32(0), number)  # denormals are zero
        expected = x / divisor
    expected[np.abs(expected) < np.finfo(np.float32).tiny] = 0
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x / np.float32(number))(x)), expected)


def test_integers_and_complex_numbers_are_divided():
    i, z = np.array([7, -7, 9], np.int32), np.array([1 + 2j, 3 - 1j], np.complex64)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: jax.lax.div(x, np.int32(3)))(i)), [2, -2, 3])
    assert "div(" in jax.jit(lambda x: x / np.complex64(3 + 1j)).lower(z).as_text()
