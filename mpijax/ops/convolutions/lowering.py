"""Lowers convolutions: converts to machine types, then makes one call of machine code that reads any layout."""

from __future__ import annotations

import itertools
import math
from typing import Any, NoReturn

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import provided
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import Native
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.rules.registry import registry
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.convolutions.shapes import conv_shape_tuple, permuted, spread
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.rules import const_like
from mpijax.ops.shapes.creation import full
from mpijax.ops.shapes.stacking import stack
from mpijax.ops.windows.shapes import dilated

# The types that the machine code supports, in the order of its table.
_TYPES = [np.dtype(t) for t in ("f4", "f8", "c8", "c16", "u1", "u2", "u4", "u8")]
# Dilation of lhs is removed if that takes at most this many interleaved convolutions.
PHASES = 16
# Depthwise kernels with at most this many elements become sums of shifted arrays.
SHIFTED_UP_TO = 32


def lowered(lhs: Any, rhs: Any, *, preferred_element_type, precision, out_sharding, **params) -> Any:
    """A convolution in a machine type; narrow floats are computed in float32 and rounded once."""
    dtype = typeof(lhs).dtype if preferred_element_type is None else np.dtype(preferred_element_type)
    wide = _computed_in(dtype)
    out = _computed(convert_element_type(lhs, wide), convert_element_type(rhs, wide), **params)
    if dtype == np.bool_:
        return registry["ne"].bind(out, np.zeros((), wide)[()])
    return convert_element_type(out, dtype)


def _computed_in(dtype: np.dtype) -> np.dtype:
    if dtype == np.bool_:
        return np.dtype(np.int32)
    if dtypes.issubdtype(dtype, np.floating) and dtype.itemsize < 4:
        return np.dtype(np.float32)
    return dtype if dtype.kind in "fciu" else np.dtype(np.int8)


