"""Communicators, and the part of a global array that each rank has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.mpi.arguments import communicator, whole
from mpijax.ops.ranks.ops import communicator_of
from mpijax.runtime.mpi import mpi_start, objects

__all__ = ["block_sizes", "block_slice", "create_cart", "dims_create", "split"]


def split(color: int | None, key: int = 0, *, comm=None) -> Any:
    """The communicator of the ranks with the same `color`, ordered by `key`. Collective.

    A rank with color None belongs to none of them and gets MPI.COMM_NULL. Call `.Free()` when no program uses the
    communicator any more. Raises ValueError for a negative color.

    >>> mpijax.mpi.split(color=0).Get_size()
    1
    """
    parent = communicator_of(communicator(comm, "split"))
    key = whole(key, "split", "key")
    if color is None:
        color = mpi_start.start().MPI.UNDEFINED
    elif whole(color, "split", "color") < 0 and color != mpi_start.start().MPI.UNDEFINED:
        raise ValueError(f"split: color must not be negative, got {color}. Use None for a rank without a communicator")
    with objects.recorded("split", parent, users=True):
        return mpi_start.start().name_child(parent, parent.Split(color, key))


def dims_create(size: int, ndims: int | Sequence[int]) -> tuple[int, ...]:
    """A grid of `size` ranks with `ndims` axes whose sizes are close to each other, in decreasing order.

    `ndims` may also be a list of sizes, with 0 for those to compute. Raises ValueError if no grid fits.

    >>> mpijax.mpi.dims_create(12, 2)
    (4, 3)
    """
    given = [0] * ndims if isinstance(ndims, int) else list(ndims)
    fixed = 1
    for d in given:
        fixed *= d or 1
    if fixed < 1 or size % fixed or (0 not in given and fixed != size):
        raise ValueError(f"dims_create: {size} ranks cannot form a grid of shape {tuple(given)} (0 means any size)")
    return tuple(mpi_start.start().MPI.Compute_dims(size, given))


def create_cart(dims: int | Sequence[int], periods: bool | Sequence[bool] = False, *, comm=None, reorder: bool = False):
    """A communicator (mpi4py's `Cartcomm`) of all ranks in a grid; collective.

    Args:
      dims: number of axes, or the number of ranks along each one (0: compute it). Their product is the number of ranks.
      periods: whether the last rank along an axis is a neighbour of the first; for all axes or for each.
      comm: the communicator of the ranks, by default of all.
      reorder: whether MPI may renumber ranks to place neighbours close to each other in the machine.

    >>> cart = mpijax.mpi.create_cart(2, periods=True)
    >>> cart.dims, cart.periods
    ([1, 1], [1, 1])
    """
    parent = communicator_of(communicator(comm, "create_cart"))
    dims = dims_create(parent.Get_size(), dims)
    wraps = [periods] * len(dims) if isinstance(periods, bool) else [bool(p) for p in periods]
    if len(wraps) != len(dims):
        raise ValueError(f"create_cart: {len(wraps)} periods {tuple(wraps)} for a grid of {len(dims)} axes {dims}")
    with objects.recorded("create_cart", parent, users=True):
        cart = mpi_start.start().name_child(parent, parent.Create_cart(dims, wraps, reorder))
    cart.Set_name("cart")
    return cart


def block_sizes(n: int, parts: int) -> tuple[int, ...]:
    """The number of elements of each of `parts` ranks, as equal as possible; the first ranks have one more.

    >>> mpijax.mpi.block_sizes(10, 4)
    (3, 3, 2, 2)
    """
    if n < 0 or parts < 1:
        raise ValueError(f"block_sizes: {n} elements cannot be divided into {parts} parts")
    each, rest = divmod(n, parts)
    return tuple(each + (i < rest) for i in range(parts))


def block_slice(n: Any, parts: Any, index: Any) -> Any:
    """The slice of rank `index` in `n` elements divided by `block_sizes`.

    Arguments are ints. For grids they are a shape, a grid and coordinates, and the result is a tuple of slices:
    `x[block_slice(x.shape, cart.dims, cart.coords)]`.

    >>> mpijax.mpi.block_slice(10, 4, 1)
    slice(3, 6, None)
    """
    if not isinstance(n, int):
        return tuple(block_slice(*axis) for axis in zip(n, parts, index, strict=True))
    sizes = block_sizes(n, parts)
    if not 0 <= index < len(sizes):
        raise ValueError(f"block_slice: index must be from 0 to {len(sizes) - 1}, got {index}")
    start = sum(sizes[:index])
    return slice(start, start + sizes[index])
