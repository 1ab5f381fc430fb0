"""Generators that are programs: `rbg`, `unsafe_rbg`, hashes of counters, threefry2x32 with one counter for a result.

Each generator works on the uint32 words of a single key, and is mapped over arrays of keys. `rbg` splits keys as
threefry2x32 does and draws bits by Philox, which is faster for large results. `unsafe_rbg` also splits by Philox; the
quality of such keys is not proven. For a batch of keys under `vmap`, both draw from the first key, as
`lax.rng_bit_generator` does.

With the option jax_threefry_partitionable off, threefry2x32 hashes pairs of counters from the two halves of a result,
as JAX did for years: the bits of old runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base import config
from mpijax.core.base.option import values as options
from mpijax.core.rules.lowering import Decompose
from mpijax.core.types.avals import number_of
from mpijax.core.types.typeof import typeof
from mpijax.ops.random import keys as ops
from mpijax.random.counter_hashes import HASHES
from mpijax.transforms.vmap import vmap

_UINT32 = np.dtype(np.uint32)


class Generator(NamedTuple):
    """A generator on the words of one key. `seed(number)`, `split(key, shape)` and `fold_in(key, number)` return words
    of keys; `bits(key, bit_width, shape)` returns unsigned integers."""

    seed: Callable[..., Any]
    split: Callable[..., Any]
    fold_in: Callable[..., Any]
    bits: Callable[..., Any]


# ---------------------------------------------------------------- threefry2x32


def _seed(seed: Any) -> Any:
    """The high and the low 32 bits."""
    wide = typeof(seed).dtype.itemsize == 8
    high = lax.shift_right_logical(seed, jnp.asarray(32, typeof(seed).dtype)) if wide else jnp.zeros((), _UINT32)
    return jnp.stack([lax.convert_element_type(x, _UINT32) for x in (high, seed)])


def hashes(key: Any, counters: Any) -> Any:
    """The hashes of counters [n] with the two words of a key. The first half of the counters is paired with the second
    half."""
    n = counters.shape[0]
    padded = lax.pad(counters, _UINT32.type(0), [(0, n % 2, 0)])
    first, second = jnp.split(padded, 2)
    return lax.concatenate(ops.threefry2x32(key[0], key[1], first, second), 0)[:n]


def _split(key: Any, shape: tuple[int, ...]) -> Any:
    if options.jax_threefry_partitionable:
        return _words(ops.random_split_p.bind(_keys(key), shape=shape))
    return hashes(key, lax.iota(_UINT32, math.prod(shape) * 2)).reshape(*shape, 2)


def _fold_in(key: Any, data: Any) -> Any:
    return _words(ops.random_fold_in_p.bind(_keys(key), data))


def _bits(key: Any, bit_width: int, shape: tuple[int, ...]) -> Any:
    """Bits in memory order, taken from 32-bit hashes. 64-bit numbers have their high words in the first half."""
    size = math.prod(shape)
    words = hashes(key, lax.iota(_UINT32, -(-bit_width * size // 32)))
    if bit_width == 64:
        dtype = dtypes.granted_dtype(np.dtype(np.uint64))
        high, low = (lax.convert_element_type(x, dtype) for x in jnp.split(words, 2))
        shift = number_of(32, dtype)
        return (lax.shift_left(high, jnp.broadcast_to(shift, high.shape)) | low).reshape(shape)
    if bit_width < 32:
        shifts = np.arange(0, 32, bit_width, dtype=np.uint32)
        pieces = lax.shift_right_logical(*jnp.broadcast_arrays(words[:, None], shifts))
        words = lax.convert_element_type(pieces, np.dtype(f"uint{bit_width}")).reshape(-1)[:size]
    return words.reshape(shape)


def _keys(words: Any) -> Any:
    return ops.random_wrap(words, ops.threefry_prng_impl)


def _words(keys: Any) -> Any:
    return ops.random_unwrap(keys)


# ---------------------------------------------------------------- rbg, unsafe_rbg


def _rbg_seed(seed: Any) -> Any:
    half = _seed(seed)
    return lax.concatenate([half, half], 0)


def _rbg_split(key: Any, shape: tuple[int, ...]) -> Any:
    halves = [_split(half, shape) for half in (key[:2], key[2:])]
    return lax.concatenate(halves, len(shape))


def _rbg_fold_in(key: Any, data: Any) -> Any:
    return lax.concatenate([_fold_in(half, data) for half in (key[:2], key[2:])], 0)


def _rbg_bits(key: Any, bit_width: int, shape: tuple[int, ...]) -> Any:
    return lax.rng_bit_generator(key, shape, dtypes.granted_dtype(np.dtype(f"uint{bit_width}")))[1]


# The number of draws for one hash.
_TURNS = 10


def _unsafe_split(key: Any, shape: tuple[int, ...]) -> Any:
    drawn = lax.rng_bit_generator(key, (_TURNS * math.prod(shape), 4))[1]
    return drawn[::_TURNS].reshape(*shape, 4)


def _unsafe_fold_in(key: Any, data: Any) -> Any:
    return key ^ lax.rng_bit_generator(_rbg_seed(data), (_TURNS, 4))[1][-1]


_GENERATORS = {
    "threefry2x32": Generator(_seed, _split, _fold_in, _bits),
    "rbg": Generator(_rbg_seed, _rbg_split, _rbg_fold_in, _rbg_bits),
    "unsafe_rbg": Generator(_rbg_seed, _unsafe_split, _unsafe_fold_in, _rbg_bits),
    **{
        name: Generator(lambda seed, h=h: h.seed(_seed(seed)), h.split, h.fold_in, h.bits)  # type: ignore[misc]
        for name, h in HASHES.items()
    },
}
_TAGS = {"rbg": "rbg", "unsafe_rbg": "urbg", "threefry4x32": "fry4", "philox2x32": "phx2", "philox4x32": "phx4"}


def _generator(impl: Any) -> Generator:
    """The functions of a generator; a user may have defined them (`mpijax.extend.random`)."""
    return getattr(impl, "generator", None) or _GENERATORS[impl.name]


for _name, _tag in _TAGS.items():
    ops.prngs[_name] = ops.PRNGImpl(_name, _tag, (HASHES[_name].of_key if _name in HASHES else 4,))


# ---------------------------------------------------------------- for arrays of keys


def _mapped(fun: Callable[..., Any], ndim: int) -> Callable[..., Any]:
    return _mapped(vmap(fun), ndim - 1) if ndim else fun


def _seed_keys(seeds: Any, *, impl: Any) -> Any:
    return ops.random_wrap(_mapped(_generator(impl).seed, typeof(seeds).ndim)(seeds), impl)


def _split_keys(keys: Any, *, shape: Any) -> Any:
    impl = keys.dtype._impl
    one = lambda key: _generator(impl).split(key, tuple(shape))
    return ops.random_wrap(_mapped(one, keys.ndim)(_words(keys)), impl)


def _fold_in_keys(keys: Any, msgs: Any) -> Any:
    impl, shape = keys.dtype._impl, np.broadcast_shapes(keys.shape, msgs.shape)
    keys, msgs = (jnp.broadcast_to(x, shape) for x in (keys, lax.convert_element_type(msgs, _UINT32)))
    return ops.random_wrap(_mapped(_generator(impl).fold_in, len(shape))(_words(keys), msgs), impl)


def _bits_of_keys(keys: Any, *, bit_width: int, shape: Any) -> Any:
    one = lambda key: _generator(keys.dtype._impl).bits(key, bit_width, tuple(shape))
    return _mapped(one, keys.ndim)(_words(keys))


def _define(plain: Any, program: Callable[..., Any], partitionable: bool) -> None:
    """The primitive that `plain` is for generators that are programs; it prints alike."""

    def decomposed(*args: Any, **params: Any) -> Any:
        with config.threefry_partitionable(partitionable):
            return program(*args, **params)

    kind = "composed" if partitionable else "of_one_counter"
    primitive = ops.define(
        plain.name, type_rule=plain.type_rule, reference=decomposed, lower=Decompose(decomposed),
        key=f"{plain.name}_{kind}", keys=plain.keys,
    )  # fmt: skip
    if plain is ops.random_fold_in_p:
        primitive.batch = ops.broadcast_batch(lambda: primitive)
    ops.composed[plain.name, partitionable] = primitive


for _flag in (True, False):
    _define(ops.random_seed_p, _seed_keys, _flag)
    _define(ops.random_split_p, _split_keys, _flag)
    _define(ops.random_fold_in_p, _fold_in_keys, _flag)
    _define(ops.random_bits_p, _bits_of_keys, _flag)
