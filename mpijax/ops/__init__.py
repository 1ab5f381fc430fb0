"""Defines the operations. Each module has primitives with their rules, and functions of `mpijax.lax`.

A rule may refer to primitives of other modules by name: if one is missing, `core.rules.registry` imports all modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def __getattr__(name: str) -> Callable[..., Any]:
    """The functions of `jax.ops`, from an upper layer: segment sums, products, maxima and minima."""
    if name not in __all__:
        raise AttributeError(f"module 'mpijax.ops' has no attribute {name!r}")
    return getattr(importlib.import_module("mpijax.numpy.indexing.segments"), name)
