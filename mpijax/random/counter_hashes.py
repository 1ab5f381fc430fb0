"""Generators that hash counters: threefry4x32, philox2x32 and philox4x32, as in JAX.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011). A hash mixes the words of a key into the words of a
counter. Each key and each element of a result has its own counter, so
ranks draw their parts without communication.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes

_UINT32 = np.dtype(np.uint32)
Words = Sequence[Any]


class CounterHash(NamedTuple):
    """`mix(key, counter)` returns as many words as the counter has.

    of_key, of_counter: number of words of a key and of a counter. seeds_key: whether a seed is mixed as a key instead
    of a counter. wide: the high and the low word of a 64-bit number, from the hash.
    """

    mix: Callable[[Words, Words], list[Any]]
    of_key: int
    of_counter: int
    seeds_key: bool
    wide: Callable[[list[Any]], Words]

    def seed(self, halves: Words) -> Any:
        """The key for a seed of two words."""
        key, counter = (halves, []) if self.seeds_key else ([], halves)
        return self._key(self.mix(_filled(key, self.of_key), _filled(counter, self.of_counter)))

    def split(self, key: Any, shape: tuple[int, ...]) -> Any:
        """New keys, from the last counters."""
        return self._key(self.mix(list(key), _filled(_counts(shape), -self.of_counter)))

    def fold_in(self, key: Any, data: Any) -> Any:
        return self._key(self.mix(list(key), _filled([data], -self.of_counter)))

    def bits(self, key: Any, bit_width: int, shape: tuple[int, ...]) -> Any:
        """Random numbers, from the first counters."""
        out = self.mix(list(key), _filled(_counts(shape), self.of_counter))
        dtype = dtypes.granted_dtype(np.dtype(f"uint{bit_width}"))
        if bit_width < 64:
            return lax.convert_element_type(reduce(lax.bitwise_xor, out), dtype)
        high, low = (lax.convert_element_type(x, dtype) for x in self.wide(out))
        return lax.shift_left(high, jnp.full(shape, 32, dtype)) | low

    def _key(self, words: list[Any]) -> Any:
        return jnp.stack(words[: self.of_key], axis=-1)


def _filled(words: Words, count: int) -> list[Any]:
    """`count` words: the given words, then zeros; zeros first if `count` is negative."""
    zeros = [_UINT32.type(0)] * (abs(count) - len(words))
    return [*words, *zeros] if count > 0 else [*zeros, *words]


def _counts(shape: tuple[int, ...]) -> Words:
    """The number of each element in row-major order, as high and low words."""
    if math.prod(shape) > 1 << 32:
        raise NotImplementedError(
            f"Random bits of shape {shape} are more than 2**32 elements of one key. Split the key and draw several "
            "parts, or use impl='threefry2x32'."
        )
    places = [lax.broadcasted_iota(_UINT32, shape, axis) for axis in range(len(shape))]
    strides = [_UINT32.type(math.prod(shape[axis + 1 :]) % (1 << 32)) for axis in range(len(shape))]
    low = sum((place * stride for place, stride in zip(places, strides, strict=True)), jnp.zeros(shape, _UINT32))
    return jnp.zeros(shape, _UINT32), low


# ---------------------------------------------------------------- hashes

# Odd multipliers, and the numbers to add to the words of the key before each round except the first (Random123).
_PHILOX2, _PHILOX4, _WEYL = (0xD256D193,), (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_ROUNDS_OF_PHILOX = 10


def _products(x: Any, factor: int) -> tuple[Any, Any]:
    """The high and the low words of products."""
    factors = jnp.full(jnp.shape(x), factor, _UINT32)
    return lax.mulhi(x, factors), x * factors


def _philox2x32(key: Words, counter: Words) -> list[Any]:
    [k], (x, y) = key, map(jnp.asarray, counter)
    for turn in range(_ROUNDS_OF_PHILOX):
        high, low = _products(x, *_PHILOX2)
        x, y = high ^ y ^ (k + _UINT32.type(turn * _WEYL[0] % (1 << 32))), low
    return [x, y]


def _philox4x32(key: Words, counter: Words) -> list[Any]:
    x, y, z, w = map(jnp.asarray, counter)
    for turn in range(_ROUNDS_OF_PHILOX):
        k, m = (part + _UINT32.type(turn * weyl % (1 << 32)) for part, weyl in zip(key, _WEYL, strict=True))
        (high, low), (other_high, other_low) = _products(x, _PHILOX4[0]), _products(z, _PHILOX4[1])
        x, y, z, w = other_high ^ y ^ k, other_low, high ^ w ^ m, low
    return list(jnp.broadcast_arrays(x, y, z, w))


_ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
_PARITY = 0x1BD11BDA
_ROUNDS_OF_THREEFRY = 20


def _rotated(x: Any, by: int) -> Any:
    return (x << _UINT32.type(by)) | (x >> _UINT32.type(32 - by))


def _threefry4x32(key: Words, counter: Words) -> list[Any]:
    keys = [*map(jnp.asarray, key)]
    keys.append(reduce(lax.bitwise_xor, keys) ^ _UINT32.type(_PARITY))
    x = [c + k for c, k in zip(map(jnp.asarray, counter), keys, strict=False)]
    for turn in range(_ROUNDS_OF_THREEFRY):
        pairs = ((0, 1), (2, 3)) if turn % 2 == 0 else ((0, 3), (2, 1))
        for (a, b), by in zip(pairs, _ROTATIONS[turn % 8], strict=True):
            x[a] = x[a] + x[b]
            x[b] = x[a] ^ _rotated(x[b], by)
        if turn % 4 == 3:
            number = turn // 4 + 1
            x = [word + keys[(i + number) % 5] for i, word in enumerate(x)]
            x[3] = x[3] + _UINT32.type(number)
    return x


HASHES = {
    "threefry4x32": CounterHash(_threefry4x32, 4, 4, True, lambda x: (x[0] ^ x[2], x[1] ^ x[3])),
    "philox2x32": CounterHash(_philox2x32, 1, 2, False, lambda x: x[:2]),
    "philox4x32": CounterHash(_philox4x32, 2, 4, False, lambda x: x[:2]),
}
