"""Computes shapes of windows over arrays: named padding, dilated sizes, numbers of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core.shapes.dimensions import ceil_div, dimension, max_dim
from mpijax.core.types.avals import ShapedArray


def dilated(sizes: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """Sizes with `dilation - 1` gaps between consecutive elements."""
    return tuple(d if k == 1 else max_dim(1 + k * (d - 1), 0) for d, k in zip(sizes, dilation, strict=True))


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: str
) -> list[tuple[int, int]]:
    """The padding of each axis, before and after.

    padding: `VALID`, none; `SAME`, such that there are ceil(size / stride) windows, an odd total having one more
      after than before; `SAME_LOWER`, one more before.

    Raises:
      RuntimeError: for another name. TypeError: if `padding` is not a string.

    >>> lax.padtype_to_pads((5,), (3,), (2,), "SAME")
    [(1, 1)]
    """
    if not isinstance(padding, str):
        raise TypeError(f"Unknown padding type: {padding}.")
    name = padding.upper()
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    if name not in ("SAME", "SAME_LOWER"):
        raise RuntimeError(f"Unrecognized padding type: expected 'VALID', 'SAME', or 'SAME_LOWER', got {padding}.")
    pads = []
    sizes, windows, strides = (map(dimension, each) for each in (in_shape, window_shape, window_strides))
    for size, window, stride in zip(sizes, windows, strides, strict=True):
        total = max_dim((ceil_div(size, stride) - 1) * stride + window - size, 0)
        less, more = total // 2, total - total // 2
        pads.append((less, more) if name == "SAME" else (more, less))
    return pads


def reduce_window_shape_tuple(
    operand_shape, window_dimensions, window_strides, padding, base_dilation=None, window_dilation=None
) -> tuple[int, ...]:
    """The number of windows along each axis.

    >>> lax.reduce_window_shape_tuple((8,), (3,), (2,), [(1, 1)])
    (4,)
    """
    if base_dilation is not None:
        operand_shape = dilated(operand_shape, base_dilation)
    if window_dilation is not None:
        window_dimensions = dilated(window_dimensions, window_dilation)
    padded = [d + lo + hi for d, (lo, hi) in zip(operand_shape, padding, strict=True)]
    return tuple(
        max_dim((d - w) // s + 1, 0) for d, w, s in zip(padded, window_dimensions, window_strides, strict=True)
    )


def _check_sizes(name: str, sizes: Any, positive: bool = True) -> None:
    try:
        values = [dimension(d) for d in sizes]
    except TypeError:
        raise TypeError(f"reduce_window: {name} must be a sequence of integers, got {sizes}.") from None
    if any(d < positive for d in values):
        wanted = "strictly positive" if positive else "nonnegative"
        raise TypeError(f"reduce_window {name} must have every element be {wanted}, got {sizes}.")


def check_rank(operand: ShapedArray, window_dimensions: Sequence[int]) -> None:
    """Raise TypeError unless the window has a size for each axis of the operand."""
    if operand.ndim != len(window_dimensions):
        raise TypeError(
            "reduce_window got the wrong number of window_dimensions for operand: got operand shape "
            f"{operand.shape} with window_dimensions {window_dimensions}."
        )


def window_shape(
    operand: ShapedArray, *, window_dimensions, window_strides, padding, base_dilation, window_dilation
) -> tuple[int, ...]:
    """The shape of a result with one element per window. Raises TypeError for invalid parameters."""
    _check_sizes("window_dimensions", window_dimensions)
    _check_sizes("window_strides", window_strides)
    _check_sizes("base_dilation", base_dilation, positive=False)
    _check_sizes("window_dilation", window_dilation, positive=False)
    check_rank(operand, window_dimensions)
    others = {
        "window_strides": window_strides,
        "base_dilation": base_dilation,
        "window_dilation": window_dilation,
        "padding": padding,
    }
    for name, sizes in others.items():
        if len(sizes) != len(window_dimensions):
            raise TypeError(
                f"reduce_window got inconsistent {name} and window_dimensions: got {name} {sizes} and "
                f"window_dimensions {window_dimensions}."
            )
    return reduce_window_shape_tuple(
        operand.shape, window_dimensions, window_strides, padding, base_dilation, window_dilation
    )


def transposed_padding(in_shape, out_shape, *, window_dimensions, window_strides, padding, base_dilation,
                       window_dilation):  # fmt: skip
    """The padding of the cotangent of windowed sums; NumPy integers, because JAX prints them so."""
    base = dilated(in_shape, base_dilation)
    window = dilated(window_dimensions, window_dilation)
    before = np.subtract(window, [lo for lo, _ in padding]) - 1
    after = np.add(base, window) - 1 - dilated(out_shape, window_strides) - before
    return list(zip(before, after, strict=True))


def with_axis(params: dict[str, Any], at: int) -> dict[str, Any]:
    """The parameters of the windows with one more axis, along which windows have size 1."""
    new = {}
    for name, value in params.items():
        filler: Any = (0, 0) if name == "padding" else 1
        new[name] = (*value[:at], filler, *value[at:])
    return new
