"""Minimization of functions."""

from mpijax.scipy.optimize.minimize import OptimizeResults, minimize

__all__ = [
    "OptimizeResults", "minimize",
]  # fmt: skip
