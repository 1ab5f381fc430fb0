"""NaN, infinities, zeros, overflow and narrow types in compiled reductions, at sizes around a vector's."""

from __future__ import annotations

import numpy as np
import pytest

import mpijax
import mpijax.numpy as jnp
from mpijax.compiler.steps.planner import plan_program

SIZES = (1, 2, 7, 8, 33, 65, 200)
EXTREMES = {"max": jnp.max, "min": jnp.min}


@pytest.mark.parametrize("axis", (0, 1))
@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.one_in(4)
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


@pytest.mark.parametrize("size", (7, 1000, 300_001))
def test_signs_of_nan_and_of_zeros(size):
    """NaN of either sign wins; of zeros 0.0 is larger than -0.0; of float32 and float64."""
    cases = [[-1.0, -0.0, 0.0], [0.0, 1.0, -0.0], [-0.0, -0.0, -2.0], [-np.nan, 3.0, -np.inf], [np.nan, -1.0, 2.0]]
    for dtype in (np.float32, np.float64):
        for few in cases:
            x = np.resize(np.array(few, dtype), size)
            with mpijax.enable_x64(True):
                found = map(np.asarray, mpijax.jit(lambda x: (jnp.max(x), jnp.min(x)))(x))
            for got, wanted in zip(found, (max, min), strict=True):
                if np.isnan(few).any():
                    assert np.isnan(got)
                else:  # Python compares zeros as equal: their signs decide
                    extreme = wanted(few, key=lambda v: (v, np.copysign(1, v)))
                    assert got == extreme and np.signbit(got) == np.signbit(extreme)


@pytest.mark.parametrize("find", (jnp.argmax, jnp.argmin))
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.one_in(3)
def test_argmax_finds_the_first_nan_or_the_first_of_equals(find, size):
    fun = mpijax.jit(find)
    assert int(fun(np.zeros(size, np.float32))) == 0
    assert int(fun(np.full(size, -np.inf, np.float32))) == 0
    assert int(fun(np.full(size, np.inf, np.float32))) == 0
    for at in (0, size // 2, size - 1):
        x = np.arange(size, dtype=np.float32)
        x[at:] = np.nan
        assert int(fun(x)) == at


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "int8", "bool"))
@pytest.mark.parametrize("find", (jnp.argmax, jnp.argmin))
@pytest.mark.one_in(2)
def test_rows_find_their_extremum_wherever_it_is(find, dtype):
    """A pass that looks for it ends with the vector where it is found."""
    rng = np.random.default_rng(0)
    for size, axes in ((5, (1,)), (33, (0, 1, None)), (257, (1,))):
        x = rng.integers(0, 2 if dtype == "bool" else 4, (size + 3, size)).astype(np.float32)
        if dtype in ("float32", "bfloat16"):
            x[rng.random(x.shape) < 0.5 / size] = np.nan
            x[rng.random(x.shape) < 0.1] = -0.0
            x[:2] = [[-0.0], [0.0]]
        x = np.asarray(jnp.asarray(x).astype(dtype))
        for axis in axes:
            got = mpijax.jit(lambda a, axis=axis: find(a, axis=axis))(x)
            np.testing.assert_array_equal(got, getattr(np, find.__name__)(x.astype(np.float64), axis=axis))


def test_extrema_that_are_compared_and_returned_keep_the_sign_of_zero():
    def both(x):
        largest = x.max(axis=1, keepdims=True)
        return largest, x == largest

    x = np.tile(np.float32([-0.0, -0.0, -1.0]), (40, 30))
    largest, same = mpijax.jit(both)(x)
    assert np.signbit(largest).all()
    np.testing.assert_array_equal(same, x == 0)
    x[:, 7] = 0.0
    assert not np.signbit(mpijax.jit(both)(x)[0]).any()
    x[:, 50] = np.nan
    assert not np.asarray(mpijax.jit(lambda x: x == x.max(axis=1, keepdims=True))(x)).any()


# Where the sign of a zero is seen, an extremum may not be taken by the processor's own instruction, to which all zeros
# are equal. Each row holds zeros of both signs and nothing larger, so its maximum is +0.
SEES_THE_SIGN = {
    "reciprocal": lambda x, m: 1 / m,
    "sum with -0": lambda x, m: 1 / (m + jnp.float32(-0.0)),
    "through a product": lambda x, m: 1 / (m * 3),
    "through another row": lambda x, m: (1 / jnp.where(x < 1, m, x)).max(axis=1, keepdims=True),
    "logarithm of one more": lambda x, m: 1 / jnp.log1p(m),
    "copysign": lambda x, m: jnp.copysign(jnp.inf, m),
}


