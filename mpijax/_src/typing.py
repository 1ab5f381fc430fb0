"""Types for annotations."""

from collections.abc import Sequence
from typing import Any, Union

import numpy as np

from mpijax.core.types.array_api import Array
from mpijax.typing import ArrayLike, DTypeLike, SupportsDType

DType = np.dtype
ExtendedDType = Any
DimSize = Union[int, Any]  # noqa: UP007
Shape = Sequence[DimSize]

__all__ = ["Array", "ArrayLike", "DType", "DTypeLike", "DimSize", "ExtendedDType", "Shape", "SupportsDType"]
