"""The interpreters of programs."""

from mpijax.interpreters import ad, batching, mlir, partial_eval, xla

__all__ = ["ad", "batching", "mlir", "partial_eval", "xla"]
