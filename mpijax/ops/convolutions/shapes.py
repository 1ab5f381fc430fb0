"""Computes shapes of convolutions: the meaning of axes, sizes of results, and the padding of gradients."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, Union

import numpy as np

from mpijax.core.shapes.dimensions import max_dim
from mpijax.ops.windows.shapes import dilated, padtype_to_pads


class ConvDimensionNumbers(NamedTuple):
    """The axes of a convolution's arrays.

    lhs_spec, out_spec: (batch, feature, spatial axes ...). rhs_spec: (output feature, input feature, spatial axes ...).

    >>> lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 16), ("NHWC", "HWIO", "NHWC")).lhs_spec
    (0, 3, 1, 2)
    """

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


ConvGeneralDilatedDimensionNumbers = Union[tuple[str, str, str], ConvDimensionNumbers, None]  # noqa: UP007

_ROLES = (("N", "C"), ("O", "I"), ("N", "C"))


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: ConvGeneralDilatedDimensionNumbers
) -> ConvDimensionNumbers:
    """`dimension_numbers` as axis numbers.

    Args:
      dimension_numbers: three strings with a letter for each axis, such as `("NHWC", "HWIO", "NHWC")`: N batch, C
        feature, O and I output and input feature, any other letters for spatial axes; None: N or O first, C or I next.

    Raises:
      TypeError: if letters do not match, or arrays have different ranks.

    >>> lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 16), ("NHWC", "HWIO", "NHWC"))
    ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    if len(lhs_shape) != len(rhs_shape):
        raise TypeError(
            f"convolution requires lhs and rhs ndim to be equal, got {len(lhs_shape)} and {len(rhs_shape)}."
        )
    if dimension_numbers is None:
        axes = tuple(range(len(lhs_shape)))
        return ConvDimensionNumbers(axes, axes, axes)
    if not isinstance(dimension_numbers, (list, tuple)):
        raise TypeError(f"convolution dimension_numbers must be tuple/list or None, got {type(dimension_numbers)}.")
    if len(dimension_numbers) != 3:
        raise TypeError(f"convolution dimension_numbers list/tuple must be length 3, got {len(dimension_numbers)}.")
    if not all(isinstance(spec, str) for spec in dimension_numbers):
        kinds = tuple(map(type, dimension_numbers))
        raise TypeError(f"convolution dimension_numbers elements must be strings, got {kinds}.")
    for i, spec in enumerate(dimension_numbers):
        if len(spec) != len(lhs_shape):
            raise TypeError(
                f"convolution dimension_numbers[{i}] must have len equal to the ndim of lhs and rhs, got {len(spec)} "
                f"for lhs and rhs shapes {lhs_shape} and {rhs_shape}."
            )
    return ConvDimensionNumbers(*conv_general_permutations(dimension_numbers))


