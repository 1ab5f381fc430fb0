"""Moves of data between ranks: bcast, allgather, gather, scatter, alltoall. Transposes are opposite moves with sums.

Blocks of ranks are stacked along a first axis over ranks. With `counts`, they are concatenated along the first axis:
`counts[r]` rows for rank r.
"""

from __future__ import annotations

import numpy as np

from mpijax.core.rules.lowering import Exchange
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.ops.ranks.ops import exchange, linear, rank_in, size_of
from mpijax.ops.ranks.reductions import _sum
from mpijax.transforms.batching import batch_at


def _counted(x, counts):
    """The result for a single rank, from its only block."""
    x = np.asarray(x)
    return x if counts is not None else x[None]


# ---------------------------------------------------------------- bcast


def _bcast_transpose(ct, x, *, root, comm):
    """Cotangents from all ranks are summed at the root."""
    return [registry["mpi_reduce"].bind(ct, op=_sum(), root=root, comm=comm)]


def _bcast_batch(axis, args, dims, **params):
    return mpi_bcast_p.bind(batch_at(args[0], dims[0], 0, axis), **params), 0


mpi_bcast_p = exchange(
    "mpi_bcast",
    Exchange.BCAST,
    type_rule=lambda x, **_: x,
    reference=lambda x, **_: np.asarray(x),
    derive=linear("mpi_bcast"),
    transpose=_bcast_transpose,
    batch=_bcast_batch,
)

# ---------------------------------------------------------------- allgather, gather


def _gathered_shape(x, counts, comm, here: bool):
    if counts is None:
        return (size_of(comm) if here else 0, *x.shape)
    return (sum(counts) if here else 0, *x.shape[1:])


def _gathering_batch(name: str):
    def batch(axis, args, dims, *, counts, **params):
        x = batch_at(args[0], dims[0], 0 if counts is None else 1, axis)
        return registry[name].bind(x, counts=counts, **params), 1

    return batch


mpi_allgather_p = exchange(
    "mpi_allgather",
    Exchange.ALLGATHER,
    type_rule=lambda x, *, counts, comm: x.update(shape=_gathered_shape(x, counts, comm, True)),
    reference=lambda x, *, counts, comm: _counted(x, counts),
    derive=linear("mpi_allgather"),
    transpose=lambda ct, x, *, counts, comm: [
        registry["mpi_reduce_scatter"].bind(ct, op=_sum(), counts=counts, comm=comm)
    ],
    batch=_gathering_batch("mpi_allgather"),
)

# On ranks other than the root, the result has no rows.
mpi_gather_p = exchange(
    "mpi_gather",
    Exchange.GATHER,
    type_rule=lambda x, *, counts, root, comm: x.update(
        shape=_gathered_shape(x, counts, comm, rank_in(comm) == root)
    ),
    reference=lambda x, *, counts, root, comm: _counted(x, counts),
    derive=linear("mpi_gather"),
    transpose=lambda ct, x, **params: [mpi_scatter_p.bind(ct, **params)],
    batch=_gathering_batch("mpi_gather"),
)

# ---------------------------------------------------------------- scatter


def _scatter_type(x, *, counts, root, comm):
    return x.update(shape=x.shape[1:] if counts is None else (counts[rank_in(comm)], *x.shape[1:]))


def _scatter_batch(axis, args, dims, *, counts, **params):
    x = batch_at(args[0], dims[0], 1, axis)
    return mpi_scatter_p.bind(x, counts=counts, **params), 0 if counts is None else 1


# On ranks other than the root, the operand has no rows.
mpi_scatter_p: Primitive = exchange(
    "mpi_scatter",
    Exchange.SCATTER,
    type_rule=_scatter_type,
    reference=lambda x, *, counts, root, comm: np.asarray(x)[0] if counts is None else np.asarray(x),
    derive=linear("mpi_scatter"),
    transpose=lambda ct, x, **params: [mpi_gather_p.bind(ct, **params)],
    batch=_scatter_batch,
)

# ---------------------------------------------------------------- alltoall


def _alltoall_type(x, *, sendcounts, recvcounts, comm):
    return x if sendcounts is None else x.update(shape=(sum(recvcounts), *x.shape[1:]))


def _alltoall_transpose(ct, x, *, sendcounts, recvcounts, comm):
    return [mpi_alltoall_p.bind(ct, sendcounts=recvcounts, recvcounts=sendcounts, comm=comm)]


def _alltoall_batch(axis, args, dims, **params):
    return mpi_alltoall_p.bind(batch_at(args[0], dims[0], 1, axis), **params), 1


mpi_alltoall_p = exchange(
    "mpi_alltoall",
    Exchange.ALLTOALL,
    type_rule=_alltoall_type,
    reference=lambda x, **_: np.asarray(x),
    derive=linear("mpi_alltoall"),
    transpose=_alltoall_transpose,
    batch=_alltoall_batch,
)
