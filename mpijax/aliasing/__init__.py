"""How `mpijax.as_jax` works: finders that give mpijax under JAX's names. Importing this changes nothing."""

import sys as _sys


def in_force() -> bool:
    """Whether `import jax` gives mpijax in this process."""
    return any(getattr(finder, "makes_mpijax_jax", False) for finder in _sys.meta_path)
