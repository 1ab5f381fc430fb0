"""Neighbour exchange on grids of ranks: fills the cells along the border of each rank's part from its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax import lax
from mpijax import numpy as jnp
from mpijax.mpi.arguments import array, communicator, whole
from mpijax.mpi.messages import send, sendrecv
from mpijax.ops.ranks.messages import HALO_TAG
from mpijax.ops.ranks.ops import communicator_of
from mpijax.runtime.mpi import mpi_start

__all__ = ["halo_exchange"]


def halo_exchange(x, comm, *, halo: int | Sequence[int] = 1, axes: Sequence[int] | None = None):
    """Fill the halo of each rank's part of a grid with its neighbours' cells.

    Args:
      x: this rank's part, with `halo` extra cells at both ends of each exchanged axis.
      comm: communicator of the grid (`create_cart`), which also defines which axes are periodic.
      halo: width in cells, for all axes or for each.
      axes: the axis of `x` for each axis of the grid; by default its first ones.

    Returns: `x` with new halos, including corners. Halos at a non-periodic border of the grid stay as they are.
    In a compiled program only the halo moves: `x` is updated in place if it has no other use.

    Communicates one message to each neighbour, two along each axis. Raises TypeError if `comm` is not a grid,
    ValueError for a part that is smaller than its halos.

    >>> ring = mpijax.mpi.create_cart(1, periods=True)
    >>> mpijax.mpi.halo_exchange(jnp.array([0.0, 1.0, 2.0, 3.0, 0.0]), ring)
    Array([3., 1., 2., 3., 1.], dtype=float32)
    """
    x, handle = jnp.asarray(array(x, "halo_exchange")), communicator(comm, "halo_exchange")
    comm = communicator_of(handle)
    if not isinstance(comm, mpi_start.start().MPI.Cartcomm):
        raise TypeError(f"halo_exchange: comm must be a Cartesian communicator of create_cart, got {comm!r}")
    ndims = len(comm.dims)
    axes = tuple(range(ndims)) if axes is None else tuple(axes)
    given = tuple(halo) if isinstance(halo, (tuple, list)) else (halo,) * ndims
    widths = tuple(whole(w, "halo_exchange", "halo") for w in given)
    if len(axes) != ndims or len(widths) != ndims:
        raise ValueError(
            f"halo_exchange: axes {axes} and widths {widths} must have one entry for each of the {ndims} axes of the "
            "grid"
        )
    places = [_checked_axis(x, axis, width) for axis, width in zip(axes, widths, strict=True)]
    if len(set(places)) != ndims:
        raise ValueError(f"halo_exchange: axes {axes} of an array of shape {x.shape} must be different")
    for direction, (axis, width) in enumerate(zip(places, widths, strict=True)):
        if width:
            below, above = comm.Shift(direction, 1)
            x = _along(x, axis, width, below, above, comm)
    return x


def _checked_axis(x, axis: int, width: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"halo_exchange: axis {axis} is out of bounds for an array of shape {x.shape}")
    axis %= x.ndim
    if width < 0:
        raise ValueError(f"halo_exchange: halo must not be negative, got {width}")
    if x.shape[axis] < 3 * width:
        raise ValueError(
            f"halo_exchange: axis {axis} of an array of shape {x.shape} needs at least {3 * width} cells: halos of "
            f"{width} cells at both ends, and {width} interior cells to send"
        )
    return axis


def _along(x, axis: int, width: int, below: int, above: int, comm: Any):
    """The exchange along one axis, upwards and then downwards. `x` is written last, in place if possible."""
    n = x.shape[axis]
    received = []

    def at(start: int):
        return (*(slice(None) for _ in range(axis)), slice(start, start + width))

    upwards, downwards = x[at(n - 2 * width)], x[at(width)]
    nobody = mpi_start.start().MPI.PROC_NULL
    for sent, source, dest, place in ((upwards, below, above, 0), (downwards, above, below, n - width)):
        if source != nobody:
            slab = sendrecv(sent, sent, source, dest, sendtag=HALO_TAG, recvtag=HALO_TAG, comm=comm)
            received.append((place, slab))
        elif dest != nobody:
            send(sent, dest, tag=HALO_TAG, comm=comm)
    for place, slab in received:
        x = lax.dynamic_update_slice_in_dim(x, slab, place, axis)
    return x
