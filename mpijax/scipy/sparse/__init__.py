"""Solvers for linear systems given by products with a matrix."""

# ruff: noqa: F401
from mpijax.scipy.sparse import linalg
