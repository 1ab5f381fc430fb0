"""Defines pad: inserts values around and between elements; negative widths remove elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core.rules import shape_rules, sum_types
from mpijax.core.rules.index_maps import Elements, Index, boxed
from mpijax.core.rules.lowering import Structural, Writes
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.shapes.dimensions import dimension
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.rules import const_like, full_like, is_linear
from mpijax.ops.shapes.moves import numpy_ints, shape_of
from mpijax.ops.shapes.reshape import broadcast_in_dim
from mpijax.transforms.batching import batch_at
from mpijax.transforms.zeros import instantiate


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Any:
    """Inserts `padding_value`, a scalar of the operand's dtype, around and between elements.

    Args:
      padding_config: for each axis the number of values before, after and between every two elements.
        Negative numbers before and after remove elements.

    >>> lax.pad(jnp.array([1, 2, 3]), 0, [(1, 2, 1)])
    Array([0, 1, 0, 2, 0, 3, 0, 0], dtype=int32)
    """
    config = tuple(tuple(c) for c in padding_config)
    return pad_p.bind(operand, padding_value, padding_config=config)


def _pad_type(operand, padding_value, *, padding_config):
    if padding_value.ndim != 0:
        raise ValueError(f"padding_value must be a scalar; got np.shape(padding_value)={padding_value.shape}")
    shape = operand.shape
    if len(padding_config) != len(shape):
        raise ValueError(
            "length of padding_config must equal the number of axes of operand, got padding_config "
            f"{padding_config} for operand shape {shape}"
        )
    if any(i < 0 for _, _, i in padding_config):
        raise ValueError(
            f"interior padding in padding_config must be nonnegative, got padding_config {padding_config}"
        )
    result = tuple(
        dimension(lo + hi + (d + (d - 1) * i if type(d) is not int or d else 0))
        for (lo, hi, i), d in zip(padding_config, shape, strict=True)
    )
    if any(d < 0 for d in result):
        raise ValueError(
            f"Dimension size after padding is not at least 0, got result shape {result}, for padding_config "
            f"{padding_config} and operand shape {shape}"
        )
    if operand.dtype != padding_value.dtype:
        raise TypeError(
            f"pad operand and padding_value must be same dtype: got {operand.dtype} and "
            f"{padding_value.dtype}."
        )
    return ShapedArray(result, operand.dtype, operand.weak_type and padding_value.weak_type)


def _pad_reference(x, value, *, padding_config):
    ndim = len(padding_config)
    words = x.shape[ndim:]
    spread = [d + (d - 1) * i if d else 0 for (_, _, i), d in zip(padding_config, x.shape, strict=False)]
    dilated = np.empty((*spread, *words), x.dtype)
    dilated[...] = value
    dilated[tuple(slice(None, None, i + 1) for _, _, i in padding_config)] = x
    shape = [lo + hi + s for (lo, hi, _), s in zip(padding_config, spread, strict=True)]
    out = np.empty((*shape, *words), x.dtype)
    out[...] = value
    target, source = [], []
    for (lo, _, _), s, full in zip(padding_config, spread, shape, strict=True):
        start, stop = max(lo, 0), max(min(lo + s, full), max(lo, 0))
        target.append(slice(start, stop))
        source.append(slice(start - lo, stop - lo))
    out[tuple(target)] = dilated[tuple(source)]
    return out


def _pad_jvp(primals, tangents, *, padding_config):
    out = pad_p.bind(*primals, padding_config=padding_config)
    return out, pad_p.bind(*map(instantiate, tangents), padding_config=padding_config)


def _pad_transpose(ct, operand, padding_value, *, padding_config):
    """The operand's cotangent is a slice of ct; the padding's cotangent is the sum of the rest."""

    def unpadded():
        config = [numpy_ints((-before, -after, 0)) for before, after, _ in padding_config]
        cut = pad(ct, const_like(ct, 0), config)
        return registry["slice"].bind(
            cut,
            start_indices=numpy_ints(0 for _ in config),
            limit_indices=shape_of(cut),
            strides=numpy_ints(between + 1 for _, _, between in padding_config),
        )

    def total(x):
        axes = tuple(range(typeof(x).ndim))
        return registry["reduce_sum"].bind(x, axes=axes, out_sharding=None)

    ct_operand = unpadded() if is_linear(operand) or is_linear(padding_value) else None
    ct_value = registry["sub"].bind(total(ct), total(ct_operand)) if is_linear(padding_value) else None
    return [ct_operand if is_linear(operand) else None, ct_value]


def _pad_batch(axis, args, dims, *, padding_config):
    (operand, value), (dim, value_dim) = args, dims
    if dim is None:
        operand, dim = batch_at(operand, None, 0, axis), 0
    config = list(padding_config)
    config.insert(dim, (0, 0, 0))
    if value_dim is None:
        return pad(operand, value, config), dim
    # Each example has its own padding value: pad with zeros, then select.
    aval = typeof(operand)
    padded = pad(operand, const_like(operand, 0), config)
    mask = pad(full_like(np.False_, True, aval.shape), np.False_, config)
    values = broadcast_in_dim(value, shape_of(padded), (dim,))
    return registry["select_n"].bind(mask, values, padded), dim


def _pad_element(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    start = [int(low) for low, _, _ in params["padding_config"]]
    return boxed(r, index, start, avals[0].shape, lambda: r.read(1, ()), lambda source: r.read(0, source))


pad_p = Primitive(
    "pad",
    type_rule=_pad_type,
    reference=_pad_reference,
    lower=Structural(_pad_element, writes=Writes.PAD),
    jvp=_pad_jvp,
    transpose=_pad_transpose,
    batch=_pad_batch,
    sharding=shape_rules.pad,
    sums=sum_types.as_operand(0),
)
