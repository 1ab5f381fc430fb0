"""The implementation of `mpijax.as_jax`: finders that return mpijax for JAX's names. Importing it changes nothing."""

import sys as _sys


def in_force() -> bool:
    """Whether `import jax` returns mpijax in this process."""
    return any(getattr(finder, "makes_mpijax_jax", False) for finder in _sys.meta_path)
