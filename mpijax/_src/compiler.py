"""What makes compiled programs of Jaxprs."""

from mpijax.runtime.program.engine import compile_jaxpr

__all__ = ["compile_jaxpr"]