@pytest.mark.parametrize("name", SEES_THE_SIGN)
def test_the_sign_of_zero_is_kept_where_it_is_seen(name):
    x = np.tile(np.float32([-0.0, -0.0, -1.0]), (40, 30))
    for at in range(9):
        x[at::9, at] = 0.0
    got = mpijax.jit(lambda x: SEES_THE_SIGN[name](x, x.max(axis=1, keepdims=True)))(x)
    np.testing.assert_array_equal(got, np.full((40, 1), np.inf, np.float32))


@pytest.mark.parametrize("name, fun", {
    "softmax": lambda x: mpijax.nn.softmax(x), "logsumexp": lambda x: mpijax.nn.logsumexp(x, axis=1),
    "distance": lambda x: jnp.abs(x - x.max(axis=1, keepdims=True)).sum(axis=1),
}.items())  # fmt: skip
def test_extrema_whose_zeros_are_equal(name, fun):
    """Taken by the processor's own instruction: NaN wins all the same, and all infinities are told apart."""
    rng = np.random.default_rng(3)
    x = rng.choice(np.float32([-0.0, 0.0, -1.5, -np.inf, 2.0]), (60, 77))
    x[::7, 5], x[3::7, 76], x[5::7, 40] = np.nan, np.nan, np.inf
    with mpijax.disable_jit():
        expected = np.asarray(fun(jnp.asarray(x)))
    np.testing.assert_allclose(np.asarray(mpijax.jit(fun)(x)), expected, rtol=2e-6)


def test_rows_of_large_arrays_are_fetched_one_ahead():
    """Only where the rows are too many for the cache; the values are the same, also past the last row."""
    for rows, ahead in ((16, False), (4096, True)):
        x = np.random.default_rng(0).standard_normal((rows, 130)).astype(np.float32)
        plan = plan_program(mpijax.make_jaxpr(mpijax.nn.softmax)(x))
        assert any("llvm.prefetch" in code.define for code in plan.kernels.values()) == ahead
        e = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(mpijax.jit(mpijax.nn.softmax)(x), e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("order", (1, -1))
def test_only_the_first_position_ends_a_search(order):
    """Other minima of positions that look alike: the last position where a condition holds, positions from the end."""
    x = np.random.default_rng(1).integers(0, 5, (50, 300)).astype(np.int32)
    top, places = np.iinfo(np.int32).max, np.arange(300, dtype=np.int32)

    def first(x):
        return jnp.where(x == 3, order * jnp.arange(300, dtype=np.int32), top).min(axis=1)

    np.testing.assert_array_equal(mpijax.jit(first)(x), np.where(x == 3, order * places, top).min(axis=1))
    last = mpijax.jit(lambda x: jnp.where(x == 3, jnp.arange(300, dtype=np.int32), -1).max(axis=1))(x)
    np.testing.assert_array_equal(last, np.where(x == 3, places, -1).max(axis=1))


@pytest.mark.parametrize("dtype", ("bfloat16", "float16"))
@pytest.mark.parametrize("shape, axis", (((1000,), 0), ((1000, 33), 0), ((33, 1000), 1)))
def test_narrow_sums_are_taken_in_float32(dtype, shape, axis):
    """1000 ones sum to 1000, not to the 256 beyond which bfloat16 cannot count."""
    got = mpijax.jit(lambda x: jnp.sum(x, axis=axis))(jnp.ones(shape, dtype))
    assert got.dtype == jnp.dtype(dtype) and (np.asarray(got) == np.asarray(1000).astype(got.dtype)).all()


@pytest.mark.parametrize("way", (("float16",), ("float32", "float16")))
def test_signs_of_doubles_in_float16(way):
    """LLVM, which copies such a sign with a function that there is not, does not see where it comes from."""
    first, last = jnp.dtype(way[0]), jnp.dtype(way[-1])
    with mpijax.enable_x64(True):
        x = np.array([[0.5, 1], [-2.0, 1], [-0.0, 1]])
        got = mpijax.jit(lambda x: jnp.tanh(x[:, :1].astype(first)).astype(last))(x)
    want = np.tanh(x[:, :1]).astype(np.float16)
    np.testing.assert_allclose(got, want, rtol=1e-3)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


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
