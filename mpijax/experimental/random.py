"""``mpijax.experimental.random``: a random number generator with a state, as NumPy's.

The generator folds its key with a count of its draws. The count is a mutable array reference, so the generator works
inside `jit` and `vmap`. You can pass it to functions as a pytree, but, like all references, you cannot return it.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax import numpy as jnp
from mpijax import random
from mpijax.core import dtypes
from mpijax.core.tracing.refs import Ref, new_ref
from mpijax.core.tracing.trace import trace_state_clean
from mpijax.core.trees.tree import register_dataclass

__all__ = ["StatefulPRNG", "stateful_rng"]

Size = int | Sequence[int] | None


def _shape(size: Size, *parameters: Any) -> tuple[int, ...]:
    if size is None:
        return np.broadcast_shapes(*map(np.shape, parameters))
    if isinstance(size, (int, np.number)):
        return (operator.index(size),)
    return tuple(map(operator.index, size))


@register_dataclass
@dataclasses.dataclass(frozen=True, slots=True)
class StatefulPRNG:
    """A random number generator with a state. `stateful_rng` makes one.

    >>> rng = mpijax.experimental.random.stateful_rng(42)
    >>> rng.uniform(), rng.uniform()
    (Array(0.5302608, dtype=float32), Array(0.72766423, dtype=float32))
    """

    _base_key: Any
    _counter: Any

    def __post_init__(self) -> None:
        # Transformations rebuild trees from other objects, too; they are not checked.
        if type(self._base_key) is object:
            return
        if not dtypes.issubdtype(getattr(self._base_key, "dtype", np.dtype(bool)), dtypes.prng_key):
            raise ValueError(
                f"Expected base_key to be a typed PRNG key; got {self._base_key}. Make one with jax.random.key(seed)."
            )
        if not isinstance(self._counter, Ref):
            raise ValueError(
                f"Expected counter to be a scalar integer ref; got {self._counter}. Make one with jax.new_ref(0)."
            )

    def key(self, shape: int | Sequence[int] = ()) -> Any:
        """A new key, or an array of keys of shape `shape`. The next call returns other keys.

        >>> mpijax.experimental.random.stateful_rng(0).key((2,)).shape
        (2,)
        """
        if self._base_key.shape:
            raise ValueError(
                f"This generator is split into an array of shape {self._base_key.shape}. Pass it to a function under "
                "jax.vmap, which maps over its generators."
            )
        key = random.fold_in(self._base_key, self._counter[...])
        self._counter[...] += 1
        drawn = _shape(shape)
        return random.split(key, drawn) if drawn else key

    def random(self, size: Size = None, dtype: Any = float) -> Any:
        """Uniform floats in [0, 1).

        >>> mpijax.experimental.random.stateful_rng(0).random(3).shape
        (3,)
        """
        return random.uniform(self.key(), _shape(size), dtype)

    def uniform(self, low: Any = 0, high: Any = 1, size: Size = None, *, dtype: Any = float) -> Any:
        """Uniform floats in [low, high); the bounds broadcast.

        >>> mpijax.experimental.random.stateful_rng(0).uniform(np.zeros(2), 9).shape
        (2,)
        """
        return random.uniform(self.key(), _shape(size, low, high), dtype, low, high)

    def normal(self, loc: Any = 0, scale: Any = 1, size: Size = None, *, dtype: Any = float) -> Any:
        """Normal floats with mean `loc` and standard deviation `scale`, which broadcast.

        >>> mpijax.experimental.random.stateful_rng(0).normal(5, 2, (2, 3)).shape
        (2, 3)
        """
        drawn = random.normal(self.key(), _shape(size, loc, scale), dtype)
        return (jnp.asarray(loc) + jnp.asarray(scale) * drawn).astype(dtype)

    def integers(self, low: Any, high: Any = None, size: Size = None, *, dtype: Any = int) -> Any:
        """Uniform integers in [low, high), or in [0, low) without `high`.

        >>> mpijax.experimental.random.stateful_rng(0).integers(6, size=4).dtype
        dtype('int32')
        """
        if high is None:
            low, high = 0, low
        return random.randint(self.key(), _shape(size, low, high), low, high, dtype)

    def split(self, num: int | Sequence[int]) -> StatefulPRNG:
        """A generator with `num` independent parts, for a function under `vmap`.

        >>> rng = mpijax.experimental.random.stateful_rng(123)
        >>> mpijax.vmap(lambda r, x: x + r.uniform())(rng.split(3), jnp.zeros(3))
        Array([0.35525954, 0.21937883, 0.5336956 ], dtype=float32)
        """
        return StatefulPRNG(self.key(num), new_ref(jnp.zeros(num, int)))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """A list of independent generators.

        >>> [r.integers(0, 10, 2).tolist() for r in mpijax.experimental.random.stateful_rng(123).spawn(2)]
        [[4, 5], [2, 1]]
        """
        return [StatefulPRNG(key, new_ref(0)) for key in self.key(n_children)]


def stateful_rng(seed: Any = None, *, impl: Any = None) -> StatefulPRNG:
    """A random number generator with a state, like `numpy.random.default_rng`.

    >>> rng = mpijax.experimental.random.stateful_rng(42)
    >>> mpijax.jit(rng.uniform)(), rng.uniform()
    (Array(0.5302608, dtype=float32), Array(0.72766423, dtype=float32))

    Args:
      seed: an integer. With the same seed, all ranks draw the same numbers. None (only outside of traced functions):
        the operating system draws a different seed on each rank.
      impl: the generator of the bits; see `mpijax.random.key`.

    Raises:
      TypeError: `seed` is None inside a traced function.
    """
    if seed is None:
        if not trace_state_clean():
            raise TypeError(
                "When used within transformed code, jax.experimental.random.stateful_rng() requires an explicit seed "
                "to be set."
            )
        entropy: Any = np.random.SeedSequence().entropy
        seed = np.int64(entropy & np.iinfo(np.int64).max)
    return StatefulPRNG(random.key(seed, impl=impl), new_ref(0))
