"""Iterative solvers for linear systems; the matrix is given by its products with vectors."""

from mpijax.scipy.sparse import linalg

__all__ = [
    "linalg",
]  # fmt: skip
