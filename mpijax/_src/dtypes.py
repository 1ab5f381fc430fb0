"""Types of elements, and how they promote."""

from typing import Any

import numpy as np

from mpijax.core.dtypes import dtype
from mpijax.core.dtypes.extended import ExtendedDType, extended
from mpijax.core.dtypes.promotion import TypePromotionError
from mpijax.core.dtypes.result_type import to_complex_dtype
from mpijax.dtypes import *  # noqa: F403
from mpijax.numpy import finfo

__all__ = [
    "DType", "ExtendedDType", "TypePromotionError", "dtype", "extended", "finfo", "supports_inf", "to_complex_dtype",
]  # fmt: skip

DType = np.dtype


def supports_inf(dtype: Any) -> bool:
    """Whether a dtype has an infinity."""
    return bool(np.isinf(np.asarray(np.inf).astype(dtype)))
