"""``mpijax.extend``: define operations outside of mpijax, and look into programs.

`core` has the names of ``jax.extend.core``, `core.primitives` mpijax's own primitives, `lowering` what a primitive can
be to the compiler. ``docs/custom-operations.md`` leads through them.
"""

from mpijax.extend import core as core
from mpijax.extend import lowering as lowering

__all__ = ["core", "lowering"]
