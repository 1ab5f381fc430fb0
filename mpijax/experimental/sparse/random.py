"""Sparse arrays with elements at random coordinates."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import mpijax.numpy as jnp
from mpijax import random
from mpijax.core import dtypes
from mpijax.experimental.sparse.bcoo import BCOO
from mpijax.transforms.vmap import vmap


def random_bcoo(
    key: Any,
    shape: Sequence[int],
    *,
    dtype: Any = None,
    indices_dtype: Any = None,
    nse: float = 0.2,
    n_batch: int = 0,
    n_dense: int = 0,
    unique_indices: bool = True,
    sorted_indices: bool = False,
    generator: Callable = random.uniform,
    **kwds: Any,
) -> BCOO:
    """A sparse array with elements at random coordinates. `nse`: the number of elements, or, below 1, their fraction.

    dtype: dtype of the values; None means the default float.
    generator: `(key, shape=, dtype=, **kwds) -> array`, a function that draws the values.

    >>> from mpijax.experimental import sparse
    >>> sparse.random_bcoo(mpijax.random.key(0), (4, 5), nse=3).nse
    3
    """
    shape, n_batch, n_dense = tuple(map(operator.index, shape)), operator.index(n_batch), operator.index(n_dense)
    if n_batch < 0 or n_dense < 0 or n_batch + n_dense > len(shape):
        raise ValueError(f"Invalid {n_batch=}, {n_dense=} for {shape=}")
    last = len(shape) - n_dense
    batch, sparse, dense = shape[:n_batch], shape[n_batch:last], shape[last:]
    size = math.prod(sparse)
    if not 0 <= nse < size:
        raise ValueError(f"got {nse=}, expected to be between 0 and {size}")
    count = math.ceil(nse * size) if 0 < nse < 1 else operator.index(nse)  # type: ignore[arg-type]
    integers = dtypes.default_int_dtype() if indices_dtype is None else indices_dtype
    if size > jnp.iinfo(integers).max:
        raise ValueError(
            f"indices_dtype={indices_dtype!r} does not have enough range to generate sparse indices of size {size}."
        )

    def places(key: Any) -> Any:
        if not sparse:
            return jnp.zeros((count, 0), integers)
        flat = random.choice(key, size, shape=(count,), replace=not unique_indices).astype(integers)
        return jnp.column_stack(jnp.unravel_index(flat, sparse))

    keys = random.split(key, math.prod(batch) + 1)
    dtype = jnp.result_type(float) if dtype is None else dtype
    data = generator(keys[0], shape=(*batch, count, *dense), dtype=dtype, **kwds)
    indices = vmap(places)(keys[1:]).reshape(*batch, count, len(sparse))
    mat = BCOO((data, indices), shape=shape)
    return mat.sort_indices() if sorted_indices else mat
