"""``jax.experimental.custom_partitioning``: functions with a partitioning that a user has written for XLA.

mpijax partitions the function itself, operation by operation. It never calls the functions of `def_partition`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from mpijax import missing as _missing
from mpijax.transforms.jit import jit

__all__ = ["custom_partitioning"]


class custom_partitioning:
    """The function under `jit`. Use it as in JAX: `@custom_partitioning`, then `f.def_partition(...)`.

    >>> from mpijax.experimental.custom_partitioning import custom_partitioning
    >>> double = custom_partitioning(lambda x: 2 * x)
    >>> double.def_partition(partition=None, sharding_rule="i -> i")
    >>> double(jnp.arange(3))
    Array([0, 2, 4], dtype=int32)
    """

    def __init__(self, fun: Callable, static_argnums: int | Sequence[int] = ()):
        functools.update_wrapper(self, fun)
        self.fun = fun
        self._call = jit(fun, static_argnums=static_argnums)

    def def_partition(
        self,
        partition: Callable | None,
        infer_sharding_from_operands: Callable | None = None,
        propagate_user_sharding: Callable | None = None,
        decode_shardings: bool = True,
        sharding_rule: Any = None,
        **factors: Any,
    ) -> Callable | None:
        """Accepts JAX's arguments, has no effect, and returns `partition`."""
        return partition

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)


def __getattr__(name: str) -> Any:
    raise _missing.error(__name__, name)
