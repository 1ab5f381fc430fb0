"""The default generator as functions of the two uint32 words of a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.extend.random import threefry_2x32, threefry_prng_impl
from mpijax.ops.random.keys import random_fold_in_p, random_seed, random_split_p, random_unwrap, random_wrap
from mpijax.random.uniform import bits

__all__ = [
    "threefry_2x32",
    "threefry_fold_in",
    "threefry_prng_impl",
    "threefry_random_bits",
    "threefry_seed",
    "threefry_split",
]


def threefry_seed(seed: Any) -> Any:
    """The words of a key, from an integer."""
    return random_unwrap(random_seed(seed, threefry_prng_impl))


def threefry_split(key: Any, shape: Sequence[int]) -> Any:
    """The words of new keys: `[*shape, 2]`."""
    return random_unwrap(random_split_p.bind(random_wrap(key, threefry_prng_impl), shape=tuple(shape)))


def threefry_fold_in(key: Any, data: Any) -> Any:
    """The words of a new key, from a key and an integer."""
    return random_unwrap(random_fold_in_p.bind(random_wrap(key, threefry_prng_impl), data))


def threefry_random_bits(key: Any, bit_width: int, shape: Sequence[int]) -> Any:
    """Unsigned integers of 8, 16, 32 or 64 bits."""
    return bits(random_wrap(key, threefry_prng_impl), tuple(shape), np.dtype(f"uint{bit_width}"))
