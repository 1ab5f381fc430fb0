"""``jax.scipy.spatial``: rotations, in `transform`."""

from mpijax.scipy.spatial import transform as transform

__all__ = ["transform"]
