"""What makes compiled programs of Jaxprs."""

from mpijax.runtime.engine import compile_jaxpr

__all__ = ["compile_jaxpr"]
