"""Containers that were registered to say themselves how `vmap` takes an example out of them. `vmap` refuses them here.

MuJoCo MJX registers the state of its kernels for NVIDIA's devices, which no program on CPUs has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core import tree

_types: set[type] = set()


def register_vmappable(
    data_type: type, spec_type: type, axis_size_type: type, to_elt: Callable, from_elt: Callable,
    make_iota: Callable | None,
) -> None:  # fmt: skip
    """Note that a type has axes of its own: `vmap` then refuses it, rather than map its arrays as those of a pytree.

    >>> class Ragged: pass
    >>> mpijax.interpreters.batching.register_vmappable(Ragged, int, int, lambda *_: None, lambda *_: None, None)
    >>> mpijax.interpreters.batching.is_vmappable(Ragged())
    True
    """
    _types.add(data_type)


def unregister_vmappable(data_type: type) -> None:
    """Take a type for a pytree again.

    >>> class Ragged: pass
    >>> mpijax.interpreters.batching.unregister_vmappable(Ragged)
    """
    _types.discard(data_type)


def is_vmappable(x: Any) -> bool:
    """Whether the type of x was given to `register_vmappable`.

    >>> mpijax.interpreters.batching.is_vmappable(jnp.ones(2))
    False
    """
    return type(x) in _types


def refuse(values: Any) -> None:
    """Raise NotImplementedError if there is such a container in a tree."""
    if not _types:
        return
    for x in tree.tree_leaves(values, is_leaf=is_vmappable):
        if is_vmappable(x):
            raise NotImplementedError(
                f"vmap of a {type(x).__name__}, which was given to register_vmappable: mpijax maps pytrees alone. Take "
                "out its arrays, and map over them."
            )
