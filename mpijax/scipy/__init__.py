"""Functions of SciPy, for arrays that can be traced."""

# ruff: noqa: F401
from mpijax.scipy import special
