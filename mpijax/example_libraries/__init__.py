"""The small libraries of JAX's examples: optimizers, and network layers (stax)."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["optimizers", "stax"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
