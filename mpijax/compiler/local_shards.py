"""`shard_map` over several devices of one process: all shards at once, as the examples of a `vmap` over the mesh's axes.

Collectives are then what they are under `vmap`: sums, permutations and concatenations along array axes. Cutting
operands into blocks and putting results together only changes how they are read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mpijax.compiler.layouts import Split
from mpijax.core.avals import NO_AXES
from mpijax.core.jaxpr import ClosedJaxpr, Literal
from mpijax.core.memo import memo_on_jaxpr
from mpijax.core.primitive import registry
from mpijax.core.trace import named_axes
from mpijax.transforms.batching import AxisData, batch_jaxpr

Axes = tuple[tuple[Any, int], ...]


def run(builder, closed, params: dict[str, Any], inputs, source) -> list:
    """The results of the body on all shards of the operands, which are whole."""
    mesh = params["mesh"]
    axes: Axes = tuple((n, s) for n, s in mesh.shape.items() if n in params["newly_manual_axes"])
    blocks = _Blocks(builder, axes, source)
    in_splits = [_split(spec, v.aval.ndim) for spec, v in zip(params["in_specs"], inputs, strict=True)]
    with named_axes(dict(mesh.shape)):
        batched, leading = _over(closed, axes, [blocks.named(split) for split in in_splits])
    operands = [blocks.apart(v, split) for v, split in zip(inputs, in_splits, strict=True)]
    builder.meshes.append(mesh)
    try:
        outs = builder.inline(batched, operands, source)
    finally:
        builder.meshes.pop()
    placed = zip(outs, leading, params["out_specs"], strict=True)
    return [blocks.together(v, names, _split(spec, v.aval.ndim - len(names))) for v, names, spec in placed]


def _split(spec, ndim: int) -> Split:
    return tuple(spec.axes_of(d) for d in range(ndim))


def _over(closed, axes: Axes, in_names: Sequence[tuple]) -> tuple[Any, list[tuple]]:
    """The body over all of `axes`, and for each result the axes it differs along: these lead, in order."""
    closed = _for_each_shard(closed)
    out_names: list[tuple] = [()] * len(closed.out_avals)
    for name, size in reversed(axes):
        flags = tuple(name in names for names in in_names)
        closed, differs = batch_jaxpr(closed, AxisData(name, size), flags, False)
        out_names = [(name, *names) if d else names for names, d in zip(out_names, differs, strict=True)]
    return closed, out_names


@memo_on_jaxpr
def _for_each_shard(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program for a `vmap` over shards: its types do not say over which mesh axes a value varies, and
    functions of the host are called shard by shard."""
    known: dict[Any, Any] = {}

    def atom(v):
        aval = v.aval.update(vma=NO_AXES)
        if type(v) is Literal:
            return Literal(v.val, aval)
        if v not in known:
            known[v] = type(v)(aval)
        return known[v]

    def parameter(x):
        if isinstance(x, ClosedJaxpr):
            return _for_each_shard(x)
        return type(x)(map(parameter, x)) if type(x) in (tuple, list) else x

    def equation(e):
        params = {name: parameter(x) for name, x in e.params.items()}
        if params.get("vmap_method", "") is None:
            params["vmap_method"] = "sequential"
        return e.replace(invars=[*map(atom, e.invars)], outvars=[*map(atom, e.outvars)], params=params)

    jaxpr = closed.jaxpr
    eqns = [equation(e) for e in jaxpr.eqns]
    constvars, invars, outvars = (list(map(atom, vs)) for vs in (jaxpr.constvars, jaxpr.invars, jaxpr.outvars))
    return ClosedJaxpr(
        jaxpr.replace(constvars=constvars, invars=invars, outvars=outvars, eqns=eqns), closed.consts
    )


class _Blocks:
    """Arrays as stacks of shards, the stacking axes first and in the order of the mesh, and back."""

    def __init__(self, builder, axes: Axes, source):
        self.builder, self.source = builder, source
        self.sizes = dict(axes)

    def named(self, split: Split) -> tuple:
        """The axes of the mesh in a split, in the mesh's order."""
        used = {a for names in split for a in names}
        return tuple(n for n in self.sizes if n in used)

    def apart(self, v, split: Split):
        """The shards of a whole array."""
        names = self.named(split)
        if not names:
            return v
        own = [n // math.prod(self.sizes[a] for a in axes) for n, axes in zip(v.aval.shape, split, strict=True)]
        interleaved = [(a, self.sizes[a]) for axes in split for a in axes]
        if v.scalar is not None:
            return self.builder.literal(v.scalar, v.aval.update(shape=(*(self.sizes[n] for n in names), *own)))
        shape: list[int] = []
        places: dict[Any, int] = {}
        inner: list[int] = []
        cursor = iter(interleaved)
        for n, axes in zip(own, split, strict=True):
            for name, size in (next(cursor) for _ in axes):
                places[name] = len(shape)
                shape.append(size)
            inner.append(len(shape))
            shape.append(n)
        return self._transposed(self._reshaped(v, shape), [*(places[n] for n in names), *inner])

    def together(self, v, names: tuple, split: Split):
        """The whole of which `v` has the shards, differing along `names`.

        A result that is said to be the same along an axis is what the first device has.
        """
        named = {a for axes in split for a in axes}
        v, names = self._first(v, names, named)
        v, names = self._repeated(v, names, [a for axes in split for a in axes if a not in names])
        order, shape = [], []
        for d, axes in enumerate(split):
            order += [*(names.index(a) for a in axes), len(names) + d]
            shape.append(v.aval.shape[len(names) + d] * math.prod(self.sizes[a] for a in axes))
        return self._reshaped(self._transposed(v, order), shape) if names else v

    def _first(self, v, names: tuple, kept: set):
        gone = tuple(i for i, n in enumerate(names) if n not in kept)
        if not gone:
            return v, names
        shape = v.aval.shape
        limits = tuple(1 if d in gone else n for d, n in enumerate(shape))
        v = self._node("slice", v, limits, start_indices=(0,) * len(shape), limit_indices=limits, strides=None)
        rest = tuple(n for d, n in enumerate(shape) if d not in gone)
        return self._node("squeeze", v, rest, dimensions=gone), tuple(n for n in names if n in kept)

    def _repeated(self, v, names: tuple, new: list):
        if not new:
            return v, names
        shape = (*(self.sizes[a] for a in new), *v.aval.shape)
        dims = tuple(range(len(new), len(shape)))
        if v.scalar is not None:
            return self.builder.literal(v.scalar, v.aval.update(shape=shape)), (*new, *names)
        v = self._node("broadcast_in_dim", v, shape, shape=shape, broadcast_dimensions=dims, sharding=None)
        return v, (*new, *names)

    def _transposed(self, v, order: list[int]):
        if order == list(range(len(order))):
            return v
        return self._node("transpose", v, tuple(v.aval.shape[d] for d in order), permutation=tuple(order))

    def _reshaped(self, v, shape: Sequence[int]):
        shape = tuple(shape)
        if v.scalar is not None:
            return self.builder.literal(v.scalar, v.aval.update(shape=shape))
        if shape == v.aval.shape:
            return v
        return self._node("reshape", v, shape, new_sizes=shape, dimensions=None, sharding=None)

    def _node(self, name: str, v, to: tuple[int, ...], /, **params):
        return self.builder.node(registry[name], params, [v], [v.aval.update(shape=to)], self.source)[0]
