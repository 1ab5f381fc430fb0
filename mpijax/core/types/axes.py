"""Normalizes axis numbers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


def canonical_axis(axis: Any, ndim: int) -> int:
    """`axis` as a number in [0, ndim). Raises AxisError, a ValueError and an IndexError, if it is out of range."""
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return axis + ndim if axis < 0 else axis
