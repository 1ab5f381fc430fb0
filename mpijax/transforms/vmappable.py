"""Containers that define how `vmap` extracts one example and assembles a batch.

For example `sparse.BCOO`: its shape includes the batch axes of its arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpijax.core.trees import tree
from mpijax.core.trees.prefix import flatten_axes
from mpijax.core.types.typeof import typeof


class _Handlers(NamedTuple):
    to_elt: Callable
    from_elt: Callable
    spec_type: type


_types: dict[type, _Handlers] = {}


def register_vmappable(
    data_type: type, spec_type: type, axis_size_type: type, to_elt: Callable, from_elt: Callable,
    make_iota: Callable | None,
) -> None:  # fmt: skip
    """Define how `vmap` maps containers of a type.

    Args:
      data_type: the type.
      spec_type: the type of its entries in `in_axes` and `out_axes`.
      axis_size_type, make_iota: not used; the size of the axis is an int.
      to_elt: `(take, index, container, spec)`: one example; `take(array, axis)` is one example of an array.
      from_elt: `(put, size, container, spec)`: the batch, from one example; `put(size, array, axis)` is the batch of
        an array.

    >>> class Pair:
    ...     def __init__(self, x): self.x = x
    >>> mpijax.interpreters.batching.register_vmappable(
    ...     Pair, int, int, lambda take, _, p, i: Pair(take(p.x, i)), lambda put, n, p, i: Pair(put(n, p.x, i)), None)
    >>> mpijax.vmap(lambda p: Pair(p.x.sum()))(Pair(jnp.ones((3, 2)))).x
    Array([2., 2., 2.], dtype=float32)
    """
    _types[data_type] = _Handlers(to_elt, from_elt, spec_type)


def unregister_vmappable(data_type: type) -> None:
    """Treat a type as a pytree again.

    >>> class Ragged: pass
    >>> mpijax.interpreters.batching.unregister_vmappable(Ragged)
    """
    _types.pop(data_type, None)


def is_vmappable(x: Any) -> bool:
    """Whether the type of x is registered by `register_vmappable`.

    >>> mpijax.interpreters.batching.is_vmappable(jnp.ones(2))
    False
    """
    return type(x) in _types


def some_registered() -> bool:
    return bool(_types)


def is_spec(x: Any) -> bool:
    """Whether x specifies the mapped axis of such a container."""
    return type(x) in {handlers.spec_type for handlers in _types.values()}


def _example_of(array: Any, axis: int | None) -> Any:
    """Zeros with the shape of one example of an array, without memory."""
    if axis is None:
        return array
    shape = list(typeof(array).shape)
    del shape[axis]
    return np.broadcast_to(np.zeros((), typeof(array).dtype), shape)


class Containers:
    """A function with such containers among its arguments or results, as a function of arrays.

    Replaces a `FlatFun`. arrays, axes: of the arguments; `leaf_of`: the leaf that contains each array. The function
    assembles its containers of results itself, and returns the other results.

    size: of the mapped axis. place: `(array, leaf, axis) -> batch`, of an array of a container among the results.
    """

    def __init__(self, fun: Callable, in_tree: Any, leaves: Sequence[Any], axes: Sequence[int | None], out_axes: Any):
        self.fun, self.in_tree, self.given, self.given_axes, self.out_axes = fun, in_tree, leaves, axes, out_axes
        self.size = 0
        self.place: Callable[[Any, int, int | None], Any]
        self.containers: dict[int, Any] = {}
        # Skip the work for functions without containers.
        self.are_given = any(map(is_vmappable, leaves))
        self.arrays: list[Any] = []
        self.axes: list[int | None] = []
        self.leaf_of: Sequence[int] = []
        if not self.are_given:
            self.arrays, self.axes, self.leaf_of = list(leaves), list(axes), range(len(leaves))
            return
        for i, (x, axis) in enumerate(zip(leaves, axes, strict=True)):
            if is_vmappable(x) and axis is not None:
                _types[type(x)].to_elt(lambda array, at, i=i: _example_of(self._add(array, at, i), at), None, x, axis)
            else:
                self._add(x, axis, i)

    def _add(self, array: Any, axis: int | None, leaf: int) -> Any:
        self.arrays.append(array)
        self.axes.append(axis)
        self.leaf_of.append(leaf)  # type: ignore[attr-defined]
        return array

    def __call__(self, *arrays: Any) -> list[Any]:
        args, kwargs = tree.tree_unflatten(self.in_tree, self._leaves(arrays) if self.are_given else arrays)
        out = self.fun(*args, **kwargs)
        results, self.out_tree = tree.tree_flatten(out, is_leaf=is_vmappable)
        axes: list[Any] = flatten_axes("vmap out_axes", self.out_tree, self.out_axes)
        # Assembled in this trace, because handlers may compute with one example.
        self.containers = {
            i: self._assembled(i, x, axis)
            for i, (x, axis) in enumerate(zip(results, axes, strict=True))
            if is_vmappable(x)
        }
        self.result_of = [i for i in range(len(results)) if i not in self.containers]
        self.wanted = [axes[i] for i in self.result_of]
        return [results[i] for i in self.result_of]

    def _assembled(self, leaf: int, container: Any, spec: Any) -> Any:
        """The batch of a container among the results."""
        if spec is None:
            return tree.tree_map(lambda array: self.place(array, leaf, None), container)
        put = lambda _size, array, axis: self.place(array, leaf, axis)
        return _types[type(container)].from_elt(put, self.size, container, spec)

    def _leaves(self, arrays: Sequence[Any]) -> list[Any]:
        rest = iter(arrays)
        return [
            _types[type(x)].to_elt(lambda _array, _at: next(rest), None, x, axis)
            if is_vmappable(x) and axis is not None
            else next(rest)
            for x, axis in zip(self.given, self.given_axes, strict=True)
        ]

    def result(self, arrays: Sequence[Any]) -> Any:
        """The result, from the arrays that `__call__` returned, with the mapped axis."""
        rest = iter(arrays)
        count = len(arrays) + len(self.containers)
        leaves = [self.containers[i] if i in self.containers else next(rest) for i in range(count)]
        return tree.tree_unflatten(self.out_tree, leaves)
