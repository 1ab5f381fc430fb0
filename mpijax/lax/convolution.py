"""Variants of convolutions: plain, transposed, as patches, and with a separate kernel at every position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core.types.typeof import typeof
from mpijax.ops.convolutions.general import conv_general_dilated
from mpijax.ops.convolutions.shapes import (
    ConvGeneralDilatedDimensionNumbers,
    conv_dimension_numbers,
    conv_transpose_padding,
)
from mpijax.ops.elementwise.binary import add
from mpijax.ops.elementwise.compare import eq
from mpijax.ops.elementwise.convert import convert_element_type, stage
from mpijax.ops.products.dot import Precision, canonicalize_precision, dot_general
from mpijax.ops.shapes.creation import broadcasted_iota
from mpijax.ops.shapes.reshape import broadcast_in_dim, reshape, rev, transpose
from mpijax.ops.windows.shapes import dilated

# Default layouts of transposed convolutions, by rank.
_LAYOUTS = {
    2: ("NC", "IO", "NC"), 3: ("NHC", "HIO", "NHC"), 4: ("NHWC", "HWIO", "NHWC"), 5: ("NHWDC", "HWDIO", "NHWDC"),
}  # fmt: skip


def conv(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """`conv_general_dilated` of [N, C, ...] and [O, I, ...] without dilation and groups.

    >>> lax.conv(jnp.arange(5.0).reshape(1, 1, 5), jnp.array([[[1.0, 1.0]]]), (1,), "VALID")
    Array([[[1., 3., 5., 7.]]], dtype=float32)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """`conv_general_dilated` of [N, C, ...] and [O, I, ...] without groups.

    >>> lax.conv_with_general_padding(jnp.ones((1, 1, 3)), jnp.ones((1, 1, 2)), (1,), [(1, 1)], None, None)
    Array([[[1., 2., 2., 1.]]], dtype=float32)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
) -> Any:
    """A transposed convolution, which enlarges its input: elements of lhs are placed `strides` apart.

    Args:
      lhs: [N, space ..., C]. rhs: [space ..., I, O]; other layouts with `dimension_numbers`.
      strides: the factor by which each spatial axis grows.
      padding: `SAME` or `VALID` of the forward convolution, or numbers that pad lhs before and after.
      transpose_kernel: reverse the kernel's positions and swap its features, as in the gradient of a convolution.
      use_consistent_padding: numbers, too, are the padding of the forward convolution.

    Raises:
      ValueError: for more than three spatial axes without `dimension_numbers`, or an unknown padding name.

    >>> lax.conv_transpose(jnp.array([[[1.0], [2.0]]]), jnp.ones((2, 1, 1)), (2,), "VALID")[0, :, 0]
    Array([1., 1., 2., 2.], dtype=float32)
    """
    ndim = typeof(lhs).ndim
    assert ndim == typeof(rhs).ndim and ndim >= 2
    if dimension_numbers is None:
        if ndim not in _LAYOUTS:
            raise ValueError("No 4+ dimensional dimension_number defaults.")
        dimension_numbers = _LAYOUTS[ndim]
    numbers = conv_dimension_numbers(typeof(lhs).shape, typeof(rhs).shape, dimension_numbers)
    ones = (1,) * (ndim - 2)
    rhs_dilation = ones if rhs_dilation is None else rhs_dilation
    if use_consistent_padding or (isinstance(padding, str) and padding in ("SAME", "VALID")):
        window = dilated([typeof(rhs).shape[a] for a in numbers.rhs_spec[2:]], rhs_dilation)
        each: Sequence[str | tuple[int, int]] = [padding] * len(strides) if isinstance(padding, str) else padding
        padding = tuple(conv_transpose_padding(k, s, p) for k, s, p in zip(window, strides, each, strict=False))
    if transpose_kernel:
        for axis in numbers.rhs_spec[2:]:
            rhs = rev(rhs, (axis,))
        order = list(range(ndim))
        o, i = numbers.rhs_spec[:2]
        order[o], order[i] = i, o
        rhs = transpose(rhs, order)
    return conv_general_dilated(
        lhs, rhs, ones, padding, strides, rhs_dilation, numbers, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_general_dilated_patches(
    lhs: Any,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """The patch that a kernel of `filter_shape` reads at every position.

    Returns:
      An array like that of `conv_general_dilated`. Its features are the patch elements: features of lhs, then
      positions.

    >>> lax.conv_general_dilated_patches(jnp.arange(4.0).reshape(1, 1, 4), (2,), (1,), "VALID")
    Array([[[0., 1., 2.],
            [1., 2., 3.]]], dtype=float32)
    """
    lhs = stage(lhs)
    filter_shape = tuple(filter_shape)
    numbers = conv_dimension_numbers(lhs.shape, (1, 1, *filter_shape), dimension_numbers)
    size, features = math.prod(filter_shape), lhs.shape[numbers.lhs_spec[1]]
    shape = (size, size)
    rows = add(broadcasted_iota(np.int32, shape, 0), np.int32(0))  # the identity matrix as in JAX's Jaxprs
    kernel = convert_element_type(eq(rows, broadcasted_iota(np.int32, shape, 1)), lhs.dtype)
    kernel = broadcast_in_dim(kernel, (features, size, size), (1, 2))
    kernel = reshape(kernel, (features * size, 1, *filter_shape))
    order = list(range(2, kernel.ndim))
    for axis, place in sorted(zip(numbers.rhs_spec[:2], (0, 1), strict=True)):
        order.insert(axis, place)
    kernel = transpose(kernel, order)
    return conv_general_dilated(
        lhs, kernel, window_strides, padding, lhs_dilation, rhs_dilation, numbers, feature_group_count=features,
        precision=None if precision is None else (precision, Precision.DEFAULT),
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_general_dilated_local(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: Any = None,
) -> Any:
    """A convolution with a separate kernel at every position.

    Args:
      rhs: its spatial axes are the positions of the result; its input features are the elements of a patch, in the
        order of `conv_general_dilated_patches`.
      filter_shape: size of the kernel.

    >>> x, kernels = jnp.arange(4.0).reshape(1, 1, 4), jnp.ones((1, 2, 3))
    >>> lax.conv_general_dilated_local(x, kernels, (1,), "VALID", filter_shape=(2,))
    Array([[[1., 3., 5.]]], dtype=float32)
    """
    both = canonicalize_precision(precision)
    patches = conv_general_dilated_patches(
        lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers,
        precision=both[0] if isinstance(both, tuple) else both,
    )  # fmt: skip
    numbers = conv_dimension_numbers(typeof(lhs).shape, (1, 1, *filter_shape), dimension_numbers)
    _, rhs_spec, out_spec = numbers
    pairs = sorted(zip(out_spec[2:], rhs_spec[2:], strict=True))
    batch = [a for a, _ in pairs], [b for _, b in pairs]
    out = dot_general(patches, rhs, (([out_spec[1]], [rhs_spec[1]]), batch), precision=precision)
    order = list(range(typeof(out).ndim - 2))
    for axis, place in sorted(zip(out_spec[:2], (len(order), len(order) + 1), strict=True)):
        order.insert(axis, place)
    return transpose(out, order)
