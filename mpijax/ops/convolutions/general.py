"""Defines conv_general_dilated: convolutions of any rank and layout, with strides, dilation, padding and groups."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules import window_rules
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.out_sharding import explicit_sharding, with_out_sharding
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops import same_bits
from mpijax.ops.convolutions.lowering import lowered
from mpijax.ops.convolutions.shapes import (
    ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers,
    conv_dimension_numbers,
    conv_shape_tuple,
    explicit_padding,
    lhs_gradient_padding,
    permuted,
    rhs_gradient_padding,
    spread,
)
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.families import check_same_dtypes
from mpijax.ops.products.dot import canonicalize_precision
from mpijax.ops.rules import is_linear
from mpijax.ops.shapes.creation import full
from mpijax.ops.shapes.reshape import reshape, rev
from mpijax.ops.windows.shapes import dilated
from mpijax.transforms.zeros import Zero, add_tangents


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Convolution: sums of products of an array with a moving kernel.

    Args:
      lhs: array of n spatial axes, a batch and a feature axis.
      rhs: kernel of n spatial axes, output and input features.
      window_strides: the stride of the kernel along each spatial axis.
      padding: `SAME`, `SAME_LOWER`, `VALID`, or for each axis the number of zeros before and after; negative numbers
        remove elements.
      lhs_dilation, rhs_dilation: distance between elements of lhs, or of the kernel (1), with zeros between them.
      dimension_numbers: layouts, see `conv_dimension_numbers`; None: batch and features first.
      feature_group_count: number of groups of features of lhs and of the result, which are convolved separately.
      batch_group_count: number of groups of the batch; each gives one group of the result's features.
      precision: precision of products on accelerators.
      preferred_element_type: dtype of sums and result.

    Returns:
      Array of n spatial axes with a batch and a feature axis. Nothing is communicated.

    Raises:
      TypeError: for ranks, dtypes or layouts that do not match. ValueError: for invalid sizes, groups or padding.

    >>> image, edges = jnp.eye(4).reshape(1, 1, 4, 4), jnp.array([[[[1.0, -1.0]]]])
    >>> lax.conv_general_dilated(image, edges, window_strides=(1, 1), padding="VALID")[0, 0]
    Array([[ 1.,  0.,  0.],
           [-1.,  1.,  0.],
           [ 0., -1.,  1.],
           [ 0.,  0., -1.]], dtype=float32)
    """
    lhs_shape, rhs_shape = typeof(lhs).shape, typeof(rhs).shape
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    _check_equal_ranks(lhs_shape, rhs_shape)
    ones = (1,) * (len(lhs_shape) - 2)
    if lhs_dilation is None:
        lhs_dilation = ones
    elif isinstance(padding, str) and any(d != 1 for d in lhs_dilation):
        raise ValueError(
            "String padding is not implemented for transposed convolution using this op. Please either exactly "
            "specify the required padding or use conv_transpose."
        )
    rhs_dilation = ones if rhs_dilation is None else tuple(rhs_dilation)
    space = permuted(lhs_shape, numbers.lhs_spec[2:]), permuted(rhs_shape, numbers.rhs_spec[2:])
    _check_number("window_strides", window_strides, len(rhs_shape) - 2)
    padding = explicit_padding(*space, window_strides, rhs_dilation, padding)
    if preferred_element_type is not None:
        preferred_element_type = dtypes.check_user_dtype_supported(preferred_element_type, "conv_general_dilated")
    out = conv_general_dilated_p.bind(
        lhs, rhs,
        window_strides=tuple(window_strides), padding=padding,
        lhs_dilation=tuple(lhs_dilation), rhs_dilation=rhs_dilation,
        dimension_numbers=numbers,
        feature_group_count=feature_group_count, batch_group_count=batch_group_count,
        precision=canonicalize_precision(precision), preferred_element_type=preferred_element_type,
        out_sharding=explicit_sharding(out_sharding, "conv_general_dilated"),
    )  # fmt: skip
    return with_out_sharding(out, out_sharding, "conv_general_dilated")


# ---------------------------------------------------------------- types



def _check_equal_ranks(lhs_shape: tuple[int, ...], rhs_shape: tuple[int, ...]) -> None:
    if len(lhs_shape) != len(rhs_shape):
        raise ValueError(
            "conv_general_dilated lhs and rhs must have the same number of dimensions, but got "
            f"{lhs_shape} and {rhs_shape}."
        )


def _check_number(name: str, values: Sequence[int], spatial: int) -> None:
    """Raise ValueError unless there is one value for each spatial axis."""
    if len(values) != spatial:
        raise ValueError(
            f"conv_general_dilated window and {name} must have the same number of dimensions, but got {spatial} and "
            f"{len(values)}"
        )


