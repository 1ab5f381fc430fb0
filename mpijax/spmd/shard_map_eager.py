"""Runs the body of a `shard_map` operation by operation, for Python code that reads values."""

from __future__ import annotations

from collections.abc import Callable

from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.trees import tree
from mpijax.core.types.avals import NO_AXES
from mpijax.core.types.typeof import typeof
from mpijax.ops.shapes.stacked_shards import MeshBlocks
from mpijax.spmd.reshard import with_sharding
from mpijax.spmd.shard_specs import (
    check_out,
    flatten_specs,
)
from mpijax.transforms.batching import AxisData, batch_flat, move_dim
from mpijax.transforms.flat import FlatFun


def run_eagerly(f, mesh: Mesh, names: frozenset, in_specs, out_specs, check_vma: bool, args):
    """Run the body operation by operation, on all devices of this process together, for Python code that reads values.

    Values that are equal on all devices are then concrete; those that differ are not.
    """
    leaves, in_tree = tree.tree_flatten((args, {}))
    axes = [(n, s) for n, s in mesh.shape.items() if n in names]
    blocks, flat_fun = MeshBlocks(axes), FlatFun(f, in_tree)
    splits = [s.split(typeof(x).ndim) for s, x in zip(in_specs, leaves, strict=True)]
    operands = [blocks.apart(x, split) for x, split in zip(leaves, splits, strict=True)]
    outs, differing = _over_axes(flat_fun, axes, operands, [blocks.named(split) for split in splits])
    specs, _ = flatten_specs("out_specs", out_specs, flat_fun.out_tree, mesh, names)
    results = []
    for x, along, spec in zip(outs, differing, specs, strict=True):
        aval = typeof(x)
        shard = aval.update(shape=aval.shape[len(along) :], vma=frozenset(along))
        check_out(f, mesh, shard, spec, names if check_vma else NO_AXES)
        results.append(with_sharding(blocks.together(x, along, spec.split(shard.ndim)), NamedSharding(mesh, spec)))
    return tree.tree_unflatten(flat_fun.out_tree, results)


def _over_axes(fun: Callable, axes, args, leading) -> tuple[list, list[tuple]]:
    """Run `fun` over all of `axes`. leading: for each argument, the axes along which it differs, as its first axes.

    Returns the results, and for each the axes along which it differs, which lead.
    """
    if not axes:
        outs = fun(*args)
        return outs, [()] * len(outs)
    (name, size), *rest = axes
    inner: list[tuple] = []

    def one(*xs):
        outs, inner[:] = _over_axes(fun, rest, xs, [tuple(n for n in names if n != name) for names in leading])
        return outs

    outs, dims = batch_flat(one, AxisData(name, size), args, [0 if name in names else None for names in leading])
    outs = [x if d is None else move_dim(x, d, 0) for x, d in zip(outs, dims, strict=True)]
    return outs, [names if d is None else (name, *names) for names, d in zip(inner, dims, strict=True)]


