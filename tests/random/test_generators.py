"""Generators that are programs: rbg, unsafe_rbg and threefry2x32 of one counter give JAX's bits."""

import numpy as np
import pytest
from oracle import OURS, THEIRS
from quickly import all_slow_but, one_in


def _drawn(J, impl):
    """Bits of all kinds from one key, as one program."""
    R = J.random

    def program(seed):
        key = R.key(seed, impl=impl)
        keys = R.split(key, 3)
        grid = R.split(key, (2, 2))
        return {
            "seed": R.key_data(key), "split": R.key_data(keys), "grid": R.key_data(grid),
            "fold_in": R.key_data(R.fold_in(key, 77)),
            "fold_in many": R.key_data(J.vmap(R.fold_in, (None, 0))(key, J.numpy.arange(3))),
            "split many": R.key_data(J.vmap(R.split)(keys)),
            "bits many": J.vmap(lambda k: R.bits(k, (5,)))(keys),
            "bits grid": J.vmap(J.vmap(lambda k: R.bits(k, (3,), "uint8")))(grid),
            **{f"{width} {shape}": R.bits(key, shape, f"uint{width}")
               for width in (8, 16, 32) for shape in ((), (7,), (4, 3), (0,))},
            "randint": R.randint(key, (5,), 0, 100), "permutation": R.permutation(key, 11),
            "uniform": R.uniform(key, (3,)), "bernoulli": R.bernoulli(key, 0.4, (9,)),
        }  # fmt: skip

    return program


def _same(theirs, ours):
    assert theirs.keys() == ours.keys()
    for name, expected in theirs.items():
        np.testing.assert_array_equal(np.asarray(expected), np.asarray(ours[name]), err_msg=name)
        assert np.asarray(expected).dtype == np.asarray(ours[name]).dtype, name


@pytest.mark.parametrize("impl", all_slow_but(("rbg", "philox2x32"), ["rbg", "unsafe_rbg", "threefry4x32", "philox2x32", "philox4x32"]))
@pytest.mark.parametrize("partitionable", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.one_in(2)
def test_bits_are_those_of_jax(impl, partitionable):
    results = []
    for J in (THEIRS, OURS):
        with J.threefry_partitionable(partitionable):
            results.append(J.jit(_drawn(J, impl))(1701))
    _same(*results)


# JAX 0.10.2's: the bits of a key, and the second key of its split. JAX takes ten seconds to compile them.
WORDS = {
    "threefry4x32": ([2739996017, 3649338001, 3087855958, 731494402, 64614064], [361144456, 1418825268, 1547191614, 2559243763]),
    "philox4x32": ([1373712901, 3223971023, 2207559167, 2345961807, 3130401370], [969239790, 3857553174]),
    "unsafe_rbg": ([2620864722, 2991908441, 282133475, 2589630650, 1779689962], [4105776319, 298289174, 864345282, 274752888]),
}


@pytest.mark.parametrize("impl", WORDS)
def test_words_of_generators_that_jax_compiles_slowly(impl):
    key = OURS.random.key(42, impl=impl)
    bits, second = OURS.random.bits(key, (5,)), OURS.random.key_data(OURS.random.split(key)[1])
    assert (bits.tolist(), second.tolist()) == WORDS[impl]


@pytest.mark.slow  # by default the bits of generators have many counters
def test_threefry_of_one_counter():
    results = []
    for J in (THEIRS, OURS):
        with J.threefry_partitionable(False):
            results.append(J.jit(_drawn(J, "threefry2x32"))(1701))
    _same(*results)
    with OURS.threefry_partitionable(False):
        _same(results[0], _drawn(OURS, "threefry2x32")(1701))  # operation by operation
    assert not np.array_equal(results[1]["32 (7,)"], _drawn(OURS, "threefry2x32")(1701)["32 (7,)"])


@pytest.mark.parametrize("impl", one_in(2, ["threefry2x32", "threefry4x32", "philox2x32", "philox4x32"]))
def test_words_of_64_bits(impl):
    results = []
    for J in (THEIRS, OURS):
        with J.enable_x64(True), J.threefry_partitionable(False):
            key = J.random.key(2**40 + 3, impl=impl)
            results.append({"bits": J.random.bits(key, (5,), "uint64"), "key": J.random.key_data(key)})
    _same(*results)


def test_more_numbers_than_counters():
    key = OURS.random.key(0, impl="philox4x32")
    with pytest.raises(NotImplementedError, match="Split the key"):
        OURS.jit(lambda: OURS.random.bits(key, (3, 1 << 31)))()


def test_the_generator_is_that_of_the_key():
    for J in (THEIRS, OURS):
        for impl, tag, words in (("rbg", "rbg", 4), ("unsafe_rbg", "urbg", 4), ("philox2x32", "phx2", 1)):
            key = J.random.key(0, impl=impl)
            assert str(key.dtype) == f"key<{tag}>" and J.random.key_impl(key) == impl
            assert J.random.split(key).dtype == key.dtype == J.random.fold_in(key, 1).dtype
            assert J.random.key_data(key).shape == (words,)
            assert J.random.wrap_key_data(J.random.key_data(key), impl=impl).dtype == key.dtype
        with J.default_prng_impl("rbg"):
            assert J.random.PRNGKey(3).shape == (4,)
            assert J.random.key_impl(J.random.key(3)) == "rbg"
            assert J.random.split(J.random.PRNGKey(3)).shape == (2, 4)
    texts = {
        str(J.make_jaxpr(lambda k, J=J: J.random.bits(J.random.split(k)[0], (2,)))(J.random.key(0, impl="rbg")))
        for J in (THEIRS, OURS)
    }
    assert len(texts) == 1


def test_a_batch_of_states_draws_from_its_first():
    results = []
    for J in (THEIRS, OURS):
        states = J.numpy.arange(8, dtype="uint32").reshape(2, 4)
        state, bits = J.vmap(lambda s, J=J: J.lax.rng_bit_generator(s, (3,)))(states)
        results.append({"state": state, "bits": bits})
    _same(*results)