def _check_groups(lhs_features: int, rhs_features: int, outputs: int, batch: int, features: int, batches: int) -> None:
    name = "conv_general_dilated"
    if not features > 0:
        raise ValueError(f"{name} feature_group_count must be a positive integer, got {features}.")
    if lhs_features % features:
        raise ValueError(
            f"{name} feature_group_count must divide lhs feature dimension size, but {features} does not divide "
            f"{lhs_features}."
        )
    if lhs_features // features != rhs_features:
        raise ValueError(
            f"{name} lhs feature dimension size divided by feature_group_count must equal the rhs input feature "
            f"dimension size, but {lhs_features} // {features} != {rhs_features}."
        )
    if outputs % features:
        raise ValueError(
            f"{name} rhs output feature dimension size must be a multiple of feature_group_count, but {outputs} is "
            f"not a multiple of {features}."
        )
    if not batches > 0:
        raise ValueError(f"{name} batch_group_count must be a positive integer, got {batches}.")
    if batch % batches:
        raise ValueError(
            f"{name} batch_group_count must divide lhs batch dimension size, but {batches} does not divide {batch}."
        )
    if outputs % batches:
        raise ValueError(
            f"{name} rhs output feature dimension size must be a multiple of batch_group_count, but {outputs} is not "
            f"a multiple of {batches}."
        )
    if batches > 1 and features > 1:
        raise ValueError(
            "At most one of batch_group_count and feature_group_count may be > 1, got "
            f"batch_group_count={batches} and feature_group_count={features}"
        )


def _conv_shape(
    lhs, rhs, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count,
    batch_group_count, **_,
) -> tuple[int, ...]:  # fmt: skip
    _check_equal_ranks(lhs.shape, rhs.shape)
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    if any(sorted(spec) != list(range(lhs.ndim)) for spec in dimension_numbers):
        raise ValueError(f"conv_general_dilated dimension_numbers {dimension_numbers} are no permutations of the axes")
    one, two = permuted(lhs.shape, lhs_spec), permuted(rhs.shape, rhs_spec)
    _check_groups(one[1], two[1], two[0], one[0], feature_group_count, batch_group_count)
    for name, values in (
        ("window_strides", window_strides), ("lhs_dilation", lhs_dilation), ("rhs_dilation", rhs_dilation)
    ):  # fmt: skip
        _check_number(name, values, len(rhs_spec) - 2)
        if any(v < 1 for v in values):
            raise ValueError(f"conv_general_dilated {name} must be positive, got {values}")
    one = (*one[:2], *dilated(one[2:], lhs_dilation))
    two = (*two[:2], *dilated(two[2:], rhs_dilation))
    return spread(conv_shape_tuple(one, two, window_strides, padding, batch_group_count), out_spec)


def _check_preferred(dtype: Any, preferred: Any) -> None:
    kinds = (np.integer, np.floating, np.complexfloating)
    if not (dtypes.issubdtype(dtype, np.integer) and dtypes.issubdtype(preferred, np.floating)):
        if any(dtypes.issubdtype(dtype, k) and not dtypes.issubdtype(preferred, k) for k in kinds):
            raise TypeError(
                f"Input type {dtype} is incompatible with `preferred_element_type` {preferred}: both are integers, "
                "floats or complex, or the input integers and the result floats."
            )
        if dtypes.issubdtype(dtype, np.signedinteger) and not dtypes.issubdtype(preferred, np.signedinteger):
            raise TypeError(
                f"`preferred_element_type` {preferred} must have the same signedness as the original type {dtype}."
            )
    if np.dtype(preferred).itemsize < np.dtype(dtype).itemsize:
        raise TypeError(f"`preferred_element_type` {preferred} must not be narrower than the original type {dtype}.")


def _conv_type(lhs, rhs, **params):
    check_same_dtypes("conv_general_dilated", (lhs, rhs))
    dtype, preferred = lhs.dtype, params["preferred_element_type"]
    if preferred is not None:
        _check_preferred(dtype, preferred)
        dtype = preferred
    return ShapedArray(_conv_shape(lhs, rhs, **params), dtype, lhs.weak_type and rhs.weak_type)


