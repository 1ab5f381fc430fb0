"""``mpijax.extend.random``: random number generators: mpijax's own, and user-defined ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.records.plain import NotSerializable
from mpijax.core.types.typeof import typeof
from mpijax.numpy.creation.constructors import asarray
from mpijax.ops.random.keys import PRNGImpl, prngs, random_seed, threefry2x32_p, threefry_prng_impl
from mpijax.random.generators import Generator, hashes
from mpijax.random.keys import PRNGSpec

__all__ = [
    "define_prng_impl", "random_seed", "rbg_prng_impl", "seed_with_impl", "threefry2x32_p", "threefry_2x32",
    "threefry_prng_impl", "unsafe_rbg_prng_impl",
]  # fmt: skip

rbg_prng_impl, unsafe_rbg_prng_impl = prngs["rbg"], prngs["unsafe_rbg"]


@dataclass(frozen=True)
class _DefinedImpl(PRNGImpl):
    """A user-defined generator, whose keys are stored as rows of words. Equal if the functions are equal.

    data_shape: the shape of a key's words as its functions see it.
    """

    data_shape: tuple[int, ...]
    functions: Generator

    @property
    def generator(self) -> Generator:
        """The functions, on rows of words."""
        given, shape, words = self.functions, self.data_shape, self.key_shape
        return Generator(
            seed=lambda number: given.seed(number).reshape(words),
            split=lambda key, count: given.split(key.reshape(shape), count).reshape(*count, *words),
            fold_in=lambda key, number: given.fold_in(key.reshape(shape), number).reshape(words),
            bits=lambda key, width, count: given.bits(key.reshape(shape), width, count),
        )

    def _plain_(self) -> tuple[str]:
        raise NotSerializable(
            f"Keys of the generator {self.name!r} cannot be serialised, because define_prng_impl defined it by Python "
            "functions. Export a program that takes the data of keys (mpijax.random.key_data)."
        )


def define_prng_impl(
    *,
    key_shape: tuple[int, ...],
    seed: Callable[[Any], Any],
    split: Callable[[Any, tuple[int, ...]], Any],
    random_bits: Callable[[Any, int, tuple[int, ...]], Any],
    fold_in: Callable[[Any, Any], Any],
    name: str = "<unnamed>",
    tag: str = "?",
) -> PRNGSpec:
    """A user-defined generator, to pass as `impl` to `random.key` and `random.wrap_key_data`.

    Its functions take the words of one key, uint32 [*key_shape]. They are traced, and mapped over arrays of keys.

    Args:
      key_shape: shape of the words of a key.
      seed: an integer -> words.
      split: words, shape -> words of new keys, uint32 [*shape, *key_shape].
      random_bits: words, bit width (8, 16, 32 or 64), shape -> unsigned integers of that width and shape.
      fold_in: words, uint32 number -> words.
      name: for messages. tag: for types, as in ``key<fry>``.

    >>> bits = lambda words, width, shape: jnp.full(shape, words[0], f"uint{width}")
    >>> copies = lambda words, shape: jnp.broadcast_to(words, (*shape, 1))
    >>> constant = mpijax.extend.random.define_prng_impl(
    ...     key_shape=(1,), seed=lambda n: jnp.full(1, n, "uint32"), split=copies, random_bits=bits,
    ...     fold_in=lambda words, n: words + n, tag="same")
    >>> key = mpijax.random.key(7, impl=constant)
    >>> key.dtype, mpijax.random.bits(key, (3,))
    (key<same>, Array([7, 7, 7], dtype=uint32))
    """
    functions = Generator(seed, split, fold_in, random_bits)
    return PRNGSpec(_DefinedImpl(name, tag, (math.prod(key_shape),), tuple(key_shape), functions))


def seed_with_impl(impl: PRNGImpl, seed: Any) -> Any:
    """A key of a generator, from an integer.

    >>> mpijax.extend.random.seed_with_impl(mpijax.extend.random.threefry_prng_impl, 7) == mpijax.random.key(7)
    Array(True, dtype=bool)
    """
    return random_seed(seed, impl=impl)


def threefry_2x32(keypair: Any, count: Any) -> Any:
    """The threefry2x32 hashes of an array of counters; the first half is paired with the second.

    Args:
      keypair: the two words of a key, uint32.
      count: uint32 array of any shape; the result has its shape and dtype.

    Raises:
      TypeError: for any other dtype.

    >>> mpijax.extend.random.threefry_2x32((jnp.uint32(0), jnp.uint32(1)), jnp.arange(2, dtype="uint32")).dtype
    dtype('uint32')
    """
    first, second = keypair
    found = [typeof(x).dtype for x in (first, second, count)]
    if any(d != np.uint32 for d in found):
        raise TypeError(f"threefry_2x32 requires uint32 arguments, got {found}")
    return hashes((first, second), asarray(count).reshape(-1)).reshape(typeof(count).shape)