def _computed(
    lhs: Any, rhs: Any, *, padding, lhs_dilation, window_strides, rhs_dilation, dimension_numbers, feature_group_count,
    batch_group_count,
) -> Any:  # fmt: skip
    """Uses `pad` for padding and dilation of lhs, so that the compiler fuses it with the producer of lhs."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    groups = {"feature_group_count": feature_group_count, "batch_group_count": batch_group_count}
    if 1 < math.prod(lhs_dilation) <= PHASES and all(s == 1 for s in window_strides):
        return _by_phases(lhs, rhs, padding, lhs_dilation, rhs_dilation, dimension_numbers, groups)
    config = [(0, 0, 0)] * len(lhs_spec)
    for axis, (lo, hi), k in zip(lhs_spec[2:], padding, lhs_dilation, strict=True):
        config[axis] = (lo, hi, k - 1)
    if any(any(c) for c in config):
        lhs = registry["pad"].bind(lhs, const_like(lhs, 0), padding_config=tuple(config))
    features, kernel = typeof(rhs).shape[rhs_spec[1]], permuted(typeof(rhs).shape, rhs_spec[2:])
    where = {"window_strides": window_strides, "rhs_dilation": rhs_dilation, "dimension_numbers": dimension_numbers}
    if features == 1 < feature_group_count and 0 < math.prod(kernel) <= SHIFTED_UP_TO:
        return _shifted(lhs, rhs, **where)
    shape = _shape(typeof(lhs), typeof(rhs), batch_group_count=batch_group_count, **where)
    if 0 in (*shape, features, *kernel):
        return full(shape, 0, typeof(lhs).dtype)
    out, _ = convolution_p.bind(lhs, rhs, **groups, **where)
    return out


@dataclass(frozen=True)
class Phase:
    """One axis of outputs `first`, `first + k`, ... of a convolution over an operand dilated by k.

    These outputs use `taps` elements of the kernel: `tap`, `tap + step`, ... They are a convolution without lhs
    dilation, with this padding and this kernel dilation.
    """

    tap: int
    step: int
    taps: int
    padding: tuple[int, int]
    dilation: int


def _phases(size: int, outputs: int, kernel: int, k: int, dilation: int, low: int) -> list[Phase]:
    """The phases of an axis: output `first + k q` reads element t at `(first + t dilation - low) / k + q`, if whole."""
    common = math.gcd(k, dilation)
    step = k // common
    found = []
    for first in range(k):
        tap = next((t for t in range(min(step, kernel)) if (first + t * dilation - low) % k == 0), kernel)
        taps = len(range(tap, kernel, step))
        begin = (first + tap * dilation - low) // k
        last = begin + (outputs - 1) + max(taps - 1, 0) * (dilation // common)
        found.append(Phase(tap, step, taps, (-begin, last - (size - 1)), dilation // common))
    return found


def _by_phases(lhs, rhs, padding, lhs_dilation, rhs_dilation, dimension_numbers, groups) -> Any:
    """A convolution over a dilated operand as several convolutions without dilation, whose results are interleaved.

    Gradients of strided convolutions and `conv_transpose` have this form; most of their products are with zeros.
    """
    bind = registry.__getitem__
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    ones = (1,) * len(lhs_dilation)
    sizes, kernel = permuted(typeof(lhs).shape, lhs_spec[2:]), permuted(typeof(rhs).shape, rhs_spec[2:])
    wide = [d + lo + hi for d, (lo, hi) in zip(dilated(sizes, lhs_dilation), padding, strict=True)]
    outputs = [max(n - w + 1, 0) for n, w in zip(wide, dilated(kernel, rhs_dilation), strict=True)]
    each = [-(-n // k) for n, k in zip(outputs, lhs_dilation, strict=True)]
    batch = typeof(lhs).shape[lhs_spec[0]] // groups["batch_group_count"]
    whole = spread((batch, typeof(rhs).shape[rhs_spec[0]], *outputs), out_spec)
    if 0 in (*sizes, *kernel, *whole, typeof(rhs).shape[rhs_spec[1]]):
        return full(whole, 0, typeof(lhs).dtype)
    lows = [lo for lo, _ in padding]
    axes = list(map(_phases, sizes, each, kernel, lhs_dilation, rhs_dilation, lows))
    parts = []
    for phase in itertools.product(*axes):
        if any(p.taps == 0 for p in phase):
            parts.append(full(spread((whole[out_spec[0]], whole[out_spec[1]], *each), out_spec), 0, typeof(lhs).dtype))
            continue
        start, stride = [0] * len(rhs_spec), [1] * len(rhs_spec)
        for axis, p in zip(rhs_spec[2:], phase, strict=True):
            start[axis], stride[axis] = p.tap, p.step
        taps = bind("slice").bind(
            rhs, start_indices=tuple(start), limit_indices=typeof(rhs).shape, strides=tuple(stride)
        )
        parts.append(_computed(
            lhs, taps, padding=tuple(p.padding for p in phase), lhs_dilation=ones, window_strides=ones,
            rhs_dilation=tuple(p.dilation for p in phase), dimension_numbers=dimension_numbers, **groups,
        ))  # fmt: skip
    return _interleaved(parts, lhs_dilation, out_spec, whole)


def _interleaved(parts: list[Any], dilation, out_spec, whole: tuple[int, ...]) -> Any:
    """Element `q k + f` along each spatial axis is element q of the part for phase f."""
    bind = registry.__getitem__
    for k, axis in zip(reversed(dilation), reversed(out_spec[2:]), strict=True):
        shape = typeof(parts[0]).shape
        merged = (*shape[:axis], shape[axis] * k, *shape[axis + 1 :])
        parts = [
            bind("reshape").bind(stack(parts[f : f + k], axis + 1), new_sizes=merged, dimensions=None, sharding=None)
            for f in range(0, len(parts), k)
        ]
    [out] = parts
    if typeof(out).shape == whole:
        return out
    return bind("slice").bind(out, start_indices=(0,) * len(whole), limit_indices=whole, strides=None)


def _shifted(x, w, *, window_strides, rhs_dilation, dimension_numbers) -> Any:
    """A depthwise convolution as a sum over the kernel's elements, which the compiler fuses to one loop.

    Axes are (batch, feature, kernel, space ...) until the last transpose.
    """
    bind = registry.__getitem__
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    x = bind("transpose").bind(x, permutation=tuple(lhs_spec))
    w = bind("transpose").bind(w, permutation=tuple(rhs_spec))
    (n, c, *given), (o, _, *kernel) = typeof(x).shape, typeof(w).shape
    ones = [(0, 0)] * len(given)
    space = conv_shape_tuple((n, c, *given), (o, 1, *dilated(kernel, rhs_dilation)), window_strides, ones)[2:]
    shape = (n, c, o // c, *space)
    if 0 in shape:
        return full(spread((n, o, *space), out_spec), 0, typeof(x).dtype)
    total = None
    for at in itertools.product(*map(range, kernel)):
        starts = [a * k for a, k in zip(at, rhs_dilation, strict=True)]
        limits = [b + s * (size - 1) + 1 for b, s, size in zip(starts, window_strides, space, strict=True)]
        part = bind("slice").bind(
            x, start_indices=(0, 0, *starts), limit_indices=(n, c, *limits), strides=(1, 1, *window_strides)
        )
        element = bind("slice").bind(
            w, start_indices=(0, 0, *at), limit_indices=(o, 1, *(a + 1 for a in at)), strides=None
        )
        element = bind("reshape").bind(element, new_sizes=(c, o // c), dimensions=None, sharding=None)
        axes = (0, 1, *range(3, len(shape)))
        part = bind("broadcast_in_dim").bind(part, shape=shape, broadcast_dimensions=axes, sharding=None)
        element = bind("broadcast_in_dim").bind(element, shape=shape, broadcast_dimensions=(1, 2), sharding=None)
        product = bind("mul").bind(part, element)
        total = product if total is None else bind("add").bind(total, product)
    out = bind("reshape").bind(total, new_sizes=(n, o, *space), dimensions=None, sharding=None)
    return bind("transpose").bind(out, permutation=tuple(int(a) for a in np.argsort(out_spec)))


# ---------------------------------------------------------------- machine code


@dataclass(frozen=True)
class ConvCode:
    """A call of the compiled convolution in `mpijax._ext`, which is imported at the first call."""

    words: tuple[int, ...]
    label: str = "conv"

    def address(self) -> int:
        from mpijax._ext import convolution  # deferred: few programs use convolutions

        return convolution.address(provided.blas_addresses())

    def failed(self, *_arrays: np.ndarray) -> NoReturn:
        raise AssertionError("a convolution does not fail")


def _strides(shape: tuple[int, ...]) -> list[int]:
    """Strides of a row-major array, in elements."""
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _words(
    lhs: ShapedArray, rhs: ShapedArray, *, window_strides, rhs_dilation, dimension_numbers, feature_group_count,
    batch_group_count,
) -> tuple[int, ...]:  # fmt: skip
    """The type, and the words that `conv_read` in convolution.h reads."""
    out = _shape(lhs, rhs, window_strides, rhs_dilation, dimension_numbers, batch_group_count)
    groups = max(feature_group_count, batch_group_count)
    shapes = [permuted(s, spec) for s, spec in zip((lhs.shape, rhs.shape, out), dimension_numbers, strict=True)]
    strides = [
        permuted(_strides(s), spec) for s, spec in zip((lhs.shape, rhs.shape, out), dimension_numbers, strict=True)
    ]
    (_, w, y), (xs, ws, ys) = shapes, strides
    features, outputs = w[1], w[0] // groups
    group = xs[1] * features if feature_group_count > 1 else xs[0] * y[0]
    words = [y[0], groups, features, outputs, len(w) - 2]
    words += [group, xs[0], xs[1], outputs * ws[0], ws[0], ws[1], outputs * ys[1], ys[0], ys[1]]
    for d, stride, dilation in zip(range(2, len(w)), window_strides, rhs_dilation, strict=True):
        words += [y[d], w[d], stride * xs[d], dilation * xs[d], ws[d], ys[d]]
    kind = lhs.dtype if lhs.dtype.kind in "fc" else np.dtype(f"u{lhs.dtype.itemsize}")
    return tuple(int(n) for n in (_TYPES.index(kind), *words))


def _shape(lhs, rhs, window_strides, rhs_dilation, dimension_numbers, batch_group_count) -> tuple[int, ...]:
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    x, w = permuted(lhs.shape, lhs_spec), permuted(rhs.shape, rhs_spec)
    w = (*w[:2], *dilated(w[2:], rhs_dilation))
    return spread(conv_shape_tuple(x, w, window_strides, [(0, 0)] * (len(x) - 2), batch_group_count), out_spec)


def _code(in_types, _out_types, **params) -> ConvCode:
    return ConvCode(_words(*in_types, **params))


def _type(lhs: ShapedArray, rhs: ShapedArray, **params) -> list[ShapedArray]:
    from mpijax._ext import convolution

    if lhs.ndim - 2 > convolution.MAX_RANK:
        raise NotImplementedError(
            f"convolutions have at most {convolution.MAX_RANK} spatial axes, got an array of shape {lhs.shape}"
        )
    words = _words(lhs, rhs, **params)
    own = {k: v for k, v in params.items() if k != "feature_group_count"}
    nbytes = convolution.scratch(np.array(words, np.int64))
    return [ShapedArray(_shape(lhs, rhs, **own), lhs.dtype), ShapedArray((nbytes,), np.uint8)]


def _reference(lhs, rhs, **params):
    rest = {"precision": None, "preferred_element_type": None, "out_sharding": None}
    rank = lhs.ndim - 2
    rest |= {"padding": ((0, 0),) * rank, "lhs_dilation": (1,) * rank}
    out = registry["conv_general_dilated"].reference(lhs, rhs, **params, **rest)
    return [out, np.zeros(_type(typeof(lhs), typeof(rhs), **params)[1].shape, np.uint8)]


_INSIDE = Unsupported("only the compiler makes this primitive, after all transformations")

convolution_p = Primitive(
    "convolution",
    type_rule=_type,
    reference=_reference,
    lower=Native(_code, foreign=False),
    jvp=_INSIDE,
    transpose=_INSIDE,
    batch=_INSIDE,
    inner=True,
    multiple_results=True,
)
"""`conv_general_dilated` without padding and dilation of `lhs`, in a dtype of the machine.

Results: the convolution, and its working memory as bytes.
"""
