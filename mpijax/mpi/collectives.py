"""Collectives: operations that all ranks of a communicator call together, each with its own value."""

from __future__ import annotations

from collections.abc import Sequence

from mpijax.core.rules.registry import registry
from mpijax.core.types.typeof import typeof
from mpijax.mpi.arguments import array, check_rows, communicator, counts_of, operation, reducible, root_rank
from mpijax.mpi.tokens import takes_no_token
from mpijax.ops.ranks.moves import mpi_allgather_p, mpi_alltoall_p, mpi_bcast_p, mpi_gather_p, mpi_scatter_p
from mpijax.ops.ranks.ops import Handle, mpi_barrier_p, rank_in, size_of
from mpijax.ops.ranks.reductions import (
    mpi_allreduce_p,
    mpi_exscan_p,
    mpi_reduce_p,
    mpi_reduce_scatter_p,
    mpi_scan_p,
)

__all__ = [
    "allgather", "allreduce", "alltoall", "barrier", "bcast", "exscan", "gather", "no_rows", "pvary", "reduce",
    "reduce_scatter", "scan", "scatter",
]  # fmt: skip


# ---------------------------------------------------------------- reductions


def _reduced(x, op, comm, what: str):
    x, op, comm = array(x, what), operation(op, what), communicator(comm, what)
    reducible(x, op, what)
    return x, op, comm


@takes_no_token
def allreduce(x, op, *, comm=None):
    """Reduce `x` over all ranks; every rank gets the result, of the shape and dtype of `x`.

    Args:
      x: array, of the same shape and dtype on every rank. Bools are reduced as truth values.
      op: an operation of mpi4py, such as `MPI.SUM`.
      comm: a communicator of mpi4py; by default all ranks.

    Communicates one MPI_Allreduce. Differentiable for SUM, PROD, MAX and MIN. The transpose of SUM is the identity, as
    in mpi4jax: it assumes that all ranks continue alike with the shared result, so the gradient of a shared loss counts
    it once. If ranks use the result differently, pass it through `pvary` first. Raises TypeError for a dtype that MPI
    cannot reduce by `op`.

    >>> from mpi4py import MPI
    >>> mpijax.jit(lambda x: mpijax.mpi.allreduce(x, op=MPI.SUM))(jnp.array([1.0, 2.0]))
    Array([1., 2.], dtype=float32)
    """
    x, op, comm = _reduced(x, op, comm, "allreduce")
    return mpi_allreduce_p.bind(x, op=op, comm=comm, transposed=False)


def pvary(x, *, comm=None):
    """`x`, which is equal on all ranks, for use in different ways on each rank. Communicates nothing.

    The transpose sums the cotangents of all ranks, which are contributions to the cotangent of the one value. `pvary`
    and `allreduce` with SUM are each other's transpose.

    >>> mpijax.mpi.pvary(jnp.array([1.0, 2.0]))
    Array([1., 2.], dtype=float32)
    """
    x, op, comm = _reduced(x, "SUM", comm, "pvary")
    return mpi_allreduce_p.bind(x, op=op, comm=comm, transposed=True)


@takes_no_token
def reduce(x, op, root, *, comm=None):
    """Reduce `x` over all ranks; the root gets the result, the others get `x` back.

    Args:
      x: array, of the same shape and dtype on every rank.
      op: an operation of mpi4py, such as `MPI.SUM`.
      root: the rank that gets the result.
      comm: a communicator of mpi4py; by default all ranks.

    Communicates one MPI_Reduce. Differentiable for SUM, PROD, MAX and MIN; the transpose of SUM is `bcast`.

    >>> from mpi4py import MPI
    >>> mpijax.mpi.reduce(jnp.array([1.0, 2.0]), op=MPI.MAX, root=0)
    Array([1., 2.], dtype=float32)
    """
    x, op, comm = _reduced(x, op, comm, "reduce")
    root = root_rank(root, comm, "reduce")
    out = mpi_reduce_p.bind(x, op=op, root=root, comm=comm)
    return out if rank_in(comm) == root else x


@takes_no_token
def scan(x, op, *, comm=None):
    """Reduce elementwise over this rank and the ranks before it. Communicates one MPI_Scan.

    Args:
      x: array, of the same shape and dtype on every rank.
      op: an operation of mpi4py, such as `MPI.SUM`.
      comm: a communicator of mpi4py; by default all ranks.

    Differentiable for SUM, PROD, MAX and MIN; derivatives communicate the values of all ranks.

    >>> from mpi4py import MPI
    >>> mpijax.mpi.scan(jnp.array([1.0, 2.0]), op=MPI.SUM)
    Array([1., 2.], dtype=float32)
    """
    x, op, comm = _reduced(x, op, comm, "scan")
    return mpi_scan_p.bind(x, op=op, comm=comm)


def exscan(x, op, *, comm=None):
    """Reduce over the ranks before this one; zeros on rank 0. Communicates one MPI_Exscan. Otherwise like `scan`.

    >>> from mpi4py import MPI
    >>> mpijax.mpi.exscan(jnp.array([1.0, 2.0]), op=MPI.SUM)
    Array([0., 0.], dtype=float32)
    """
    x, op, comm = _reduced(x, op, comm, "exscan")
    return mpi_exscan_p.bind(x, op=op, comm=comm)


