"""MPI operations in traced code, with mpi4jax's signatures: every rank calls them with its own values.

They run in program order inside `jit`, `grad` and `vmap`, in loops and branches, and eagerly. `comm` and `op` are
mpi4py's; the default communicator is a private duplicate of COMM_WORLD. A program written for mpi4jax runs after
`import mpijax.mpi as mpi4jax`. One for mpi4jax before 0.8, with tokens, runs after `import mpijax.mpi.with_tokens as
mpi4jax`.

    from mpi4py import MPI
    import mpijax as jax
    from mpijax import mpi

    total = jax.jit(lambda x: mpi.allreduce(x, op=MPI.SUM))(x)


A transformation applies to an operation on all ranks that call it, whichever values depend on it: all ranks must
differentiate, or `vmap` over the same number of examples, together.
"""

from typing import Any

from mpijax import version
from mpijax.mpi.collectives import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    bcast,
    exscan,
    gather,
    pvary,
    reduce,
    reduce_scatter,
    scan,
    scatter,
)
from mpijax.mpi.counted import allgatherv, alltoallv, gatherv, scatterv
from mpijax.mpi.halo import halo_exchange
from mpijax.mpi.messages import recv, send, sendrecv, sendrecv_replace
from mpijax.mpi.topology import block_sizes, block_slice, create_cart, dims_create, split

__all__ = [
    "allgather", "allgatherv", "allreduce", "alltoall", "alltoallv", "barrier", "bcast", "block_sizes", "block_slice",
    "create_cart", "dims_create", "exscan", "gather", "gatherv", "halo_exchange", "has_cuda_support",
    "has_sycl_support", "pvary", "recv", "reduce", "reduce_scatter", "scan", "scatter", "scatterv", "send", "sendrecv",
    "sendrecv_replace", "split",
]  # fmt: skip

__version__ = version.mpi4jax_version


def __getattr__(name: str) -> Any:
    text = f"module 'mpijax.mpi' has no attribute {name!r}"
    if name.lower() in __all__:
        text += f". Use {name.lower()}."
    elif name.isupper() and not name.startswith("_"):
        text += f". Communicators, operations and constants are those of mpi4py: use mpi4py.MPI.{name}."
    elif name.startswith("i") and name[1:] in __all__:
        text += f". Use {name[1:]}: a compiled program overlaps it with computation that does not need its result."
    raise AttributeError(text)


def has_cuda_support() -> bool:
    """Whether arrays in the memory of NVIDIA devices can be sent: never, because all arrays are in main memory.

    >>> mpijax.mpi.has_cuda_support()
    False
    """
    return False


def has_sycl_support() -> bool:
    """Whether arrays in the memory of Intel devices can be sent: never, because all arrays are in main memory.

    >>> mpijax.mpi.has_sycl_support()
    False
    """
    return False