def conv_general_permutations(dimension_numbers: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The axes in each of three strings: first the two named axes, then the spatial axes in the order of rhs.

    >>> lax.conv_general_permutations(("NHWC", "HWIO", "NHWC"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    """
    for i, (spec, (a, b)) in enumerate(zip(dimension_numbers, _ROLES, strict=True)):
        if not spec.count(a) == spec.count(b) == 1:
            raise TypeError(
                f"convolution dimension_numbers[{i}] must contain the characters '{a}' and '{b}' exactly once, "
                f"got {spec}."
            )
        if len(set(spec)) != len(spec):
            raise TypeError(f"convolution dimension_numbers[{i}] cannot have duplicate characters, got {spec}.")
    spatial = [[c for c in spec if c not in roles] for spec, roles in zip(dimension_numbers, _ROLES, strict=True)]
    if not set(spatial[0]) == set(spatial[1]) == set(spatial[2]):
        raise TypeError(
            "convolution dimension_numbers elements must each have the same set of spatial characters, got "
            f"{dimension_numbers}."
        )
    return tuple(
        tuple(map(spec.index, (*roles, *spatial[1]))) for spec, roles in zip(dimension_numbers, _ROLES, strict=True)
    )


# ---------------------------------------------------------------- sizes


def permuted(values: Sequence[Any], axes: Sequence[int]) -> tuple:
    return tuple(values[a] for a in axes)


def spread(values: Sequence[Any], axes: Sequence[int]) -> tuple:
    """The inverse of `permuted`."""
    return tuple(values[a] for a in np.argsort(axes))


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: str | Sequence[tuple[int, int]],
    batch_group_count: int = 1,
) -> tuple[int, ...]:
    """The result's shape: batch, feature, then spatial axes, as in both operands.

    >>> lax.conv_shape_tuple((1, 3, 8), (16, 3, 3), strides=(1,), pads=[(0, 0)])
    (1, 16, 6)
    """
    if isinstance(pads, str):
        pads = padtype_to_pads(lhs_shape[2:], rhs_shape[2:], strides, pads)
    if len(pads) != len(lhs_shape) - 2:
        raise TypeError(
            f"Wrong number of explicit pads for convolution: expected {len(lhs_shape) - 2}, got {len(pads)}."
        )
    padded = [d + lo + hi for d, (lo, hi) in zip(lhs_shape[2:], pads, strict=True)]
    if any(d < 0 for d in padded):
        raise ValueError(
            "Negative padding is larger than the size of the corresponding dimension: got "
            f"padding={pads} for lhs_shape[2:]={lhs_shape[2:]}"
        )
    space = [max_dim(0, (d - w) // s + 1) for d, w, s in zip(padded, rhs_shape[2:], strides, strict=True)]
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *space)


def conv_general_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers) -> tuple[int, ...]:
    """The result's shape for layouts given as three strings.

    >>> layouts = ("NHWC", "HWIO", "NHWC")
    >>> lax.conv_general_shape_tuple((1, 8, 8, 3), (3, 3, 3, 16), (2, 2), "SAME", layouts)
    (1, 4, 4, 16)
    """
    lhs_perm, rhs_perm, out_perm = conv_general_permutations(dimension_numbers)
    shape = conv_shape_tuple(permuted(lhs_shape, lhs_perm), permuted(rhs_shape, rhs_perm), window_strides, padding)
    return spread(shape, out_perm)


def conv_transpose_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers) -> tuple[int, ...]:
    """The shape of the result of `conv_transpose` for layouts given as three strings.

    >>> layouts = ("NHC", "HIO", "NHC")
    >>> lax.conv_transpose_shape_tuple((1, 4, 3), (2, 3, 5), (2,), "VALID", layouts)
    (1, 8, 5)
    """
    lhs_perm, rhs_perm, out_perm = conv_general_permutations(dimension_numbers)
    lhs, rhs = permuted(lhs_shape, lhs_perm), permuted(rhs_shape, rhs_perm)
    if isinstance(padding, str):
        padding = [conv_transpose_padding(k, s, padding) for k, s in zip(rhs[2:], window_strides, strict=True)]
    space = [
        (d - 1) * s - k + 2 + sum(pads)
        for d, k, s, pads in zip(lhs[2:], rhs[2:], window_strides, padding, strict=True)
    ]
    return spread((lhs[0], rhs[0], *space), out_perm)


def conv_transpose_padding(size: int, stride: int, padding: str | tuple[int, int]) -> tuple[int, int]:
    """The padding of the operand of a transposed convolution, from the padding of the forward one.

    Raises:
      ValueError: for a name other than SAME and VALID.
    """
    if isinstance(padding, tuple):
        before, after = (size - p - 1 for p in padding)
        return before, after
    if padding == "SAME":
        total = size + stride - 2
        before = size - 1 if stride > size - 1 else -(-total // 2)
    elif padding == "VALID":
        total = size + stride - 2 + max_dim(size - stride, 0)
        before = size - 1
    else:
        raise ValueError(f"Invalid padding mode: {padding}")
    return before, total - before


def explicit_padding(lhs_shape, rhs_shape, strides, rhs_dilation, padding: Any) -> tuple[tuple[int, int], ...]:
    """Padding, given by name or as numbers, as pairs. The shapes are those of the spatial axes."""
    if isinstance(padding, str):
        return tuple(padtype_to_pads(lhs_shape, dilated(rhs_shape, rhs_dilation), strides, padding))
    try:
        return tuple((operator.index(lo), operator.index(hi)) for lo, hi in padding)
    except (ValueError, TypeError) as error:
        raise ValueError(
            "padding argument to conv_general_dilated should be a string or a sequence of (low, high) pairs, got "
            f"{padding}"
        ) from error


# ---------------------------------------------------------------- padding of gradients


def lhs_gradient_padding(in_shape, window, strides, out_shape, padding, lhs_dilation, rhs_dilation):
    """The padding with which the convolution of the cotangent gives the size of lhs."""
    inner, outer = dilated(in_shape, lhs_dilation), dilated(out_shape, strides)
    widths = dilated(window, rhs_dilation)
    pads = []
    for i, o, w, (lo, _) in zip(inner, outer, widths, padding, strict=True):
        before = w - lo - 1
        pads.append((before, i + w - 1 - o - before))
    return pads


def rhs_gradient_padding(in_shape, window, strides, out_shape, padding, lhs_dilation, rhs_dilation):
    """The padding with which the convolution of lhs with the cotangent gives the size of rhs."""
    inner, outer = dilated(in_shape, lhs_dilation), dilated(out_shape, strides)
    widths = dilated(window, rhs_dilation)
    return [(lo, o - i + w - lo - 1) for i, o, w, (lo, _) in zip(inner, outer, widths, padding, strict=True)]
