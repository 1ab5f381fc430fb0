"""Quotients by values that a row shares become products, with JAX's bits; no others do."""

import jax as theirs
import numpy as np
import pytest

import mpijax as jax
import mpijax.numpy as jnp


def by_rows(x, s):
    return x / s[:, None]


@pytest.mark.parametrize("shape", [(100, 64), (7, 1), (5, 1003)])
def test_bits_are_jaxs(shape):
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=shape).astype(np.float32), rng.normal(size=shape[0]).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(jax.jit(by_rows)(x, s)), np.asarray(theirs.jit(by_rows)(x, s)))


@pytest.mark.parametrize("divisor", [0.0, -0.0, np.inf, np.nan, 3e38, -2e38, 1.2e-38])
def test_no_divisor_is_out_of_range(divisor):
    """The reciprocal of 3e38 is denormal: JAX's quotients are all zero."""
    x = np.array([[0.0, 1.0, -2e-30, 1e30, 3e38, np.inf, np.nan]], np.float32)
    with np.errstate(all="ignore"):
        expected = x / np.float32(divisor)
    expected[np.abs(expected) < np.finfo(np.float32).tiny] = 0
    got = np.asarray(jax.jit(by_rows)(x, np.float32([divisor])))
    np.testing.assert_allclose(got, expected, rtol=2e-7)


@pytest.mark.parametrize(
    ("divide", "kept"),
    [
        (lambda x, s: x / s[:, None], False),
        (lambda x, s: x / jnp.sum(x, 1, keepdims=True), False),
        (lambda x, s: x / s, True),  # each column has its own
        (lambda x, s: x / s[0], True),  # numbers have the bits of a division
        (lambda x, s: (10 * x).astype(np.int32) // 3, True),
        (lambda x, s: (x / (1j + s)[:, None]).real, True),
    ],
)
def test_which_quotients(divide, kept):
    x = np.ones((4, 4), np.float32)
    assert ("div(" in jax.jit(divide).lower(x, x[0]).as_text()) == kept
