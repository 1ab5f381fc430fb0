"""Names of ``jax._src`` that published libraries import although they are private, where mpijax has what they mean.

They are here for those libraries alone: nothing in mpijax imports this package, and all of it is public elsewhere or
belongs to `mpijax.core` and `mpijax.transforms`.
"""
