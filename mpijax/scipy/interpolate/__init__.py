"""Interpolation on grids."""

from mpijax.scipy.interpolate.grid import RegularGridInterpolator

__all__ = [
    "RegularGridInterpolator",
]  # fmt: skip
