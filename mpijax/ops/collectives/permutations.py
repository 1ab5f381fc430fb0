"""Defines `ppermute`, `pshuffle`, `pbroadcast`, which send whole shards along a named axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.rules.lowering import Communication, Exchange
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.trace import axis_size as named_axis_size
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.position import axis_index
from mpijax.ops.collectives.reductions import psum_p
from mpijax.ops.collectives.scope import (
    around,
    batched,
    check_bound,
    effects,
    linear_jvp,
    names_of,
    row,
    varying,
    vma_with,
)
from mpijax.transforms.zeros import Zero


def ppermute(x, axis_name, perm):
    """Send `x` (a pytree) along named axes: `perm` lists pairs (source, destination), row-major over several axes.

    Shards that nobody sends to get zeros. Raises ValueError if a source or destination repeats.

    >>> mpijax.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")(jnp.array([7, 8, 9]))
    Array([0, 7, 8], dtype=int32)
    """
    names, perm = names_of(axis_name), check_pairs("ppermute", axis_name, perm)
    return tree.tree_map(lambda leaf: ppermute_p.bind(varying(leaf, names), axis_name=names, perm=perm), x)


def check_pairs(what: str, axis_name, perm) -> tuple[tuple[int, int], ...]:
    """The pairs (source, destination) of a permutation; ValueError for invalid pairs, NameError for an unbound axis."""
    names = names_of(axis_name)
    check_bound(names, what)
    perm = tuple((int(a), int(b)) for a, b in perm)
    size = named_axis_size(names)
    sources, targets = [a for a, _ in perm], [b for _, b in perm]
    if len(set(sources)) != len(perm) or len(set(targets)) != len(perm):
        raise ValueError(f"{what} sources and destinations must be unique, got {perm}.")
    if any(not 0 <= i < size for i in sources + targets):
        raise ValueError(f"{what}: perm {perm} contains an index outside [0, {size}), the range of axis {axis_name!r}.")
    return perm


def pshuffle(x, axis_name, perm):
    """Rearranges `x` (a pytree) along a named axis: shard `i` gets the value of shard `perm[i]`.

    Raises ValueError if `perm` is not a permutation of the positions.

    >>> mpijax.vmap(lambda x: lax.pshuffle(x, "i", [2, 0, 1]), axis_name="i")(jnp.array([7, 8, 9]))
    Array([9, 7, 8], dtype=int32)
    """
    perm = [int(i) for i in perm]
    size = named_axis_size(names_of(axis_name))
    if sorted(perm) != list(range(size)):
        raise ValueError(f"`perm` does not represent a permutation: {perm} for axis {axis_name!r} of size {size}")
    return ppermute(x, axis_name, list(zip(perm, range(size), strict=True)))


def pbroadcast(x, axis_name, source: int):
    """Broadcasts `x` (a pytree) from the shard at position `source` along a named axis. One broadcast a leaf.

    >>> mpijax.vmap(lambda x: lax.pbroadcast(x, "i", source=1), axis_name="i")(jnp.array([3, 4, 5]))
    Array([4, 4, 4], dtype=int32)
    """
    names = names_of(axis_name)
    check_bound(names, "pbroadcast")
    size = named_axis_size(names)
    source = int(source)
    if not 0 <= source < size:
        raise ValueError(f"pbroadcast: source {source} is outside [0, {size}), the range of axis {axis_name!r}")
    return tree.tree_map(lambda leaf: pbroadcast_p.bind(varying(leaf, names), axis_name=axis_name, source=source), x)


# ---------------------------------------------------------------- rules


def _permute_type(x, *, axis_name, perm):
    positions = range(named_axis_size(names_of(axis_name)))
    targets = [b for _, b in perm]
    if any(a not in positions or b not in positions for a, b in perm) or len(set(targets)) < len(targets):
        raise ValueError(f"ppermute: {perm} along {axis_name} of size {len(positions)}")
    return x


def _broadcast_type(x, *, axis_name, source):
    if source not in range(named_axis_size(names_of(axis_name))):
        raise ValueError(f"pbroadcast: source {source} is out of range for axis {axis_name}")
    return x


def _ppermute_transpose(ct, x, *, axis_name, perm):
    if type(ct) is Zero:
        return [Zero(x.aval)]
    return [ppermute_p.bind(ct, axis_name=axis_name, perm=tuple((b, a) for a, b in perm))]


def _ppermute_batch(axis, args, dims, *, axis_name, perm):
    [x], [d] = args, dims
    if axis.name is None or axis.name not in axis_name:
        return ppermute_p.bind(x, axis_name=axis_name, perm=perm), d
    x = batched(axis, x, d)
    if len(axis_name) > 1:
        return _mixed_ppermute(axis, x, axis_name, perm), 0
    origin = {b: a for a, b in perm}
    pieces = []
    for i in range(axis.size):
        piece = row(x, origin.get(i, 0), keep=True)
        pieces.append(piece if i in origin else np.zeros(typeof(piece).shape, typeof(x).dtype))
    return registry["concatenate"].bind(*pieces, dimension=0), 0


def _mixed_ppermute(axis, x, names, perm) -> Any:
    """Over a batch axis and other axes: each row gets, from each row, what is sent to it along the other axes."""
    before, behind = around(names, axis.name)
    inner, rest = named_axis_size(behind), named_axis_size((*before, *behind))

    def split(position):
        """The example, and the position along the other axes."""
        high, low = divmod(position, axis.size * inner)
        example, low = divmod(low, inner)
        return example, high * inner + low

    edges: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for a, b in perm:
        (ea, pa), (eb, pb) = split(a), split(b)
        edges.setdefault((ea, eb), []).append((pa, pb))
    here = axis_index((*before, *behind))
    out = []
    for target in range(axis.size):
        total = np.zeros(typeof(row(x, 0)).shape, typeof(x).dtype)
        for source in range(axis.size):
            pairs = edges.get((source, target))
            if pairs is None:
                continue
            piece = row(x, source)
            if any(a != b for a, b in pairs):
                piece = ppermute_p.bind(piece, axis_name=(*before, *behind), perm=tuple(pairs))
            if len(pairs) == rest:
                total = piece
                continue
            gets = np.zeros(rest, bool)
            gets[[b for _, b in pairs]] = True
            mine = registry["dynamic_slice"].bind(gets, here, slice_sizes=(1,))
            mine = registry["squeeze"].bind(mine, dimensions=(0,))
            total = registry["select_n"].bind(mine, total, piece)
        out.append(registry["broadcast_in_dim"].bind(
            total, shape=(1, *typeof(total).shape), broadcast_dimensions=tuple(range(1, typeof(total).ndim + 1)),
            sharding=None,
        ))  # fmt: skip
    return registry["concatenate"].bind(*out, dimension=0)


ppermute_p = Primitive(
    "ppermute",
    type_rule=_permute_type,
    reference=lambda x, *, axis_name, perm: x if perm else np.zeros_like(x),
    lower=Communication(Exchange.PERMUTE),
    jvp=linear_jvp("ppermute"),
    transpose=_ppermute_transpose,
    batch=_ppermute_batch,
    effects=effects("axis_name"),
    vma=vma_with("axis_name"),
)


def _pbroadcast_transpose(ct, x, *, axis_name, source):
    """The source's cotangent is the sum of all cotangents; the others' is zero."""
    if type(ct) is Zero:
        return [Zero(x.aval)]
    total = psum_p.bind(ct, axes=names_of(axis_name), axis_index_groups=None)
    zero = np.zeros((), typeof(ct).dtype)[()]
    none = registry["broadcast_in_dim"].bind(zero, shape=x.aval.shape, broadcast_dimensions=(), sharding=None)
    is_source = registry["eq"].bind(axis_index(axis_name), np.int32(source))
    return [registry["select_n"].bind(is_source, none, total)]


def _pbroadcast_batch(axis, args, dims, *, axis_name, source):
    [x], [d] = args, dims
    names = names_of(axis_name)
    if axis.name is None or axis.name not in names:
        return pbroadcast_p.bind(x, axis_name=names, source=source), d
    before, behind = around(names, axis.name)
    high, low = divmod(source, named_axis_size(behind) if behind else 1)
    first, example = divmod(high, axis.size)
    if d is not None:
        x = row(batched(axis, x, d), example)
    if behind:
        x = pbroadcast_p.bind(x, axis_name=behind, source=low)
    if before:
        x = pbroadcast_p.bind(x, axis_name=before, source=first)
    return x, None


pbroadcast_p = Primitive(
    "pbroadcast",
    type_rule=_broadcast_type,
    reference=lambda x, *, axis_name, source: x,
    lower=Communication(Exchange.BCAST),
    jvp=linear_jvp("pbroadcast"),
    transpose=_pbroadcast_transpose,
    batch=_pbroadcast_batch,
    effects=effects("axis_name"),
    vma=vma_with("axis_name"),
)
