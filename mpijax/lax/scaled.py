"""Defines scaled_dot: products of narrow floats with a scale for each block of the contracted axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from mpijax.core import dtypes
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.binary import mul
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.products.dot import DotDimensionNumbers, dot_general
from mpijax.ops.shapes.reshape import broadcast_in_dim, reshape


def scaled_dot(
    lhs: Any,
    rhs: Any,
    *,
    lhs_scale: Any = None,
    rhs_scale: Any = None,
    dimension_numbers: DotDimensionNumbers | None = None,
    preferred_element_type: Any = None,
) -> Any:
    """`dot_general` of `lhs * lhs_scale` and `rhs * rhs_scale`, computed in float32 (float64 on request).

    Args:
      lhs, rhs: of equal rank, at least 2.
      lhs_scale, rhs_scale: have the operand's shape, but along contracted axes a divisor of its size, at most half of
        it: each scale applies to a block of elements. None: no scale.
      dimension_numbers: as in `dot_general`; a product of (batches of) matrices if None.
      preferred_element_type: dtype of the result; bfloat16 if None.

    Raises:
      TypeError: if ranks or shapes do not match.

    >>> x, scales = jnp.ones((2, 8)), jnp.array([[1.0, 3.0], [2.0, 0.0]])
    >>> lax.scaled_dot(x, jnp.ones((8, 1)), lhs_scale=scales, preferred_element_type=jnp.float32)
    Array([[16.],
           [ 8.]], dtype=float32)
    """
    shape, other = typeof(lhs).shape, typeof(rhs).shape
    if dimension_numbers is None:
        if len(shape) < 2:
            raise TypeError(f"scaled_dot does not support 0-rank and 1-rank operands, got lhs of shape {shape}.")
        stack = tuple(range(len(shape) - 2))
        dimension_numbers = (((len(shape) - 1,), (len(shape) - 2,)), (stack, stack))
    (left, right), _ = dimension_numbers
    if len(shape) != len(other):
        raise TypeError(f"scaled_dot: all operands must have the same rank, got shapes {shape} and {other}.")
    wanted = ml_dtypes.bfloat16 if preferred_element_type is None else preferred_element_type
    out = np.dtype(dtypes.check_user_dtype_supported(wanted, "scaled_dot"))
    wide = np.dtype(np.float64 if out == np.float64 else np.float32)
    x, y = _scaled("lhs", lhs, lhs_scale, left, wide), _scaled("rhs", rhs, rhs_scale, right, wide)
    return convert_element_type(dot_general(x, y, dimension_numbers), out)


def _scaled(side: str, x: Any, scale: Any, contracted: Sequence[int], wide: np.dtype) -> Any:
    x = convert_element_type(x, wide)
    if scale is None:
        return x
    shape, blocks = typeof(x).shape, typeof(scale).shape
    fits = len(blocks) == len(shape) and all(
        b and n % b == 0 and n // b >= 2 if i in contracted else b == n
        for i, (n, b) in enumerate(zip(shape, blocks))
    )
    if not fits:
        raise TypeError(
            f"scaled_dot: a scale of shape {blocks} does not fit {side} of shape {shape}: sizes must be equal, except "
            f"along the contracted axes {tuple(contracted)}, where they must be divisors and at most half."
        )
    split = tuple(part for n, b in zip(shape, blocks) for part in (b, n // b))
    spread = broadcast_in_dim(convert_element_type(scale, wide), split, tuple(range(0, 2 * len(shape), 2)))
    return mul(x, reshape(spread, shape))