def reduce_scatter(x, op, *, counts: Sequence[int] | None = None, comm=None):
    """Reduce `x` over all ranks; each rank gets its block of the result.

    Args:
      x: array of shape (size, ...), a block for each rank; or, with `counts`, (sum(counts), ...).
      op: an operation of mpi4py, such as `MPI.SUM`.
      counts: number of rows in each rank's block, the same on all ranks.
      comm: a communicator of mpi4py; by default all ranks.

    Returns: the block, of shape x.shape[1:], or (counts[rank], ...).

    Communicates one MPI_Reduce_scatter. Differentiable for SUM (the transpose is `allgather`), PROD, MAX and MIN.

    >>> from mpi4py import MPI
    >>> mpijax.mpi.reduce_scatter(jnp.array([[1.0, 2.0]]), op=MPI.SUM)
    Array([1., 2.], dtype=float32)
    """
    x, op, comm = _reduced(x, op, comm, "reduce_scatter")
    counts = _blocks(x, counts, comm, "reduce_scatter")
    return mpi_reduce_scatter_p.bind(x, op=op, counts=counts, comm=comm)


def _blocks(x, counts, comm: Handle, what: str):
    """The counts, checked against the number of rows in `x`."""
    if counts is None:
        check_rows(x, size_of(comm), what, "one for each rank")
        return None
    counts = counts_of(counts, comm, what)
    check_rows(x, sum(counts), what, f"the sum of counts={counts}")
    return counts


# ---------------------------------------------------------------- moves


@takes_no_token
def barrier(*, comm=None) -> None:
    """Wait until all ranks have reached this call.

    >>> mpijax.mpi.barrier()
    """
    mpi_barrier_p.bind(comm=communicator(comm, "barrier"))


@takes_no_token
def bcast(x, root, *, comm=None):
    """The root's `x` on every rank. Communicates one MPI_Bcast; the transpose is `reduce` with SUM.

    Args:
      x: array, of the same shape and dtype on every rank; only the root's values are used.
      root: the rank that sends.
      comm: a communicator of mpi4py; by default all ranks.

    Raises ValueError for a root outside of the communicator.

    >>> mpijax.mpi.bcast(jnp.array([1.0, 2.0]), root=0)
    Array([1., 2.], dtype=float32)
    """
    x, comm = array(x, "bcast"), communicator(comm, "bcast")
    return mpi_bcast_p.bind(x, root=root_rank(root, comm, "bcast"), comm=comm)


@takes_no_token
def allgather(x, *, comm=None):
    """The `x` of all ranks on every rank, along a new first axis over ranks.

    Args:
      x: array, of the same shape and dtype on every rank.
      comm: a communicator of mpi4py; by default all ranks.

    Communicates one MPI_Allgather; the transpose is `reduce_scatter` with SUM.

    >>> mpijax.mpi.allgather(jnp.array([1.0, 2.0]))
    Array([[1., 2.]], dtype=float32)
    """
    x, comm = array(x, "allgather"), communicator(comm, "allgather")
    return mpi_allgather_p.bind(x, counts=None, comm=comm)


@takes_no_token
def gather(x, root, *, comm=None):
    """The `x` of all ranks on the root, along a new first axis over ranks; the others get `x` back.

    Args:
      x: array, of the same shape and dtype on every rank.
      root: the rank that gets the result.
      comm: a communicator of mpi4py; by default all ranks.

    Communicates one MPI_Gather; the transpose is `scatter`.

    >>> mpijax.mpi.gather(jnp.array([1.0, 2.0]), root=0)
    Array([[1., 2.]], dtype=float32)
    """
    x, comm = array(x, "gather"), communicator(comm, "gather")
    root = root_rank(root, comm, "gather")
    out = mpi_gather_p.bind(x, counts=None, root=root, comm=comm)
    return out if rank_in(comm) == root else x


@takes_no_token
def scatter(x, root, *, comm=None):
    """This rank's block of the root's `x`.

    Args:
      x: on the root, an array of shape (size, ...) with a block for each rank; on other ranks, an array with the shape
        and dtype of a block, whose values are ignored.
      root: the rank that sends.
      comm: a communicator of mpi4py; by default all ranks.

    Communicates one MPI_Scatter; the transpose is `gather`.

    >>> mpijax.mpi.scatter(jnp.array([[1.0, 2.0]]), root=0)
    Array([1., 2.], dtype=float32)
    """
    x, comm = array(x, "scatter"), communicator(comm, "scatter")
    root = root_rank(root, comm, "scatter")
    if rank_in(comm) == root:
        check_rows(x, size_of(comm), "scatter", "one for each rank, on the root")
    else:
        x = no_rows(_with_rank_axis(x))
    return mpi_scatter_p.bind(x, counts=None, root=root, comm=comm)


def _with_rank_axis(x):
    return registry["reshape"].bind(x, new_sizes=(1, *typeof(x).shape), dimensions=None, sharding=None)


def no_rows(x):
    """The operand of ranks other than the root: empty, but dependent on their argument."""
    shape = typeof(x).shape
    zeros = (0,) * len(shape)
    return registry["slice"].bind(x, start_indices=zeros, limit_indices=(0, *shape[1:]), strides=None)


@takes_no_token
def alltoall(x, *, comm=None):
    """Send block r of `x` to rank r; block r of the result comes from rank r.

    Args:
      x: array of shape (size, ...), the same on every rank.
      comm: a communicator of mpi4py; by default all ranks.

    Communicates one MPI_Alltoall, which is its own transpose.

    >>> mpijax.mpi.alltoall(jnp.array([[1.0, 2.0]]))
    Array([[1., 2.]], dtype=float32)
    """
    x, comm = array(x, "alltoall"), communicator(comm, "alltoall")
    check_rows(x, size_of(comm), "alltoall", "one for each rank")
    return mpi_alltoall_p.bind(x, sendcounts=None, recvcounts=None, comm=comm)
