"""How `mpijax.as_jax` works: finders that give mpijax under JAX's names. Importing this changes nothing."""
