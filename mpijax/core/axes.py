"""Numbers of array axes."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


def canonical_axis(axis: Any, ndim: int) -> int:
    """An axis in [0, ndim). Raises AxisError, which is a ValueError and an IndexError, where there is no such axis."""
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return axis + ndim if axis < 0 else axis
