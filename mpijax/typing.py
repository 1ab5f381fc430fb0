"""Types for annotations: what functions of `mpijax.numpy` take as an array and as a dtype."""

from typing import Any, Protocol, TypeAlias, Union

import numpy as np

from mpijax.core.types.array_api import Array


class SupportsDType(Protocol):
    dtype: np.dtype


# Unions of `typing`, so that `ArrayLike | "Matrix"` is one too.
ArrayLike: TypeAlias = Union[Array, np.ndarray, np.bool_, np.number, bool, int, float, complex]  # noqa: UP007
DTypeLike: TypeAlias = Union[str, type[Any], np.dtype, SupportsDType]  # noqa: UP007

__all__ = ["ArrayLike", "DTypeLike"]
