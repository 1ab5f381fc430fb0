"""The interpreters of programs."""

from mpijax._src.interpreters import ad
from mpijax.interpreters import batching, mlir, partial_eval, xla

__all__ = ["ad", "batching", "mlir", "partial_eval", "xla"]
