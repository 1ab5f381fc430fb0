"""Moves of rows between ranks whose counts are values of the program, in arrays of a static capacity.

The valid rows come first, as concatenated blocks of the ranks. The remaining rows are zero in results, and are not read
in operands. `counts` is an int32 vector over ranks, the same on all of them; with `sendcounts` and `recvcounts`, each
rank has its own. So every operation is linear in the rows, and its transpose is the opposite operation with the same
counts.
"""

from __future__ import annotations

import numpy as np

from mpijax.core.rules.lowering import Exchange
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.ops.ranks.loops import loop_map
from mpijax.ops.ranks.ops import aval_of, exchange, has_tangent, rank_in
from mpijax.ops.ranks.reductions import _only_sum, _sum
from mpijax.transforms.batching import batch_at
from mpijax.transforms.zeros import Zero


def _rows(x, capacity: int):
    return x.update(shape=(capacity, *x.shape[1:]))


def _capacity_of(x) -> int:
    return aval_of(x).shape[0]


def _alone(x, counts, *_, capacity, **__):
    """The result for a single rank: its own rows."""
    out = np.zeros((capacity, *np.shape(x)[1:]), x.dtype)
    out[: counts[0]] = x[: counts[0]]
    return out


def _derive(name: str):
    def derive(primals, tangents, **params):
        x, *counts = primals
        out = registry[name].bind(x, *counts, **params)
        if not has_tangent(x):
            return out, Zero.of_primal(out)
        return out, registry[name].bind(tangents[0], *counts, **params)

    return derive


def _batch(name: str):
    """With unbatched counts, the rows of all examples move together; otherwise examples are processed one by one."""

    def batch(axis, args, dims, **params):
        x, *counts = args
        if all(d is None for d in dims[1:]):
            return registry[name].bind(batch_at(x, dims[0], 1, axis), *counts, **params), 1
        examples = [batch_at(v, d, 0, axis) for v, d in zip(args, dims, strict=True)]
        return loop_map(lambda example: registry[name].bind(*example, **params), examples), 0

    return batch


def _ragged(name: str, kind: Exchange, type_rule, transpose):
    return exchange(
        name,
        kind,
        counted=True,
        type_rule=type_rule,
        reference=_alone,
        derive=_derive(name),
        transpose=lambda ct, x, *counts, **params: [transpose(ct, x, *counts, **params), *(None for _ in counts)],
        batch=_batch(name),
    )


mpi_allgatherv_p = _ragged(
    "mpi_allgatherv",
    Exchange.ALLGATHER,
    lambda x, counts, *, capacity, comm: _rows(x, capacity),
    lambda ct, x, counts, *, capacity, comm: mpi_reduce_scatterv_p.bind(
        ct, counts, op=_sum(), capacity=_capacity_of(x), comm=comm
    ),
)


def _reduce_scatterv_transpose(ct, x, counts, *, op, capacity, comm):
    _only_sum("reduce_scatter", op, "linear transpose")
    return mpi_allgatherv_p.bind(ct, counts, capacity=_capacity_of(x), comm=comm)


mpi_reduce_scatterv_p: Primitive = _ragged(
    "mpi_reduce_scatterv",
    Exchange.REDUCE_SCATTER,
    lambda x, counts, *, op, capacity, comm: _rows(x, capacity),
    _reduce_scatterv_transpose,
)

# On ranks other than the root, the result has no rows.
mpi_gatherv_p = _ragged(
    "mpi_gatherv",
    Exchange.GATHER,
    lambda x, counts, *, capacity, root, comm: _rows(x, capacity if rank_in(comm) == root else 0),
    lambda ct, x, counts, *, capacity, root, comm: mpi_scatterv_p.bind(
        ct, counts, capacity=_capacity_of(x), root=root, comm=comm
    ),
)

# On ranks other than the root, the operand has no rows.
mpi_scatterv_p: Primitive = _ragged(
    "mpi_scatterv",
    Exchange.SCATTER,
    lambda x, counts, *, capacity, root, comm: _rows(x, capacity),
    lambda ct, x, counts, *, capacity, root, comm: mpi_gatherv_p.bind(
        ct, counts, capacity=_capacity_of(x), root=root, comm=comm
    ),
)

mpi_alltoallv_p: Primitive = _ragged(
    "mpi_alltoallv",
    Exchange.ALLTOALL,
    lambda x, sendcounts, recvcounts, *, capacity, comm: _rows(x, capacity),
    lambda ct, x, sendcounts, recvcounts, *, capacity, comm: mpi_alltoallv_p.bind(
        ct, recvcounts, sendcounts, capacity=_capacity_of(x), comm=comm
    ),
)
