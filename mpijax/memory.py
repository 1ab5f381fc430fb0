"""``mpijax.memory``: kinds of memory, by JAX's names."""

from mpijax.core.sharding.memory_space import Space

__all__ = ["Space"]
