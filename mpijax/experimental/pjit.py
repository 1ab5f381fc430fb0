"""``jax.experimental.pjit``: the name of `mpijax.jit` in older programs."""

from mpijax.spmd.constraints import with_sharding_constraint
from mpijax.transforms.jit import jit as pjit

__all__ = ["pjit", "with_sharding_constraint"]
