"""Bits from states, barriers, composites, scaled products and small functions, against JAX."""

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, clean, sample

from mpijax.ops.random import bit_generators

X = sample(3, 4)


@pytest.mark.parametrize(("algorithm", "dtype"), [("RNG_DEFAULT", "uint32"), ("RNG_THREE_FRY", "uint8")])
def test_bits_are_jaxs(algorithm, dtype):
    state = np.array([7, 2**32 - 1, 2**32 - 2, 2**32 - 1], np.uint32)
    for shape in [(5, 7), (4, 6), ()]:

        def bits(J, shape=shape):
            return J.lax.rng_bit_generator(state, shape, dtype, J.lax.RandomAlgorithm[algorithm])

        for ours, theirs in zip(bits(OURS), bits(THEIRS), strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)


def test_states_of_64_bits():
    with OURS.enable_x64(True), THEIRS.enable_x64(True):
        state = np.array([7, 2**64 - 2], np.uint64)
        for algorithm in (1, 2):
            for ours, theirs in zip(
                OURS.lax.rng_bit_generator(state, (3, 5), "uint64", OURS.lax.RandomAlgorithm(algorithm)),
                THEIRS.lax.rng_bit_generator(state, (3, 5), "uint64", THEIRS.lax.RandomAlgorithm(algorithm)),
                strict=True,
            ):
                np.testing.assert_array_equal(ours, theirs)


def test_states_and_dtypes_are_checked():
    with pytest.raises(TypeError, match=r"uint32\[4\] or uint64\[2\], got u32\[3\]"):
        OURS.lax.rng_bit_generator(np.zeros(3, np.uint32), (2,))
    with pytest.raises(TypeError, match="unsupported dtype"):
        OURS.lax.rng_bit_generator(np.zeros(4, np.uint32), (2,), np.float32)


def test_counters_of_64_bits():
    low, high = bit_generators._positions(10, 4)
    np.testing.assert_array_equal(4 * np.asarray(high) + np.asarray(low), np.arange(10))
    many = OURS.jit(lambda key: OURS.random.uniform(key, (308_000_000, 128), "bfloat16"))
    many.lower(OURS.random.key(3, impl="rbg"))  # 2**33 counters


def test_uniform_numbers_lie_between_their_bounds():
    numbers = np.asarray(OURS.jit(lambda: OURS.lax.rng_uniform(2.0, 3.0, (1000,)))())
    assert numbers.dtype == np.float32 and numbers.min() >= 2 and numbers.max() <= 3 and numbers.std() > 0.2
    assert set(np.asarray(OURS.lax.rng_uniform(1, 4, (100,)))) == {1, 2, 3}
    with pytest.raises(ValueError, match="identical dtypes"):
        OURS.lax.rng_uniform(np.float32(0), np.int32(1), (2,))


def test_barriers_are_identities_that_show():
    check(lambda J: lambda x: J.lax.optimization_barrier({"a": x, "b": (x * 2,)}), X)
    check(lambda J: J.grad(lambda x: (J.lax.optimization_barrier((x, x * 3))[1] ** 2).sum()), X)
    check(lambda J: J.vmap(lambda x: J.lax.optimization_barrier(x) + 1), X)


def softmax(J):
    def decomposition(x, /, *, axis):
        return J.nn.softmax(x, axis)

    return J.lax.composite(decomposition, "my.softmax", version=2)


def test_composites_compute_their_decomposition():
    check(lambda J: lambda x: softmax(J)(x, axis=1), X, jaxpr=False, rtol=1e-6)
    ours = clean(str(OURS.make_jaxpr(lambda x: softmax(OURS)(x, axis=1))(X)))
    assert "composite[" in ours and "name=my.softmax" in ours and "version=2" in ours
    np.testing.assert_allclose(OURS.vmap(lambda x: softmax(OURS)(x, axis=0))(X), softmax(OURS)(X, axis=1), rtol=1e-6)


def test_composites_say_how_to_differentiate():
    with pytest.raises(ValueError, match=r"jax.custom_jvp"):
        OURS.grad(lambda x: softmax(OURS)(x, axis=0).sum())(X)
    with pytest.raises(OURS.errors.UnexpectedTracerError, match="attribute 'axis'.*use numpy arrays instead"):
        OURS.jit(lambda x, a: softmax(OURS)(x, axis=a))(X, 0)


@pytest.mark.parametrize("scaled", [(True, True), (True, False), (False, False)])
def test_scaled_products(scaled):
    lhs, rhs = sample(2, 3, 8), sample(2, 8, 5, seed=1)
    left, right = np.abs(sample(2, 3, 4)) + 1, np.abs(sample(2, 2, 5)) + 1
    x = lhs * np.repeat(left, 2, 2) if scaled[0] else lhs
    y = rhs * np.repeat(right, 4, 1) if scaled[1] else rhs
    got = OURS.lax.scaled_dot(
        lhs, rhs, lhs_scale=left if scaled[0] else None, rhs_scale=right if scaled[1] else None,
        preferred_element_type=np.float32,
    )  # fmt: skip
    np.testing.assert_allclose(got, x @ y, rtol=1e-5)
    assert OURS.lax.scaled_dot(lhs, rhs).dtype == OURS.numpy.bfloat16


def test_scales_must_fit():
    with pytest.raises(TypeError, match=r"scale of shape \(2, 3\) does not fit lhs of shape \(2, 8\)"):
        OURS.lax.scaled_dot(sample(2, 8), sample(8, 2), lhs_scale=sample(2, 3))


def test_small_functions():
    for make in (
        lambda J: J.lax.broadcast_like(X[0], X),
        lambda J: J.lax.shape_as_value((2, 3)),
        lambda J: np.zeros(0, J.lax.dtype(3.0)),
        lambda J: J.lax.empty((2, 3), np.int8) * 0,
        lambda J: J.lax.dot(X, X.T, precision="F32_F32_F32"),
        lambda J: J.lax.dot(X, X.T, precision=J.lax.DotAlgorithmPreset.DEFAULT),
    ):
        theirs, ours = np.asarray(make(THEIRS)), np.asarray(make(OURS))
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_dtypes_of_shapes_as_values():
    found = []
    for J in (THEIRS, OURS):
        f = J.jit(lambda x, J=J: (J.lax.shape_as_value(x.shape), J.lax.shape_as_value((3,))))
        for x64 in (False, True):
            with J.enable_x64(x64):
                shape = J.export.symbolic_shape("a, 3")
                exported = J.export.export(f)(J.ShapeDtypeStruct(shape, np.float32))
                found.append([a.dtype for a in exported.out_avals])
                if x64:
                    found[-1].append(J.lax.shape_as_value((2**31, 2)).dtype)
    assert found[:2] == found[2:]
