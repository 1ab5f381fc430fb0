"""Collectives on blocks of different lengths: `counts` gives the number of rows of each rank.

Counts are known while tracing. With `capacity` they may instead be values of the program; the result then has
`capacity` rows: first the rows that were sent, then zeros. Operands may then have more rows than the counts say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.types.typeof import typeof
from mpijax.mpi.arguments import array, check_rows, communicator, counts_of, root_rank, whole
from mpijax.mpi.collectives import no_rows
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.ranks.moves import mpi_allgather_p, mpi_alltoall_p, mpi_gather_p, mpi_scatter_p
from mpijax.ops.ranks.ops import Handle, rank_in, size_of
from mpijax.ops.ranks.ragged import mpi_allgatherv_p, mpi_alltoallv_p, mpi_gatherv_p, mpi_scatterv_p

__all__ = ["allgatherv", "alltoallv", "gatherv", "scatterv"]


def allgatherv(x, counts: Sequence[int] | Any, *, capacity: int | None = None, comm=None):
    """The rows of all ranks, concatenated in rank order, on every rank.

    Args:
      x: array of shape (counts[rank], ...).
      counts: number of rows of each rank, the same on all ranks.
      capacity: number of rows of the result, at least sum(counts). With it, `counts` may be a traced array of integers,
        and `x` may have more than counts[rank] rows.
      comm: a communicator of mpi4py; by default all ranks.

    Returns: array of shape (sum(counts), ...); or (capacity, ...), with zeros after the rows that were sent.

    Communicates one MPI_Allgatherv; the transpose is a reduce_scatter. Raises ValueError if counts do not fit; with a
    capacity, RuntimeError at run time.

    >>> mpijax.mpi.allgatherv(jnp.array([1.0, 2.0]), counts=[2])
    Array([1., 2.], dtype=float32)
    """
    what = "allgatherv"
    x, comm = array(x, what), communicator(comm, what)
    if capacity is None:
        return mpi_allgather_p.bind(x, counts=_own(x, counts, comm, what), comm=comm)
    x, counts, capacity = _with_rows(x, what), _vector(counts, comm, what), _checked(capacity, what)
    return mpi_allgatherv_p.bind(x, counts, capacity=capacity, comm=comm)


def gatherv(x, counts: Sequence[int] | Any, root, *, capacity: int | None = None, comm=None):
    """The rows of all ranks, concatenated in rank order, on the root; the others get `x` back.

    Args:
      x: array of shape (counts[rank], ...).
      counts: number of rows of each rank, the same on all ranks.
      root: the rank that gets the result, of shape (sum(counts), ...) or (capacity, ...).
      capacity: as for `allgatherv`.
      comm: a communicator of mpi4py; by default all ranks.

    Communicates one MPI_Gatherv; the transpose is `scatterv`. Raises as `allgatherv`.

    >>> mpijax.mpi.gatherv(jnp.array([1.0, 2.0]), counts=[2], root=0)
    Array([1., 2.], dtype=float32)
    """
    what = "gatherv"
    x, comm = array(x, what), communicator(comm, what)
    root = root_rank(root, comm, what)
    if capacity is None:
        out = mpi_gather_p.bind(x, counts=_own(x, counts, comm, what), root=root, comm=comm)
    else:
        x, counts, capacity = _with_rows(x, what), _vector(counts, comm, what), _checked(capacity, what)
        out = mpi_gatherv_p.bind(x, counts, capacity=capacity, root=root, comm=comm)
    return out if rank_in(comm) == root else x


def scatterv(x, counts: Sequence[int] | Any, root, *, capacity: int | None = None, comm=None):
    """This rank's rows of the root's `x`.

    Args:
      x: on the root, an array of shape (sum(counts), ...), or of more rows with a capacity; on other ranks, of shape
        (counts[rank], ...), whose values are ignored (with a capacity, also its number of rows).
      counts: number of rows for each rank, the same on all ranks.
      root: the rank that sends.
      capacity: rows of the result, at least counts[rank]. With it, `counts` may be a traced array of integers.
      comm: a communicator of mpi4py; by default all ranks.

    Returns: array of shape (counts[rank], ...); or (capacity, ...), with zeros after the rows that were sent.

    Communicates one MPI_Scatterv; the transpose is `gatherv`. Raises as `allgatherv`.

    >>> mpijax.mpi.scatterv(jnp.array([1.0, 2.0]), counts=[2], root=0)
    Array([1., 2.], dtype=float32)
    """
    what = "scatterv"
    x, comm = array(x, what), communicator(comm, what)
    root = root_rank(root, comm, what)
    at_root = rank_in(comm) == root
    if capacity is not None:
        x, counts, capacity = _with_rows(x, what), _vector(counts, comm, what), _checked(capacity, what)
        x = x if at_root else no_rows(x)
        return mpi_scatterv_p.bind(x, counts, capacity=capacity, root=root, comm=comm)
    if at_root:
        counts = counts_of(counts, comm, what)
        check_rows(x, sum(counts), what, f"the sum of counts={counts}, on the root")
    else:
        counts = _own(x, counts, comm, what)
        x = no_rows(x)
    return mpi_scatter_p.bind(x, counts=counts, root=root, comm=comm)


def alltoallv(
    x, sendcounts: Sequence[int] | Any, recvcounts: Sequence[int] | Any, *, capacity: int | None = None, comm=None
):
    """Send rows to every rank and receive rows from every rank, as many as the counts say.

    Args:
      x: array of shape (sum(sendcounts), ...): rows for rank 0, then for rank 1, and so on.
      sendcounts: number of rows for each rank.
      recvcounts: number of rows from each rank: its `sendcounts` entry for this rank (`alltoall` exchanges them).
      capacity: number of rows of the result, at least sum(recvcounts). With it, counts may be traced arrays of
        integers, and `x` may have more rows than are sent.
      comm: a communicator of mpi4py; by default all ranks.

    Returns: array of shape (sum(recvcounts), ...); or (capacity, ...), with zeros after the rows that were sent.

    Communicates one MPI_Alltoallv; the transpose swaps the counts. Raises as `allgatherv`.

    >>> mpijax.mpi.alltoallv(jnp.array([1.0, 2.0]), sendcounts=[2], recvcounts=[2])
    Array([1., 2.], dtype=float32)
    """
    what = "alltoallv"
    x, comm = array(x, what), communicator(comm, what)
    if capacity is not None:
        x, capacity = _with_rows(x, what), _checked(capacity, what)
        both = _vector(sendcounts, comm, what, "sendcounts"), _vector(recvcounts, comm, what, "recvcounts")
        return mpi_alltoallv_p.bind(x, *both, capacity=capacity, comm=comm)
    sends = counts_of(sendcounts, comm, what, "sendcounts")
    receives = counts_of(recvcounts, comm, what, "recvcounts")
    check_rows(x, sum(sends), what, f"the sum of sendcounts={sends}")
    rank = rank_in(comm)
    if sends[rank] != receives[rank]:
        raise ValueError(
            f"alltoallv: rank {rank} sends itself {sends[rank]} rows (sendcounts={sends}), "
            f"but expects {receives[rank]} (recvcounts={receives})"
        )
    return mpi_alltoall_p.bind(x, sendcounts=sends, recvcounts=receives, comm=comm)


def _own(x, counts, comm: Handle, what: str) -> tuple[int, ...]:
    """The counts, checked against this rank's number of rows."""
    counts = counts_of(counts, comm, what)
    rank = rank_in(comm)
    check_rows(x, counts[rank], what, f"counts[{rank}] of {counts}")
    return counts


# ---------------------------------------------------------------- with a capacity


def _with_rows(x, what: str):
    if not typeof(x).shape:
        raise ValueError(f"{what}: input must have shape (rows, ...), got a scalar")
    return x


def _checked(capacity, what: str) -> int:
    capacity = whole(capacity, what, "capacity")
    if capacity < 0:
        raise ValueError(f"{what}: capacity must not be negative, got {capacity}")
    return capacity


def _vector(counts, comm: Handle, what: str, name: str = "counts"):
    """The counts as int32, one for each rank."""
    if isinstance(counts, (tuple, list)):
        counts = np.asarray(counts_of(counts, comm, what, name), np.int32)
    aval, size = typeof(array(counts, what)), size_of(comm)
    if aval.shape != (size,) or not dtypes.issubdtype(aval.dtype, np.integer):
        raise ValueError(
            f"{what}: {name} must be integers, one for each of the {size} ranks, got {aval.dtype} of shape {aval.shape}"
        )
    return convert_element_type(counts, np.int32)
