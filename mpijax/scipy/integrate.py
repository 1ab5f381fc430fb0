"""Integrals of sampled functions."""

from mpijax.numpy import trapezoid

__all__ = [
    "trapezoid",
]  # fmt: skip
