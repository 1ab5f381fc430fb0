"""Interpolation on grids."""

# ruff: noqa: F401
from mpijax.scipy.interpolate.grid import RegularGridInterpolator
