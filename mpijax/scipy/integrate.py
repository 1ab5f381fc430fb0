"""Integrals of sampled functions."""

# ruff: noqa: F401
from mpijax.numpy import trapezoid
