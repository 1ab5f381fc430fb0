"""Cross products."""

from __future__ import annotations

from typing import Any

from mpijax.numpy.creation.constructors import array
from mpijax.numpy.creation.fills import zeros_like
from mpijax.numpy.shapes.reshape import moveaxis
from mpijax.numpy.util import check_arraylike
from mpijax.transforms.jit import jit


@jit(static_argnames=("axisa", "axisb", "axisc", "axis"))
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """Cross products of vectors with two or three elements; the other axes broadcast.

    Args:
      a, b: arrays of vectors. A vector with two elements has 0 as its third. If all vectors have two elements, the
        result is the third element of the product, without the axis.
      axisa, axisb: the axes of the vectors.
      axisc: the axis of the vectors in the result.
      axis: one number for all three.

    Raises:
      ValueError: vectors that do not have two or three elements.

    >>> jnp.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    check_arraylike("cross", a, b)
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError(
            f"Dimension must be either 2 or 3 for cross product, got shapes {a.shape} and {b.shape} with the elements "
            "last"
        )
    a0, a1, b0, b1 = a[..., 0], a[..., 1], b[..., 0], b[..., 1]
    if a.shape[-1] == b.shape[-1] == 2:
        return a0 * b1 - a1 * b0
    a2, b2 = (x[..., 2] if x.shape[-1] == 3 else zeros_like(x[..., 0]) for x in (a, b))
    return moveaxis(array([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0]), 0, axisc)
