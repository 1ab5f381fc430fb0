"""Functions of SciPy, for arrays that can be traced."""

from mpijax.scipy import special as special
