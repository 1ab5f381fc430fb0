"""Converts whole arrays to stacks of shards, with the mesh axes as leading axes, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from mpijax.core.rules.registry import registry
from mpijax.core.types.typeof import typeof

Split = tuple[tuple[Any, ...], ...]


class MeshBlocks:
    """Blocks over mesh axes, which are given as pairs of name and size in the order of the mesh.

    A split gives for each array axis the mesh axes that divide it.
    """

    def __init__(self, axes: Iterable[tuple[Any, int]]):
        self.sizes = dict(axes)

    def named(self, split: Split) -> tuple:
        """The mesh axes in a split, in the order of the mesh."""
        used = {a for names in split for a in names}
        return tuple(n for n in self.sizes if n in used)

    def apart(self, x: Any, split: Split) -> Any:
        """The shards of a whole array."""
        names = self.named(split)
        if not names:
            return x
        shape: list[int] = []
        places: dict[Any, int] = {}
        inner: list[int] = []
        for n, axes in zip(self.shape(x), split, strict=True):
            for name in axes:
                places[name] = len(shape)
                shape.append(self.sizes[name])
            inner.append(len(shape))
            shape.append(n // math.prod(self.sizes[a] for a in axes))
        return self._transposed(self._reshaped(x, shape), [*(places[n] for n in names), *inner])

    def together(self, x: Any, names: tuple, split: Split) -> Any:
        """The whole array with the shards `x`, which are stacked along `names`.

        If `split` does not use one of the stacked axes, the result is the shard of the first device along it.
        """
        wanted = [a for axes in split for a in axes]
        x, names = self._first(x, names, set(wanted))
        x, names = self._repeated(x, names, [a for a in wanted if a not in names])
        if not names:
            return x
        order, shape = [], []
        for d, axes in enumerate(split, start=len(names)):
            order += [*(names.index(a) for a in axes), d]
            shape.append(self.shape(x)[d] * math.prod(self.sizes[a] for a in axes))
        return self._reshaped(self._transposed(x, order), shape)

    def shape(self, x: Any) -> tuple[int, ...]:
        return typeof(x).shape

    def apply(self, name: str, x: Any, to: tuple[int, ...], params: dict[str, Any]) -> Any:
        """Apply a structural operation whose result has shape `to`."""
        return registry[name].bind(x, **params)

    def _first(self, x: Any, names: tuple, kept: set) -> tuple[Any, tuple]:
        gone = tuple(i for i, n in enumerate(names) if n not in kept)
        if not gone:
            return x, names
        shape = self.shape(x)
        limits = tuple(1 if d in gone else n for d, n in enumerate(shape))
        cut = {"start_indices": (0,) * len(shape), "limit_indices": limits, "strides": None}
        x = self.apply("slice", x, limits, cut)
        rest = tuple(n for d, n in enumerate(shape) if d not in gone)
        return self.apply("squeeze", x, rest, {"dimensions": gone}), tuple(n for n in names if n in kept)

    def _repeated(self, x: Any, names: tuple, new: list) -> tuple[Any, tuple]:
        if not new:
            return x, names
        shape = (*(self.sizes[a] for a in new), *self.shape(x))
        kept = tuple(range(len(new), len(shape)))
        params = {"shape": shape, "broadcast_dimensions": kept, "sharding": None}
        return self.apply("broadcast_in_dim", x, shape, params), (*new, *names)

    def _transposed(self, x: Any, order: list[int]) -> Any:
        if order == list(range(len(order))):
            return x
        shape = self.shape(x)
        return self.apply("transpose", x, tuple(shape[d] for d in order), {"permutation": tuple(order)})

    def _reshaped(self, x: Any, shape: Sequence[int]) -> Any:
        to = tuple(shape)
        if to == self.shape(x):
            return x
        return self.apply("reshape", x, to, {"new_sizes": to, "dimensions": None, "sharding": None})
