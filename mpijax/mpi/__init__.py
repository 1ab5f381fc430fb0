"""MPI operations in traced code, with mpi4jax's signatures: every rank calls them with its own values.

They run in program order inside `jit`, `grad` and `vmap`, and eagerly. `comm` and `op` are mpi4py's; the default
communicator is a private duplicate of COMM_WORLD.

    from mpi4py import MPI
    import mpijax as jax
    from mpijax import mpi

    total = jax.jit(lambda x: mpi.allreduce(x, op=MPI.SUM))(x)
"""

from __future__ import annotations

from typing import Any

from mpijax.ops.rank_ops import Handle, checked, mpi_allreduce_p, mpi_barrier_p, mpi_bcast_p

__all__ = ["allreduce", "barrier", "bcast"]

_default = Handle(None, "WORLD")


def _communicator(comm: Any) -> Handle:
    if comm is None:
        return _default
    if not hasattr(comm, "Get_rank"):
        raise TypeError(f"comm must be a communicator of mpi4py (MPI.COMM_WORLD, comm.Split(...)), got {comm!r}")
    return Handle(comm, comm.Get_name() or "comm")


def _operation(op: Any) -> Handle:
    from mpi4py import MPI  # MPI starts here at the latest

    from mpijax.runtime import mpi_start

    mpi_start.start()
    names = ("SUM", "PROD", "MAX", "MIN", "LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR")
    if isinstance(op, str):
        if op.upper() not in names:
            raise ValueError(f"unknown reduction {op!r}; there are {', '.join(names)}")
        op = getattr(MPI, op.upper())
    if not isinstance(op, MPI.Op):
        raise TypeError(f"op must be an operation of mpi4py such as MPI.SUM, got {op!r}")
    return Handle(op, next((n for n in names if getattr(MPI, n) == op), "user-defined"))


def allreduce(x, op, *, comm=None):
    """Reduce `x` over all ranks; every rank gets the result.

    Args:
      x: array, of the same shape and dtype on every rank.
      op: an operation of mpi4py, such as `MPI.SUM`.
      comm: a communicator of mpi4py; by default all ranks.

    Communicates one MPI_Allreduce. Differentiable for SUM: forward mode sums tangents; the transpose is the
    identity, as in mpi4jax, so that the gradient of a loss that all ranks share counts it once.
    """
    return mpi_allreduce_p.bind(
        checked(x, "allreduce"), op=_operation(op), comm=_communicator(comm), transposed=False
    )


def bcast(x, root: int, *, comm=None):
    """The root's `x` on every rank. Communicates one MPI_Bcast.

    Args:
      x: array, of the same shape and dtype on every rank; its values count on the root only.
      root: rank that sends.
      comm: a communicator of mpi4py; by default all ranks.

    Raises ValueError for a root outside of the communicator.
    """
    from mpijax.runtime import mpi_start

    group = comm if comm is not None else mpi_start.world()
    size = group.Get_size()
    if not isinstance(root, int) or not 0 <= root < size:
        raise ValueError(f"bcast: root must be a rank of the communicator, 0 to {size - 1}, got {root!r}")
    return mpi_bcast_p.bind(checked(x, "bcast"), root=root, comm=_communicator(comm))


def barrier(*, comm=None) -> None:
    """Wait until all ranks have come here."""
    mpi_barrier_p.bind(comm=_communicator(comm))
