"""Calls of compiled functions."""

from mpijax.sharding import auto_axes, explicit_axes
from mpijax.spmd.constraints import with_sharding_constraint
from mpijax.transforms.call import jit_p
from mpijax.transforms.jit import jit as pjit

__all__ = ["auto_axes", "explicit_axes", "jit_p", "pjit", "with_sharding_constraint"]
