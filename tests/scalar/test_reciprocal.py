"""Division by constants: the same bits as a division, in which denormals are zero."""

import numpy as np
import pytest

import mpijax
import mpijax.numpy as jnp
from mpijax.scalar.reciprocal import reciprocal_parts

CONSTANTS = [3.0, 5e3, 49.0, 0.1, 1 / 3, -7.5, 9.81, 1e-3, 784.0, 1.0000001, 1.9999999, 2.0**-20, -64.0, 1e30, 6e-39]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 3.4e38, -3.4e38, 49.0, 1e-20]


def _flushed(x):
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)


def _numbers(dtype, rng):
    bits = rng.integers(0, 1 << 23, 4000).astype(np.float64)
    mantissas = (1.0 + bits * 2.0**-23) * 2.0 ** rng.integers(-60, 60, 4000)
    return np.concatenate([SPECIAL, mantissas, -mantissas]).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("c", CONSTANTS)
@pytest.mark.one_in(4)
def test_quotients_have_the_bits_of_a_division(c, dtype):
    with mpijax.enable_x64(dtype == "float64"):
        x = _numbers(dtype, np.random.default_rng(1))
        c = np.dtype(dtype).type(c)
        got = np.asarray(mpijax.jit(lambda x: x / c)(jnp.asarray(x)))
        with np.errstate(all="ignore"):
            expected = _flushed(x / _flushed(c))
        np.testing.assert_array_equal(got.view(got.dtype.str.replace("f", "i"))[~np.isnan(expected)],
                                      expected.view(got.dtype.str.replace("f", "i"))[~np.isnan(expected)])
        assert np.isnan(got[np.isnan(expected)]).all()


def test_powers_of_two_are_one_product():
    assert reciprocal_parts(8.0, np.dtype("f4")) == (0.125, 0.0)


def test_both_parts_have_the_sign_of_the_constant():
    """Otherwise an infinite dividend gives inf - inf."""
    for c in np.random.default_rng(3).normal(size=200).astype("f4"):
        parts = reciprocal_parts(float(c), np.dtype("f4"))
        assert parts is None or all(np.sign(p) == np.sign(c) for p in parts)


def test_a_constant_for_which_a_quotient_would_be_rounded_wrongly_has_no_parts():
    """Found by trying all mantissas: the sum of products misses one quotient."""
    c = np.float32(1 / 3)
    high = np.float32(2.999999761581421)
    low = np.float32(1.4901161193847656e-07)
    x = np.arange(1 << 23, 1 << 24).astype(np.float32)
    near = (x.astype(np.longdouble) * high + (x * low)).astype(np.float32)
    assert 1 <= (near != x / c).sum() <= 2
    assert reciprocal_parts(float(c), np.dtype("f4")) is None


@pytest.mark.parametrize("c", [0.0, np.inf, np.nan, 1e38, 1e-38])
def test_constants_out_of_range_are_divided_by(c):
    assert reciprocal_parts(c, np.dtype("f4")) is None
