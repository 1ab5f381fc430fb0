"""Generators that users define, beside the same ones in JAX."""

import jax as theirs
import numpy as np
import pytest
from jax.extend import random as their_extend

import mpijax
from mpijax import random
from mpijax.extend import random as extend

NUMBERS = np.arange(7, dtype=np.uint32)


def congruential(J, define, **more):
    """Words [2, 1] of a key; everything that is asked of a generator, and none of it random."""
    np_ = J.numpy

    def step(words, n):
        return words * np_.uint32(1664525) + np_.asarray(n, "uint32") * np_.uint32(1013904223)

    def bits(words, width, shape):
        counts = np_.arange(int(np.prod(shape)), dtype="uint32").reshape(shape)
        return step(words[0, 0] ^ words[1, 0], counts).astype(f"uint{width}")

    return define(
        key_shape=(2, 1), seed=lambda n: np_.stack([np_.asarray(n, "uint32"), np_.uint32(5)])[:, None],
        split=lambda words, shape: step(words, np_.arange(int(np.prod(shape))).reshape(*shape, 1, 1)),
        random_bits=bits, fold_in=step, **more,
    )  # fmt: skip


def draws(J, impl):
    R = J.random
    key = R.key(42, impl=impl)
    keys = R.split(key, 3)
    return [
        R.key_data(key), R.key_data(keys), R.key_data(R.fold_in(key, 3)), R.bits(key, (2, 3)), R.bits(key, (5,), "uint8"),
        R.uniform(keys[1], (4,)), R.normal(key, (3,)), R.randint(key, (3,), 0, 10), J.vmap(R.uniform)(keys),
        J.jit(lambda k: R.key_data(R.split(k)))(key), R.permutation(key, 6), R.key_data(R.wrap_key_data(R.key_data(keys), impl=impl)),
    ]  # fmt: skip


def test_draws_are_jaxs():
    ours = draws(mpijax, congruential(mpijax, extend.define_prng_impl))
    jaxs = draws(theirs, congruential(theirs, their_extend.define_prng_impl))
    for i, (a, b) in enumerate(zip(ours, jaxs, strict=True)):
        assert a.dtype == b.dtype, i
        np.testing.assert_allclose(a, b, rtol=1e-6, err_msg=str(i))


def test_keys_know_their_generator():
    impl = congruential(mpijax, extend.define_prng_impl, name="one", tag="lcg")
    other = congruential(mpijax, extend.define_prng_impl, name="one", tag="lcg")
    key = random.key(1, impl=impl)
    assert key.shape == () and str(key.dtype) == "key<lcg>" and key.dtype != random.key(1, impl=other).dtype
    assert random.key_impl(key) == impl != random.key_impl(random.key(1, impl=other))
    assert repr(random.key_impl(key)) == "PRNGSpec('one')"
    assert "key<?>" in repr(random.key(1, impl=congruential(mpijax, extend.define_prng_impl)))
    with pytest.raises(NotImplementedError, match="cannot be serialised"):
        mpijax.export.export(mpijax.jit(random.bits))(key).serialize()
    with pytest.raises(TypeError, match=r"expected key_data.shape to end with \(2, 1\)"):
        random.wrap_key_data(np.zeros((3, 2), np.uint32), impl=impl)


def test_two_generators_of_one_name_have_programs_of_their_own():
    def constant(number):
        same = lambda words, *_: words
        bits = lambda words, width, shape: mpijax.numpy.full(shape, number, f"uint{width}")
        return extend.define_prng_impl(key_shape=(), seed=lambda n: n, split=same, random_bits=bits, fold_in=same)

    found = [mpijax.jit(random.bits)(random.wrap_key_data(np.uint32(0), impl=constant(n))) for n in (3, 4)]
    assert [int(x) for x in found] == [3, 4]


@pytest.mark.parametrize("name", ["threefry_prng_impl", "rbg_prng_impl", "unsafe_rbg_prng_impl"])
def test_seeds_of_named_generators(name):
    ours, jaxs = (J.random.key_data(E.seed_with_impl(getattr(E, name), 7)) for J, E in (
        (mpijax, extend), (theirs, their_extend)))  # fmt: skip
    np.testing.assert_array_equal(ours, jaxs)


@pytest.mark.parametrize("count", [NUMBERS, NUMBERS[:6].reshape(3, 2), NUMBERS[:0]])
def test_threefry_hashes(count):
    pair = np.uint32(3), np.uint32(4)
    np.testing.assert_array_equal(extend.threefry_2x32(pair, count), their_extend.threefry_2x32(pair, count))
    with pytest.raises(TypeError, match="requires uint32 arguments"):
        extend.threefry_2x32(pair, count.astype(np.int32))
