"""Solvers for linear systems given by products with a matrix."""

from mpijax.scipy.sparse import linalg

__all__ = [
    "linalg",
]  # fmt: skip
