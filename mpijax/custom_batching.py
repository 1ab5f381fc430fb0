"""``mpijax.custom_batching``: vectorization given by the user, by JAX's names."""

from mpijax.transforms.custom_vmap import custom_vmap, sequential_vmap

__all__ = ["custom_vmap", "sequential_vmap"]
