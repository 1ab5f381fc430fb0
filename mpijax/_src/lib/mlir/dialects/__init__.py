"""The sets of operations."""

from mpijax._src.lib.mlir.dialects import hlo

__all__ = ["hlo"]
