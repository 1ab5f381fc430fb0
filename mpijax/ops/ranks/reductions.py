"""Reductions over ranks: allreduce, reduce, scan, exscan, reduce_scatter. Each rank contributes its own value.

Derivatives are those of a program in which one process holds the values of all ranks. Sums are linear. The tangent of a
maximum is the tangent of the rank that has the maximum, or the mean for ties. A product multiplies each rank's tangent
by the product of the other ranks' values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.rules.lowering import Exchange
from mpijax.core.rules.registry import registry
from mpijax.core.types.typeof import typeof
from mpijax.ops.ranks.ops import (
    Handle,
    exchange,
    has_tangent,
    rank_in,
    size_of,
)
from mpijax.ops.rules import broadcast_to
from mpijax.transforms.batching import batch_at
from mpijax.transforms.zeros import Zero, zeros

_LOCAL = {"MAX": "reduce_max", "MIN": "reduce_min", "PROD": "reduce_prod"}


def _only_sum(name: str, op: Handle, what: str) -> None:
    if op.name != "SUM":
        raise NotImplementedError(f"the {what} of {name} is defined for op=SUM; {op.name} is not linear.")


def _check_derivative(name: str, op: Handle) -> None:
    if op.name != "SUM" and op.name not in _LOCAL:
        raise NotImplementedError(
            f"{name} with op={op.name} has no derivative. SUM, PROD, MAX and MIN have one. Write the reduction with "
            "allgather and mpijax.numpy, or use jax.lax.stop_gradient on the argument."
        )


def _sum() -> Handle:
    """MPI.SUM. Derivatives exist only after MPI has started."""
    from mpi4py import MPI

    return Handle(MPI.SUM, "SUM")


def _part(x: Any, start: int, stop: int) -> Any:
    """x[start:stop] along the first axis."""
    rest = typeof(x).shape[1:]
    return registry["slice"].bind(
        x, start_indices=(start, *(0 for _ in rest)), limit_indices=(stop, *rest), strides=None
    )


def _others(x: Any, comm: Handle) -> Any:
    """The values of the other ranks, along a new first axis. Communicates an allgather."""
    everyone = registry["mpi_allgather"].bind(x, counts=None, comm=comm)
    rank, size = rank_in(comm), size_of(comm)
    return registry["concatenate"].bind(_part(everyone, 0, rank), _part(everyone, rank + 1, size), dimension=0)


def _weights(x: Any, op: Handle, comm: Handle) -> Any:
    """The elementwise derivative of the reduction over all ranks by this rank's `x`."""
    if op.name == "PROD":
        return registry["reduce_prod"].bind(_others(x, comm), axes=(0,))
    wins = registry["eq"].bind(x, mpi_allreduce_p.bind(x, op=op, comm=comm, transposed=False))
    one = registry["convert_element_type"].bind(wins, new_dtype=np.dtype(np.int32), weak_type=False, sharding=None)
    count = mpi_allreduce_p.bind(one, op=_sum(), comm=comm, transposed=False)
    dtype = typeof(x).dtype
    one, count = (
        registry["convert_element_type"].bind(v, new_dtype=dtype, weak_type=False, sharding=None) for v in (one, count)
    )
    return registry["div"].bind(one, count)


def _derive(name: str):
    """Each rank contributes its tangent times its weight to the result's tangent; the products are summed alike."""

    def derive(primals, tangents, *, op, comm, **params):
        [x], [t] = primals, tangents
        primitive = registry[name]
        out = primitive.bind(x, op=op, comm=comm, **params)
        if not has_tangent(x):
            return out, Zero.of_primal(out)
        _check_derivative(name.removeprefix("mpi_"), op)
        if op.name != "SUM":
            t = registry["mul"].bind(t, _weights(x, op, comm))
        return out, primitive.bind(t, op=_sum(), comm=comm, **params)

    return derive


def _elementwise_batch(name: str):
    def batch(axis, args, dims, **params):
        return registry[name].bind(batch_at(args[0], dims[0], 0, axis), **params), 0

    return batch


def _same(x, **_):
    return x


# ---------------------------------------------------------------- allreduce


def _allreduce_transpose(ct, x, *, op, comm, transposed):
    _only_sum("allreduce", op, "linear transpose")
    return [mpi_allreduce_p.bind(ct, op=op, comm=comm, transposed=not transposed)]


# `transposed`: marks the identity that is the transpose of allreduce, and whose transpose is allreduce. It sends
# nothing, but its transpose communicates on all ranks, so it counts as an exchange.
mpi_allreduce_p = exchange(
    "mpi_allreduce",
    Exchange.ALLREDUCE,
    type_rule=_same,
    reference=lambda x, **_: np.asarray(x),
    derive=_derive("mpi_allreduce"),
    transpose=_allreduce_transpose,
    batch=_elementwise_batch("mpi_allreduce"),
)

