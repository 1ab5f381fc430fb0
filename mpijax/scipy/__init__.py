"""Functions of SciPy, for arrays that can be traced. Subpackages are loaded when first used."""

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
    "special",
    "stats",
]

_INSTEAD = {
    "spatial": "rotations are not traced; use scipy.spatial.transform and pass its matrices (Rotation.as_matrix)",
}


def __getattr__(name: str) -> Any:
    if name in _INSTEAD:
        raise AttributeError(f"mpijax.scipy does not have {name} yet: {_INSTEAD[name]}.")
    if name not in __all__:
        raise AttributeError(f"module 'mpijax.scipy' has no attribute {name!r}")
    return importlib.import_module(f"mpijax.scipy.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
