"""``jax.experimental.pjit``: `mpijax.jit` under its older name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any

from mpijax.core.sharding.context import context_mesh
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.trees import tree
from mpijax.spmd.constraints import with_sharding_constraint
from mpijax.transforms.jit import jit

__all__ = ["pjit", "with_sharding_constraint"]

_FREE: Any = object()


def pjit(fun: Callable, in_shardings: Any = _FREE, out_shardings: Any = _FREE, **options: Any) -> Any:
    """`jit` that also uses the mesh of `with mesh:`. Results without a sharding are placed on that mesh, and None as a
    sharding means that every device of the mesh has the whole array.

    Args:
      fun: a function of pytrees of arrays.
      in_shardings, out_shardings: as for `jit`. By default, arguments keep their shardings, and the program chooses
        those of results.
      options: options of `jit`.

    >>> from mpijax.experimental.pjit import pjit
    >>> with mpijax.make_mesh((1,), ("x",)):
    ...     pjit(lambda x: 2 * x, in_shardings=mpijax.P("x"), out_shardings=None)(jnp.arange(3))
    Array([0, 2, 4], dtype=int32)
    """
    given = {"in_shardings": in_shardings, "out_shardings": out_shardings}
    given = {name: shardings for name, shardings in given.items() if shardings is not _FREE}
    if any(x is None for shardings in given.values() for x in tree.tree_leaves(shardings, is_leaf=_is_none)):
        return _ByContext(fun, given, options)
    return _over_mesh(jit(fun, **given, **options))


def _over_mesh(jitted: Any) -> Any:
    jitted._over_mesh = True
    if jitted._shardings is not None:
        jitted._shardings.name = "pjit"
    jitted._share_programs()
    return jitted


class _ByContext:
    """Two programs of one function: for calls with a mesh in context, and without."""

    def __init__(self, fun: Callable, given: dict[str, Any], options: dict[str, Any]):
        update_wrapper(self, fun)
        self._fun, self._given, self._options = fun, given, options

    @cached_property
    def _alone(self) -> Any:
        return _over_mesh(jit(self._fun, **self._given, **self._options))

    @cached_property
    def _over_mesh(self) -> Any:
        said = {name: tree.tree_map(_whole, shardings, is_leaf=_is_none) for name, shardings in self._given.items()}
        return _over_mesh(jit(self._fun, **said, **self._options))

    def _program(self) -> Any:
        return self._alone if context_mesh() is None else self._over_mesh

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._program()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:  # trace, lower, eval_shape and the like
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._program(), name)


def _is_none(x: Any) -> bool:
    return x is None


def _whole(sharding: Any) -> Any:
    return PartitionSpec() if sharding is None else sharding
