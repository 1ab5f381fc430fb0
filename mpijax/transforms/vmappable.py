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
    simple: bool  # whether its axis specification is an int


_types: dict[type, _Handlers] = {}


def register_vmappable(
    data_type: type, spec_type: type, axis_size_type: type, to_elt: Callable, from_elt: Callable,
    make_iota: Callable | None,
) -> None:  # fmt: skip
    """Define how `vmap` maps containers of a type.

    Args:
      data_type: the type.
      spec_type, axis_size_type: the types of its entries in `in_axes` and of its axis sizes. `vmap` rejects containers
        for which they are not int.
      to_elt: `(take, index, container, axis)`: one example; `take(array, axis)` is one example of an array.
      from_elt: `(put, size, container, axis)`: the batch, from one example; `put(size, array, axis)` is the batch of
        an array.
      make_iota: not used.

    >>> class Pair:
    ...     def __init__(self, x): self.x = x
    >>> mpijax.interpreters.batching.register_vmappable(
    ...     Pair, int, int, lambda take, _, p, i: Pair(take(p.x, i)), lambda put, n, p, i: Pair(put(n, p.x, i)), None)
    >>> mpijax.vmap(lambda p: Pair(p.x.sum()))(Pair(jnp.ones((3, 2)))).x
    Array([2., 2., 2.], dtype=float32)
    """
    _types[data_type] = _Handlers(to_elt, from_elt, spec_type is int and axis_size_type is int)


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


def _handlers(x: Any) -> _Handlers:
    found = _types[type(x)]
    if not found.simple:
        raise NotImplementedError(
            f"vmap does not support values of type {type(x).__name__}: register_vmappable declared axes of another "
            "type than int for it. Map over the arrays that it contains."
        )
    return found


def _example_of(array: Any, axis: int) -> Any:
    """Zeros with the shape of one example of an array, without memory."""
    shape = list(typeof(array).shape)
    del shape[axis]
    return np.broadcast_to(np.zeros((), typeof(array).dtype), shape)


class Containers:
    """A function with such containers among its arguments or results, as a function of arrays.

    Replaces a `FlatFun`. arrays, axes: of the arguments; `leaf_of`: the leaf that contains each array.
    """

    def __init__(self, fun: Callable, in_tree: Any, leaves: Sequence[Any], axes: Sequence[int | None], out_axes: Any):
        self.fun, self.in_tree, self.given, self.given_axes, self.out_axes = fun, in_tree, leaves, axes, out_axes
        self.size = 0
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
                _handlers(x).to_elt(lambda array, at, i=i: _example_of(self._add(array, at, i), at), None, x, axis)
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
        # Do not keep traced arrays beyond their trace.
        self.containers = {i: x for i, x in enumerate(results) if is_vmappable(x)}
        self.wanted: list[int | None] = flatten_axes("vmap out_axes", self.out_tree, self.out_axes)
        self.result_of: Sequence[int] = range(len(results))
        return self._arrays(results) if self.containers else results

    def _leaves(self, arrays: Sequence[Any]) -> list[Any]:
        rest = iter(arrays)
        return [
            _handlers(x).to_elt(lambda _array, _at: next(rest), None, x, axis)
            if is_vmappable(x) and axis is not None
            else next(rest)
            for x, axis in zip(self.given, self.given_axes, strict=True)
        ]

    def _arrays(self, results: Sequence[Any]) -> list[Any]:
        """The arrays of results that include containers."""
        self.result_axes, flat = self.wanted, []
        self.wanted, self.result_of = [], []

        def put(array: Any, axis: int | None, leaf: int) -> Any:
            flat.append(array)
            self.wanted.append(axis)
            self.result_of.append(leaf)  # type: ignore[attr-defined]
            return array

        for i, (x, axis) in enumerate(zip(results, self.result_axes, strict=True)):
            if i not in self.containers:
                put(x, axis, i)
            elif axis is None:
                for array in tree.tree_leaves(x):
                    put(array, None, i)
            else:
                _handlers(x).from_elt(lambda _size, array, at, i=i: put(array, at, i), self.size, x, axis)
        return flat

    def result(self, arrays: Sequence[Any]) -> Any:
        """The result, assembled from the arrays that `__call__` returned, with the mapped axis."""
        if not self.containers:
            return tree.tree_unflatten(self.out_tree, arrays)
        rest, leaves = iter(arrays), []
        for i, axis in enumerate(self.result_axes):
            x = self.containers.get(i)
            if x is None:
                leaves.append(next(rest))
            elif axis is None:
                structure = tree.tree_structure(x)
                leaves.append(structure.unflatten([next(rest) for _ in range(structure.num_leaves)]))
            else:
                leaves.append(_handlers(x).from_elt(lambda _size, _array, _at: next(rest), self.size, x, axis))
        return tree.tree_unflatten(self.out_tree, leaves)
