"""Checks and conversions of the arguments of special functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.numpy.util import as_array, dtype_of, is_complex, promote_args_inexact


def inexact_args(name: str, *args: Any) -> list[Any]:
    """Arguments as arrays or tracers of one dtype, of floats or complex numbers."""
    return [as_array(x) for x in promote_args_inexact(name, *args)]


def real_args(name: str, *args: Any) -> list[Any]:
    """Arguments as arrays or tracers of floats of one dtype. Raises ValueError for complex ones."""
    promoted = inexact_args(name, *args)
    if is_complex(dtype_of(promoted[0])):
        raise ValueError(f"{name} does not support complex-valued inputs. Got dtype {dtype_of(promoted[0])}.")
    return promoted


def check_single_or_double(name: str, x: Any) -> None:
    """Raise TypeError unless x is an array of float32 or float64."""
    dtype = dtype_of(x)
    if dtype not in (np.float32, np.float64):
        raise TypeError(
            f"x.dtype={dtype} is not supported by {name}, which takes float32 and float64: convert with .astype."
        )
