"""Sums and weighted means over the clients of all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mpijax import numpy as jnp
from mpijax.core.trees import tree
from mpijax.mpi.collectives import allreduce
from mpijax.runtime.mpi import mpi_start, objects
from mpijax.transforms.jit import jit


@jit
def _weighted(x: Any, weight: Any) -> Any:
    return tree.tree_map(lambda leaf: leaf * jnp.asarray(weight, jnp.result_type(leaf, float)), x)


@jit
def _added(total: Any, x: Any, weight: Any) -> Any:
    return tree.tree_map(jnp.add, total, _weighted(x, weight))


@jit
def _over_ranks(leaves: list[Any]) -> list[Any]:
    return [allreduce(leaf, "SUM") for leaf in leaves]


def _total(pairs: Iterable[tuple[Any, Any]], like: Any, what: str) -> tuple[Any, float]:
    """(sum of trees times weights, sum of weights) over all ranks. Collective."""
    total, weights, mine = None, 0.0, False
    error: Exception | None = None
    try:  # an error here must not leave the other ranks waiting
        for x, weight in pairs:
            if weight < 0:
                raise ValueError(f"weights must not be negative, got {weight}")
            total = _added(total, x, float(weight)) if mine else _weighted(x, float(weight))
            weights, mine = weights + float(weight), True
        if not mine and like is not None:
            total = tree.tree_map(jnp.zeros_like, _weighted(like, 0.0))
    except Exception as raised:
        error = raised
    leaves, structure = tree.tree_flatten(total)
    kinds = [(leaf.shape, str(leaf.dtype)) for leaf in leaves] if total is not None else None
    told = objects.allgather((weights, kinds, None if error is None else f"{type(error).__name__}: {error}"), what)
    failed = {rank: text for rank, (_, _, text) in enumerate(told) if text is not None}
    if failed:
        raise ValueError(f"{what}: {'; '.join(f'rank {r}: {t}' for r, t in failed.items())}") from error
    if any(k is None for _, k, _ in told):
        without = [rank for rank, (_, k, _) in enumerate(told) if k is None]
        raise ValueError(f"{what}: ranks {without} have no clients. Pass them a tree of the same types: like=params")
    if any(k != told[0][1] for _, k, _ in told):
        raise ValueError(f"{what}: the trees of the ranks differ in shapes or dtypes: {[k for _, k, _ in told]}")
    if mpi_start.size() > 1:
        leaves = _over_ranks(leaves)
    return tree.tree_unflatten(structure, leaves), sum(weight for weight, _, _ in told)


def tree_sum(pytrees: Iterable[Any], like: Any = None) -> Any:
    """The sum of the pytrees of all ranks; arguments as for `tree_mean`. Collective.

    >>> from mpijax import federated
    >>> federated.tree_sum([{"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([3.0, 4.0])}])
    {'w': Array([4., 6.], dtype=float32)}
    """
    return _total(((x, 1.0) for x in pytrees), like, "federated.tree_sum")[0]


def tree_mean(pytrees_and_weights: Iterable[tuple[Any, Any]], like: Any = None) -> Any:
    """The weighted mean of [(pytree, weight), ...] over all ranks, the same on each rank. Collective: one allreduce.

    Leaves are arrays of floats. A weight is a number, usually the number of examples of the client. If all weights are
    0, the mean is 0. The order of the sum depends on the number of ranks, so the mean depends on it up to rounding.

    Args:
      like: a tree with the same shapes and dtypes, for ranks that may have no clients, such as the parameters of the
        model.

    Raises ValueError on every rank if a weight is negative, if a rank without clients has no `like`, or if the trees of
    the ranks differ in their shapes or dtypes.

    >>> from mpijax import federated
    >>> federated.tree_mean([(jnp.array([1.0, 2.0]), 3), (jnp.array([5.0, 6.0]), 1)])
    Array([2., 3.], dtype=float32)
    """
    total, weight = _total(pytrees_and_weights, like, "federated.tree_mean")
    return tree.tree_map(lambda x: x / weight, total) if weight > 0 else total
