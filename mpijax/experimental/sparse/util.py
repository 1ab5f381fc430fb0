"""Shared code of operations on sparse arrays: `SparseInfo`, batch axes, and checks of values and coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

import mpijax.numpy as jnp
from mpijax.core import dtypes
from mpijax.core.base import config
from mpijax.transforms.vmap import vmap


class SparseEfficiencyError(ValueError):
    """A layout would store many zeros."""


class SparseEfficiencyWarning(UserWarning):
    """A layout stores many zeros."""


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """A warning of JAX on GPUs; mpijax never raises it."""


class SparseInfo(NamedTuple):
    """The attributes of a sparse array besides its arrays, for primitives.

    >>> from mpijax.experimental import sparse
    >>> sparse.eye(2)._info
    SparseInfo(shape=(2, 2), indices_sorted=True, unique_indices=True)
    """

    shape: tuple[int, ...]
    indices_sorted: bool = False
    unique_indices: bool = False


_F = TypeVar("_F", bound=Callable)


def ranks_differ(fun: _F) -> _F:
    """`fun`, with promotion of arrays with different numbers of axes, for any value of `jax_numpy_rank_promotion`."""

    @wraps(fun)
    def allowed(*args: Any, **kwargs: Any) -> Any:
        with config.numpy_rank_promotion("allow"):
            return fun(*args, **kwargs)

    return cast(_F, allowed)


def nfold_vmap(fun: Callable, N: int, *, broadcasted: bool = True, in_axes: Any = 0) -> Callable:
    """`fun` over N leading axes of its arguments.

    broadcasted: whether an argument whose axis has size 1 is the same for all.

    >>> from mpijax.experimental.sparse.util import nfold_vmap
    >>> nfold_vmap(jnp.dot, 1)(jnp.ones((1, 2)), jnp.arange(4.0).reshape(2, 2))
    Array([1., 5.], dtype=float32)
    """
    over = _broadcasting_vmap if broadcasted else vmap
    for _ in range(N):
        fun = over(fun, in_axes=in_axes)
    return fun


def _broadcasting_vmap(fun: Callable, in_axes: Any = 0) -> Callable:
    def mapped(*args: Any) -> Any:
        axes = list(in_axes) if isinstance(in_axes, Sequence) else [in_axes] * len(args)
        size = next((n for x, a in zip(args, axes) if a is not None and (n := x.shape[a]) != 1), 1)
        given = list(args)
        for i, axis in enumerate(axes):
            if axis is not None and args[i].shape[axis] == 1 != size:
                given[i], axes[i] = args[i][0], None
        return vmap(fun, in_axes=tuple(axes))(*given)

    return mapped


# Classes by name. Functions make arrays of a class whose methods call them.
classes: dict[str, Callable[..., Any]] = {}


def new_bcoo(data: Any, indices: Any, shape: Iterable[int], sorted_: bool = False, unique: bool = False) -> Any:
    return classes["BCOO"]((data, indices), shape=tuple(shape), indices_sorted=sorted_, unique_indices=unique)


def is_bcoo(x: Any) -> bool:
    return hasattr(x, "indices") and hasattr(x, "nse") and not hasattr(x, "indptr")


def check_parts(data: tuple[int, ...], indices: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError or TypeError unless values and coordinates match an array of that shape."""
    if indices.ndim < 2 or not dtypes.issubdtype(indices.dtype, np.integer):
        raise TypeError(
            f"BCOO indices must be integers of shape (*batch, nse, n_sparse), got {indices.dtype}{list(indices.shape)}."
        )
    batch, (nse, sparse) = indices.ndim - 2, indices.shape[-2:]
    dense = len(data) - batch - 1
    fits = (
        dense >= 0
        and batch + sparse + dense == len(shape)
        and data[batch] == nse
        and all(n in (1, full) for n, full in zip(indices.shape[:batch], shape))
        and all(n in (1, full) for n, full in zip(data[:batch], shape))
        and data[batch + 1 :] == shape[batch + sparse :]
    )
    if not fits:
        raise ValueError(
            f"BCOO: data of shape {data} and indices of shape {indices.shape} do not match an array of shape {shape}: "
            "data must have shape (*batch, nse, *dense), and indices (*batch, nse, n_sparse)."
        )


def sparse_shape(mat: Any) -> tuple[int, ...]:
    """Sizes of the sparse axes."""
    return mat.shape[mat.n_batch : mat.n_batch + mat.n_sparse]


def beyond(mat: Any) -> Any:
    """The coordinates that mean no element, with the dtype of the coordinates."""
    return jnp.asarray(np.array(sparse_shape(mat), int), mat.indices.dtype)


def columns(indices: Any) -> tuple[Any, ...]:
    return tuple(indices[..., i] for i in range(indices.shape[-1]))


def over_dense(mask: Any, mat: Any) -> Any:
    """A mask of elements, with an axis of size 1 for each dense axis."""
    return mask.reshape(*mask.shape, *(1,) * mat.n_dense)


def full_batches(mat: Any) -> tuple[Any, Any]:
    """Data and indices with batch axes of full size."""
    batch = mat.shape[: mat.n_batch]
    data = jnp.broadcast_to(mat.data, (*batch, *mat.data.shape[mat.n_batch :]))
    return data, jnp.broadcast_to(mat.indices, (*batch, *mat.indices.shape[mat.n_batch :]))
