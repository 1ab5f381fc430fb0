"""Calls of compiled functions."""

from mpijax.experimental.pjit import pjit
from mpijax.sharding import auto_axes, explicit_axes
from mpijax.spmd.constraints import with_sharding_constraint
from mpijax.transforms.call import jit_p

__all__ = ["auto_axes", "explicit_axes", "jit_p", "pjit", "with_sharding_constraint"]
