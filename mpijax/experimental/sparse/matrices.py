"""The common code of the matrix formats `COO`, `CSR` and `CSC`: they compute by conversion to a BCOO."""

from __future__ import annotations

from typing import Any

import mpijax.numpy as jnp
from mpijax.experimental.sparse.base import JAXSparse
from mpijax.experimental.sparse.bcoo import BCOO


def rows_of(indptr: Any, nse: int) -> Any:
    """The row of each element, from the starts of rows. Elements after the last row are in no row."""
    return jnp.zeros(nse, indptr.dtype).at[indptr].add(1, mode="drop").cumsum() - 1


def starts_of(rows: Any, count: int) -> Any:
    """The start of each of `count` rows among sorted elements, and the end of the last row."""
    counts = jnp.zeros(count, rows.dtype).at[rows].add(1, mode="drop")
    return jnp.concatenate([jnp.zeros(1, rows.dtype), jnp.cumsum(counts).astype(rows.dtype)])


class Matrix(JAXSparse):
    """A matrix that converts itself to a BCOO to compute."""

    nse = property(lambda self: self.data.size)  # type: ignore[assignment]

    def to_bcoo(self) -> BCOO:
        raise NotImplementedError

    @property
    def _bufs(self) -> tuple[Any, ...]:
        return self.tree_flatten()[0]

    def todense(self) -> Any:
        return self.to_bcoo().todense()

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, JAXSparse):
            raise NotImplementedError("matmul between two sparse objects.")
        return self.to_bcoo() @ jnp.asarray(other)