# ---------------------------------------------------------------- reduce


def _reduce_transpose(ct, x, *, op, root, comm):
    _only_sum("reduce", op, "linear transpose")
    return [registry["mpi_bcast"].bind(ct, root=root, comm=comm)]


# The result is the reduction at the root, and zeros on other ranks.
mpi_reduce_p = exchange(
    "mpi_reduce",
    Exchange.REDUCE,
    type_rule=_same,
    reference=lambda x, **_: np.asarray(x),
    derive=_derive("mpi_reduce"),
    transpose=_reduce_transpose,
    batch=_elementwise_batch("mpi_reduce"),
)

# ---------------------------------------------------------------- reduce_scatter


def _reduce_scatter_type(x, *, op, counts, comm):
    return x.update(shape=x.shape[1:] if counts is None else (counts[rank_in(comm)], *x.shape[1:]))


def _reduce_scatter_transpose(ct, x, *, op, counts, comm):
    _only_sum("reduce_scatter", op, "linear transpose")
    return [registry["mpi_allgather"].bind(ct, counts=counts, comm=comm)]


def _reduce_scatter_batch(axis, args, dims, *, counts, **params):
    x = batch_at(args[0], dims[0], 1, axis)
    return mpi_reduce_scatter_p.bind(x, counts=counts, **params), 0 if counts is None else 1


# Takes a block for each rank: stacked along a first axis over ranks, or concatenated with `counts` rows each.
mpi_reduce_scatter_p = exchange(
    "mpi_reduce_scatter",
    Exchange.REDUCE_SCATTER,
    type_rule=_reduce_scatter_type,
    reference=lambda x, *, op, counts, comm: np.asarray(x)[0] if counts is None else np.asarray(x),
    derive=_derive("mpi_reduce_scatter"),
    transpose=_reduce_scatter_transpose,
    batch=_reduce_scatter_batch,
)

# ---------------------------------------------------------------- scan, exscan


def _cumulative_derive(name: str, include: bool):
    """For reductions other than sums: the derivative of the local reduction of all earlier ranks' values."""

    def derive(primals, tangents, *, op, comm):
        [x], [t] = primals, tangents
        primitive = registry[name]
        out = primitive.bind(x, op=op, comm=comm)
        if not has_tangent(x):
            return out, Zero.of_primal(out)
        _check_derivative(name.removeprefix("mpi_"), op)
        if op.name == "SUM":
            return out, primitive.bind(t, op=op, comm=comm)
        earlier = [registry["mpi_allgather"].bind(v, counts=None, comm=comm) for v in (x, t)]
        stop = rank_in(comm) + include
        if stop == 0:
            return out, _no_part_of(earlier[1])
        earlier = [_part(v, 0, stop) for v in earlier]
        _, t = registry[_LOCAL[op.name]].jvp([earlier[0]], [earlier[1]], axes=(0,))
        return out, t

    return derive


def _no_part_of(gathered: Any) -> Any:
    """Zeros that depend on the gathered value, so that it gets a cotangent to send back."""
    return registry["reduce_sum"].bind(_part(gathered, 0, 0), axes=(0,), out_sharding=None)


def _cumulative_transpose(name: str, include: bool):
    """Gives each rank the sum over later ranks: a reduce_scatter in which a rank contributes zeros to later ranks."""

    def transpose(ct, x, *, op, comm):
        _only_sum(name, op, "linear transpose")
        shape = typeof(ct).shape
        repeats = rank_in(comm) + include
        spread = broadcast_to(registry["reshape"].bind(ct, new_sizes=(1, *shape), dimensions=None, sharding=None),
                              (repeats, *shape))  # fmt: skip
        nothing = zeros(typeof(ct).update(shape=(size_of(comm) - repeats, *shape)))
        blocks = registry["concatenate"].bind(spread, nothing, dimension=0)
        return [mpi_reduce_scatter_p.bind(blocks, op=op, counts=None, comm=comm)]

    return transpose


mpi_scan_p = exchange(
    "mpi_scan",
    Exchange.SCAN,
    type_rule=_same,
    reference=lambda x, **_: np.asarray(x),
    derive=_cumulative_derive("mpi_scan", True),
    transpose=_cumulative_transpose("scan", True),
    batch=_elementwise_batch("mpi_scan"),
)

mpi_exscan_p = exchange(
    "mpi_exscan",
    Exchange.EXSCAN,
    type_rule=_same,
    reference=lambda x, **_: np.zeros_like(x),
    derive=_cumulative_derive("mpi_exscan", False),
    transpose=_cumulative_transpose("exscan", False),
    batch=_elementwise_batch("mpi_exscan"),
)
