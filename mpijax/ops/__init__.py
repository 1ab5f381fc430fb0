"""The operations: each module defines primitives with their rules, and the functions of `mpijax.lax`.

Rules may refer to primitives of other modules by name: `core.registry` loads all of them where one is missing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def __getattr__(name: str) -> Callable[..., Any]:
    """The functions of `jax.ops`, which lie above: sums, products and extrema by groups."""
    if name not in __all__:
        raise AttributeError(f"module 'mpijax.ops' has no attribute {name!r}")
    return getattr(importlib.import_module("mpijax.numpy.segments"), name)