def _conv_reference(
    lhs, rhs, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count,
    batch_group_count, precision, preferred_element_type, out_sharding,
):  # fmt: skip
    """One matrix product for each element of the kernel and each group."""
    dtype = lhs.dtype if preferred_element_type is None else np.dtype(preferred_element_type)
    narrow = dtypes.issubdtype(dtype, np.floating) and dtype.itemsize < 4
    wide = np.dtype(np.float32) if narrow else np.dtype(np.int32) if dtype == np.bool_ else dtype
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    x, w = lhs.transpose(lhs_spec).astype(wide), rhs.transpose(rhs_spec).astype(wide)
    config = ((0, 0, 0), (0, 0, 0), *((lo, hi, k - 1) for (lo, hi), k in zip(padding, lhs_dilation, strict=True)))
    x = registry["pad"].reference(x, np.zeros((), wide), padding_config=config)
    window = dilated(w.shape[2:], rhs_dilation)
    pads = [(0, 0)] * len(window)
    shape = conv_shape_tuple(x.shape, (*w.shape[:2], *window), window_strides, pads, batch_group_count)
    out = np.zeros(shape, wide)
    if 0 in shape:
        return out.transpose(np.argsort(out_spec)).astype(dtype)
    groups = max(feature_group_count, batch_group_count)
    features, batch, outputs = x.shape[1] // feature_group_count, shape[0], shape[1] // groups
    with np.errstate(all="ignore"):
        for at in itertools.product(*map(range, w.shape[2:])):
            starts = [a * k for a, k in zip(at, rhs_dilation, strict=True)]
            where = tuple(
                slice(b, b + s * (n - 1) + 1, s) for b, s, n in zip(starts, window_strides, shape[2:], strict=True)
            )
            for g in range(groups):
                f, b = (g, 0) if feature_group_count > 1 else (0, g)
                part = x[(slice(b * batch, (b + 1) * batch), slice(f * features, (f + 1) * features), *where)]
                own = slice(g * outputs, (g + 1) * outputs)
                out[:, own] += np.moveaxis(np.tensordot(part, w[(own, slice(None), *at)], (1, 1)), -1, 1)
        return out.transpose(np.argsort(out_spec)).astype(dtype)


# ---------------------------------------------------------------- derivatives


def _conv_jvp(primals, tangents, **params):
    (x, w), (tx, tw) = primals, tangents
    out = conv_general_dilated_p.bind(x, w, **params)
    terms = []
    if type(tx) is not Zero:
        terms.append(conv_general_dilated_p.bind(tx, w, **params))
    if type(tw) is not Zero:
        terms.append(conv_general_dilated_p.bind(x, tw, **params))
    return out, terms[0] if len(terms) == 1 else add_tangents(*terms)


def _conv_transpose(ct, lhs, rhs, **params):
    if is_linear(lhs):
        return [_lhs_cotangent(ct, lhs, rhs, **params), None]
    return [None, _rhs_cotangent(ct, lhs, rhs, **params)]


def _swapped(spec: Sequence[int]) -> tuple[int, ...]:
    return (spec[1], spec[0], *spec[2:])


def _in_dtype(x: Any, dtype: Any) -> Any:
    return x if typeof(x).dtype == dtype else convert_element_type(x, dtype)


# The cotangent of lhs is a convolution of the result's cotangent with the reversed kernel, with input and output
# features exchanged. The cotangent of rhs is a convolution of lhs with the result's cotangent, with batch and features
# exchanged. Ignoring positions, with m for the batch, j and k for features, and g groups:
#   forward [m, gj] [j, gk] -> [m, gk]   lhs: [m, gk] [k, gj] -> [m, gj]   rhs: [gj, m] [m, gk] -> [j, gk]


def _lhs_cotangent(
    ct, lhs, rhs, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count,
    batch_group_count, precision, preferred_element_type, out_sharding,
):  # fmt: skip
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    rhs_shape, ct_aval = typeof(rhs).shape, typeof(ct)
    groups = max(feature_group_count, batch_group_count)
    if groups > 1:
        rhs = axis_out_of(rhs_spec[0], groups, rhs)
        rhs = axis_into(rhs_spec[0], rhs_spec[1], rhs)
    pads = lhs_gradient_padding(
        permuted(lhs.aval.shape, lhs_spec[2:]), permuted(rhs_shape, rhs_spec[2:]), window_strides,
        permuted(ct_aval.shape, out_spec[2:]), padding, lhs_dilation, rhs_dilation,
    )  # fmt: skip
    out = conv_general_dilated(
        ct, _in_dtype(rev(rhs, rhs_spec[2:]), ct_aval.dtype), lhs_dilation, pads, window_strides, rhs_dilation,
        ConvDimensionNumbers(out_spec, _swapped(rhs_spec), lhs_spec),
        feature_group_count=groups, precision=precision, preferred_element_type=preferred_element_type,
    )  # fmt: skip
    out = _in_dtype(out, lhs.aval.dtype)
    if batch_group_count > 1:
        out = axis_out_of(lhs_spec[1], batch_group_count, out)
        out = axis_into(lhs_spec[1], lhs_spec[0], out)
    return out


