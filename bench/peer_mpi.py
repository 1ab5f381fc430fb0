"""What the examples use of `mpijax.mpi`, for JAX: the messages by mpi4jax, as a user of that would write them.

A neighbour that is the rank itself takes no message, and one rank alone reduces nothing: that is as fast as JAX can be.
"""

import itertools

import jax.numpy as jnp
import numpy as np
from mpi4py import MPI


def create_cart(ndims, periods=False, comm=None):
    comm = comm or MPI.COMM_WORLD
    wraps = [periods] * ndims if isinstance(periods, bool) else list(periods)
    return comm.Create_cart(MPI.Compute_dims(comm.size, ndims), wraps)


def block_slice(shape, dims, coords):
    return tuple(map(_part, shape, dims, coords))


def _part(n, parts, index):
    each, rest = divmod(n, parts)
    start = index * each + min(index, rest)
    return slice(start, start + each + (index < rest))


def allreduce(x, op, comm):
    if comm.size == 1:
        return x
    import mpi4jax  # Only between ranks: JAX alone can be measured where mpi4jax is not installed.

    return mpi4jax.allreduce(x, op=op, comm=comm)


def halo_exchange(x, comm, axes=(0, 1)):
    for direction, axis in enumerate(axes):
        n = x.shape[axis]
        below, above = comm.Shift(direction, 1)
        received = [
            (0, _passed(_slab(x, axis, n - 2), below, above, comm)),
            (n - 1, _passed(_slab(x, axis, 1), above, below, comm)),
        ]
        for place, slab in received:
            if slab is not None:
                x = x.at[_at(x, axis, place)].set(slab)
    return x


def _at(x, axis, place):
    return tuple(itertools.chain([slice(None)] * axis, [slice(place, place + 1)]))


def _slab(x, axis, place):
    return x[_at(x, axis, place)]


def _passed(sent, source, dest, comm):
    """What comes from `source` while `sent` goes to `dest`; None from nobody."""
    if source == dest == comm.rank:
        return sent
    if source == dest == MPI.PROC_NULL:
        return None
    import mpi4jax

    if source == MPI.PROC_NULL:
        mpi4jax.send(sent, dest, comm=comm)
        return None
    if dest == MPI.PROC_NULL:
        return mpi4jax.recv(jnp.zeros_like(sent), source, comm=comm)
    return mpi4jax.sendrecv(sent, jnp.zeros_like(sent), np.int32(source), np.int32(dest), comm=comm)
