"""NaN, infinities, zeros, overflow and narrow types in compiled reductions, at sizes around a vector's."""

from __future__ import annotations

import numpy as np
import pytest

import mpijax
import mpijax.numpy as jnp

SIZES = (1, 2, 7, 8, 33, 65, 200)
EXTREMES = {"max": jnp.max, "min": jnp.min}


@pytest.mark.parametrize("axis", (0, 1))
@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("size", SIZES)
def test_nan_wins(name, size, axis):
    """Wherever it is, in whole vectors and in the rest."""
    x = np.random.default_rng(size).standard_normal((size, size)).astype(np.float32)
    np.fill_diagonal(x, np.nan)
    got = mpijax.jit(lambda x: EXTREMES[name](x, axis=axis))(x)
    assert np.isnan(np.asarray(got)).all()


@pytest.mark.parametrize("size", SIZES)
def test_infinities_are_the_extremes(size):
    low, high = np.full(size, -np.inf, np.float32), np.full(size, np.inf, np.float32)
    got = mpijax.jit(lambda a, b: (a.max(), b.min(), a.sum(), (a + b).sum()))(low, high)
    np.testing.assert_array_equal(np.asarray(got), [-np.inf, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("zero", (0.0, -0.0))
@pytest.mark.parametrize("size", SIZES)
def test_zeros_of_one_sign_keep_it(size, zero):
    """Of zeros of both signs the scalar layer's max and min take the first they meet, so only equality holds there."""
    fun = mpijax.jit(lambda x: (x.max(), x.min()))
    x = np.full(size, zero, np.float32)
    assert all(np.signbit(y) == np.signbit(np.float32(zero)) for y in fun(x))
    x[size // 2] = -zero
    assert all(y == 0 for y in fun(x))


@pytest.mark.parametrize("find", (jnp.argmax, jnp.argmin))
@pytest.mark.parametrize("size", SIZES)
def test_argmax_finds_the_first_nan_or_the_first_of_equals(find, size):
    fun = mpijax.jit(find)
    assert int(fun(np.zeros(size, np.float32))) == 0
    assert int(fun(np.full(size, -np.inf, np.float32))) == 0
    assert int(fun(np.full(size, np.inf, np.float32))) == 0
    for at in (0, size // 2, size - 1):
        x = np.arange(size, dtype=np.float32)
        x[at:] = np.nan
        assert int(fun(x)) == at


@pytest.mark.parametrize("dtype", ("bfloat16", "float16"))
@pytest.mark.parametrize("shape, axis", (((1000,), 0), ((1000, 33), 0), ((33, 1000), 1)))
def test_narrow_sums_are_taken_in_float32(dtype, shape, axis):
    """1000 ones sum to 1000, not to the 256 beyond which bfloat16 cannot count."""
    got = mpijax.jit(lambda x: jnp.sum(x, axis=axis))(jnp.ones(shape, dtype))
    assert got.dtype == jnp.dtype(dtype) and (np.asarray(got) == np.asarray(1000).astype(got.dtype)).all()


@pytest.mark.parametrize("dtype", ("int32", "uint32"))
@pytest.mark.parametrize("shape, axis", (((65,), 0), ((65, 33), 0), ((33, 65), 1)))
def test_integers_wrap(dtype, shape, axis):
    x = np.full(shape, np.iinfo(dtype).max - 3, dtype)
    add, mul = mpijax.jit(lambda x: (jnp.sum(x, axis=axis), jnp.prod(x, axis=axis)))(x)
    np.testing.assert_array_equal(add, x.sum(axis=axis, dtype=dtype))
    np.testing.assert_array_equal(mul, x.prod(axis=axis, dtype=dtype))


@pytest.mark.parametrize("shape, axis", (((0,), 0), ((0, 7), 0), ((7, 0), 1), ((3, 0, 5), 1), ((0, 7), 1)))
def test_nothing_sums_to_the_identity(shape, axis):
    got = mpijax.jit(lambda x: (jnp.sum(x, axis), jnp.prod(x, axis), jnp.any(x, axis), jnp.all(x, axis)))(
        jnp.zeros(shape)
    )
    for g, want in zip(got, (0, 1, False, True), strict=True):
        np.testing.assert_array_equal(g, np.full(np.delete(shape, axis), want, g.dtype))