def _rhs_cotangent(
    ct, lhs, rhs, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count,
    batch_group_count, precision, preferred_element_type, out_sharding,
):  # fmt: skip
    ct_aval = typeof(ct)
    if math.prod(ct_aval.shape) == 0:
        return Zero(rhs.aval)
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    pads = rhs_gradient_padding(
        permuted(typeof(lhs).shape, lhs_spec[2:]), permuted(rhs.aval.shape, rhs_spec[2:]), window_strides,
        permuted(ct_aval.shape, out_spec[2:]), padding, lhs_dilation, rhs_dilation,
    )  # fmt: skip
    out = conv_general_dilated(
        _in_dtype(lhs, ct_aval.dtype), ct, rhs_dilation, pads, lhs_dilation, window_strides,
        ConvDimensionNumbers(*map(_swapped, (lhs_spec, out_spec, rhs_spec))),
        feature_group_count=batch_group_count, batch_group_count=feature_group_count, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip
    return _in_dtype(out, rhs.aval.dtype)


# ---------------------------------------------------------------- examples


def axis_into(source: int, target: int, x: Any) -> Any:
    """Merges axis `source` into axis `target` (counted without it) as the slower part."""
    shape = typeof(x).shape
    order = [i for i in range(len(shape)) if i != source]
    sizes = [shape[i] for i in order]
    sizes[target] *= shape[source]
    order.insert(target, source)
    return reshape(x, sizes, order)


def axis_out_of(axis: int, size: int, x: Any) -> Any:
    """Splits an axis in two; the slower one has `size`."""
    shape = typeof(x).shape
    return reshape(x, (*shape[:axis], size, shape[axis] // size, *shape[axis + 1 :]))


def _conv_batch(axis, args, dims, **params):
    (lhs, rhs), (lhs_dim, rhs_dim) = args, dims
    if axis.size == 0:
        return _no_examples(args, dims, params), 0
    if rhs_dim is None:
        return _batched_lhs(lhs, rhs, lhs_dim, params)
    if lhs_dim is None:
        return _batched_rhs(lhs, rhs, rhs_dim, params)
    lhs_spec, rhs_spec, out_spec = params["dimension_numbers"]
    size = typeof(lhs).shape[lhs_dim]
    which, into = ("batch", 0) if params["batch_group_count"] > 1 else ("feature", 1)
    params = {**params, f"{which}_group_count": params[f"{which}_group_count"] * size}
    lhs, rhs = axis_into(lhs_dim, lhs_spec[into], lhs), axis_into(rhs_dim, rhs_spec[0], rhs)
    out = conv_general_dilated_p.bind(lhs, rhs, **params)
    return axis_out_of(out_spec[1], size, out), out_spec[1]


def _no_examples(args, dims, params):
    avals = []
    for x, d in zip(args, dims, strict=True):
        shape = list(typeof(x).shape)
        if d is not None:
            del shape[d]
        avals.append(ShapedArray(tuple(shape), typeof(x).dtype))
    out = _conv_type(*avals, **params)
    return full((0, *out.shape), 0, out.dtype)


def _batched_lhs(lhs, rhs, dim: int, params):
    """Merges the examples into the batch, within its groups."""
    lhs_spec, _, out_spec = params["dimension_numbers"]
    size = typeof(lhs).shape[dim]
    lhs = _into_groups(lhs, dim, lhs_spec[0], params["batch_group_count"])
    out = conv_general_dilated_p.bind(lhs, rhs, **params)
    return axis_out_of(out_spec[0], size, out), out_spec[0]


def _batched_rhs(lhs, rhs, dim: int, params):
    """Merges a batch of kernels into the output features, within their groups."""
    _, rhs_spec, out_spec = params["dimension_numbers"]
    size = typeof(rhs).shape[dim]
    groups = max(params["feature_group_count"], params["batch_group_count"])
    rhs = _into_groups(rhs, dim, rhs_spec[0], groups)
    out = conv_general_dilated_p.bind(lhs, rhs, **params)
    at = out_spec[1]
    if groups == 1:
        return axis_out_of(at, size, out), at
    out = axis_out_of(at, groups, out)
    out = axis_out_of(at + 1, size, out)
    return axis_into(at, at + 1, out), at


def _into_groups(x: Any, dim: int, axis: int, groups: int) -> Any:
    """Merges the batch axis at `dim` into `axis` of an example, as a faster part than the groups there."""
    if groups == 1:
        return axis_into(dim, axis, x)
    x = axis_out_of(axis + (dim <= axis), groups, x)
    x = axis_into(dim + (axis < dim), axis + 1, x)
    return axis_into(axis, axis, x)


conv_general_dilated_p = Primitive(
    "conv_general_dilated",
    type_rule=_conv_type,
    reference=_conv_reference,
    lower=Decompose(lowered),
    jvp=_conv_jvp,
    transpose=_conv_transpose,
    batch=_conv_batch,
    sharding=window_rules.conv_general_dilated,
    same_bits=same_bits.conv_general_dilated,
    product=lambda params: False,
)
