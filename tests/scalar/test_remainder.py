"""Remainders of floats have the bits of C's fmod."""

import numpy as np
import pytest

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp

N = 1027
RNG = np.random.default_rng(0)
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 7.0, -7.0]


def operands(dtype, kind):
    power = 6 if dtype == "float16" else 25
    x, y = RNG.standard_normal((2, N)) * 2.0 ** RNG.uniform(-power, power, (2, N))
    if kind == "small quotients":
        x = y * RNG.uniform(-9, 9, N)
    elif kind == "whole numbers":
        x, y = np.round(x), np.round(y)
    elif kind == "multiples":
        x = y.astype(dtype).astype("float64") * RNG.integers(-200, 200, N)
    elif kind == "below multiples":
        x = np.nextafter((y.astype(dtype) * RNG.integers(1, 200, N)).astype(dtype), np.zeros(N, dtype))
    x, y = x.astype(dtype), y.astype(dtype)
    x[: len(SPECIAL)] = SPECIAL
    y[: 4 * len(SPECIAL)] = np.repeat([3, np.inf, 0, np.nan], len(SPECIAL))
    x[len(SPECIAL) : 4 * len(SPECIAL)] = SPECIAL * 3
    return x, y


def same_bits(got, want):
    bits = f"u{want.dtype.itemsize}"
    got = np.asarray(got)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(got.view(bits)[numbers], want.view(bits)[numbers])


@pytest.mark.parametrize("kind", ["any", "small quotients", "whole numbers", "multiples", "below multiples"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_bits_are_those_of_c(dtype, kind):
    with jax.enable_x64(True), np.errstate(all="ignore"):
        x, y = operands(dtype, kind)
        same_bits(jax.jit(lax.rem)(x, y), np.fmod(x, y))
        for number in (7.0, 0.1, -2.5, 8.0, np.inf):
            constant = x.dtype.type(number)
            same_bits(jax.jit(lambda x: lax.rem(x, jnp.full_like(x, constant)))(x), np.fmod(x, constant))  # noqa: B023


def test_mod_and_floor_divide():
    x, y = operands("float32", "small quotients")
    with np.errstate(all="ignore"):
        want = np.mod(x, y)
    np.testing.assert_allclose(jax.jit(jnp.mod)(x, y)[32:], want[32:], rtol=1e-5)
    np.testing.assert_array_equal(jax.jit(lambda x: jnp.mod(x, 2.5))(x[32:]), np.mod(x[32:], np.float32(2.5)))
