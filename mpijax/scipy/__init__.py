"""`jax.scipy`: functions of SciPy, for arrays that can be traced. A subpackage is loaded at its first use."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = [
    "cluster",
    "fft",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "spatial",
    "special",
    "stats",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mpijax.scipy' has no attribute {name!r}")
    return importlib.import_module(f"mpijax.scipy.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
