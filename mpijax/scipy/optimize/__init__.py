"""Minimization of functions."""

# ruff: noqa: F401
from mpijax.scipy.optimize.minimize import OptimizeResults, minimize
