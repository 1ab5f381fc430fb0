"""Checks of the arguments of samplers: shapes and dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.numpy.util import shape_of
from mpijax.ops.shapes.moves import canonical_shape

_ARTICLES: dict[type, str] = {np.floating: "a float", np.inexact: "a float or complex", np.integer: "an int"}


def sampler_dtype(fun_name: str, dtype: Any, default: type, kind: type = np.floating) -> np.dtype:
    """The `dtype` argument of a sampler. Raises ValueError if the sampler cannot draw this kind of dtype."""
    dtype = dtypes.check_user_dtype_supported(default if dtype is None else dtype)
    if not dtypes.issubdtype(dtype, kind):
        raise ValueError(f"dtype argument to `{fun_name}` must be {_ARTICLES[kind]} dtype, got {dtype}")
    return dtype


def check_shape(fun_name: str, shape: Sequence[int], *param_shapes: tuple[int, ...]) -> None:
    """Raise ValueError unless parameters of the given shapes broadcast to `shape`."""
    if not param_shapes:
        return
    broadcast = lax.broadcast_shapes(tuple(shape), *param_shapes)
    if tuple(shape) != broadcast:
        raise ValueError(
            f"{fun_name} parameter shapes must be broadcast-compatible with shape argument, and the result "
            "of "
            f"broadcasting the shapes must equal the shape argument, but got result {broadcast} for shape "
            "argument "
            f"{tuple(shape)}."
        )


def broadcast_shape(fun_name: str, shape: Sequence[int] | None, *params: Any) -> tuple[int, ...]:
    """The `shape` argument of a sampler with parameters. Default: the broadcast shape of the parameters."""
    shapes = [shape_of(p) for p in params]
    if shape is None:
        return lax.broadcast_shapes(*shapes) if shapes else ()
    shape = canonical_shape(shape)
    check_shape(fun_name, shape, *shapes)
    return shape


def check_castable(fun_name: str, dtype: Any, *params: Any) -> None:
    """Raise TypePromotionError if a parameter has a wider dtype than the samples."""
    for param in params:
        if not dtypes.safe_to_cast(param, dtype):
            raise dtypes.TypePromotionError(
                f"In arguments to {fun_name}, cannot safely cast argument of type {dtypes.dtype(param)} to {dtype}"
            )
