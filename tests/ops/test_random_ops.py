"""Keys and random bits against JAX: the same keys, the same bits, the same programs."""

from __future__ import annotations

import jax
import jax.random as jr
import numpy as np
import pytest
from quickly import one_in

from mpijax import lax
from mpijax.ops.random import keys as ops
from mpijax.transforms import api
from mpijax.transforms.vmap import vmap

SEED = np.int32(42)
NUMBERS = np.arange(4, dtype=np.uint32)


def words(keys):
    """The words of JAX's keys; anything else as it is."""
    return np.asarray(jr.key_data(keys) if jax.dtypes.issubdtype(keys.dtype, jax.dtypes.prng_key) else keys)


def unwrapped(keys):
    return np.asarray(ops.random_unwrap(keys) if not isinstance(keys.dtype, np.dtype) else keys)


def gather_numbers(system):
    return system.GatherDimensionNumbers((), (0,), (0,))


# name: our program of a key array of shape (4,), JAX's
PROGRAMS = {
    "split": (lambda k: vmap(lambda x: ops.random_split(x, (3,)))(k), jax.vmap(lambda x: jr.split(x, 3))),
    "split 2d": (
        lambda k: vmap(lambda x: ops.random_split(x, (3, 2)), out_axes=1)(k),
        jax.vmap(lambda x: jr.split(x, (3, 2)), out_axes=1),
    ),
    "fold_in": (
        lambda k: vmap(lambda x, d: ops.random_fold_in(x, d))(k, NUMBERS),
        lambda k: jax.vmap(jr.fold_in)(k, NUMBERS),
    ),
    "bits": (lambda k: vmap(lambda x: ops.random_bits(x, 32, (5,)))(k), jax.vmap(lambda x: jr.bits(x, (5,)))),
    "bits 16": (
        lambda k: vmap(lambda x: ops.random_bits(x, 16, (5, 3)))(k),
        jax.vmap(lambda x: jr.bits(x, (5, 3), np.uint16)),
    ),
    "clone": (lambda k: ops.random_clone(k), lambda k: jr.clone(k)),
    "unwrap": (ops.random_unwrap, jr.key_data),
    "wrap": (
        lambda k: ops.random_wrap(lax.rev(ops.random_unwrap(k), (1,))),
        lambda k: jr.wrap_key_data(jax.lax.rev(jr.key_data(k), (1,))),
    ),
}
MOVES = {
    "reshape": lambda s, k: s.reshape(k, (2, 2)),
    "broadcast": lambda s, k: s.broadcast_in_dim(k, (3, 4), (1,)),
    "slice": lambda s, k: s.slice(k, (1,), (3,)),
    "concatenate": lambda s, k: s.concatenate([k, k], 0),
    "dynamic_slice": lambda s, k: s.dynamic_slice(k, (1,), (2,)),
    "rev": lambda s, k: s.rev(k, (0,)),
    "gather": lambda s, k: s.gather(k, np.array([[1], [0]], np.int32), gather_numbers(s), (1,)),
    "transpose": lambda s, k: s.transpose(s.reshape(k, (2, 2)), (1, 0)),
}
PROGRAMS |= {name: (lambda k, f=f: f(lax, k), lambda k, f=f: f(jax.lax, k)) for name, f in MOVES.items()}


def our_keys():
    return ops.random_split(ops.random_seed(SEED), (4,))


def jax_keys():
    return jr.split(jr.key(SEED), 4)


@pytest.mark.parametrize("name", one_in(3, PROGRAMS))
def test_programs(name):
    """Eager and compiled results, and the text of the program."""
    ours, theirs = PROGRAMS[name]
    wanted = words(theirs(jax_keys()))
    for fun in (ours, api.jit(ours)):
        got = unwrapped(fun(our_keys()))
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    assert str(api.make_jaxpr(ours)(our_keys())) == str(jax.make_jaxpr(theirs)(jax_keys()))


@pytest.mark.parametrize("seed", [0, 1, -1, 2**31 - 1, 2**40 + 5, -(2**35)])
def test_seeds(seed):
    """Python integers of any size, and arrays of them."""
    np.testing.assert_array_equal(unwrapped(ops.random_seed(seed)), words(jr.key(seed)))


@pytest.mark.sweep
@pytest.mark.parametrize("width", [8, 16, 32])
@pytest.mark.parametrize("shape", [(), (3,), (5, 2), (0,), (1025,)])
@pytest.mark.one_in(2)
def test_bits(shape, width):
    wanted = jr.bits(jr.key(7), shape, np.dtype(f"uint{width}"))
    key = ops.random_seed(7)
    np.testing.assert_array_equal(ops.random_bits(key, width, shape), wanted)
    reference = ops.random_bits_p.reference(unwrapped(key), bit_width=width, shape=shape)
    np.testing.assert_array_equal(reference, wanted)


def test_one_key_folded_with_many_numbers():
    got = vmap(lambda d: ops.random_fold_in(ops.random_seed(SEED), d))(NUMBERS)
    wanted = jax.vmap(lambda d: jr.fold_in(jr.key(SEED), d))(NUMBERS)
    np.testing.assert_array_equal(unwrapped(got), words(wanted))


def test_hash():
    """The published test vectors of Threefry 2x32 with 20 rounds, in NumPy and compiled."""
    vectors = [
        ((0, 0, 0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 4, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]
    for given, wanted in vectors:
        given = [np.uint32(x) for x in given]
        assert tuple(map(int, ops.hash_numpy(*given))) == wanted
        assert tuple(int(x) for x in ops.threefry2x32(*given)) == wanted


def test_errors():
    key = ops.random_seed(0)
    with pytest.raises(TypeError, match="random_unwrap takes key array operand"):
        ops.random_unwrap(NUMBERS)
    with pytest.raises(TypeError, match="expected key_data.shape to end with"):
        ops.random_wrap(NUMBERS)
    with pytest.raises(TypeError, match="expected key_data.dtype = uint32"):
        ops.random_wrap(np.zeros(2, np.float32))
    with pytest.raises(TypeError, match="PRNG key seed must be an integer"):
        ops.random_seed(1.5)
    with pytest.raises(TypeError, match=r"random_bits shape must have every element be nonnegative, got \(-1,\)"):
        ops.random_bits(key, 32, (-1,))
    with pytest.raises(TypeError, match=r"random_split shape must have every element be nonnegative, got \(2, -1\)"):
        ops.random_split(key, (2, -1))
    with pytest.raises(TypeError, match="requires 8-, 16-, 32- or 64-bit field width"):
        ops.random_bits(key, 12, (3,))
