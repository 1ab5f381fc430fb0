"""Types for annotations: what functions of `mpijax.numpy` take as an array and as a dtype."""

from typing import Any, Protocol, TypeAlias

import numpy as np

from mpijax.core.types.array_api import Array


class SupportsDType(Protocol):
    dtype: np.dtype


ArrayLike: TypeAlias = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
DTypeLike: TypeAlias = str | type[Any] | np.dtype | SupportsDType

__all__ = ["ArrayLike", "DTypeLike"]
