"""Defines `axis_index` and `axis_size`: the position of a shard."""

from __future__ import annotations

import numpy as np

from mpijax.core.rules.lowering import Communication, Exchange
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.trace import axis_size as named_axis_size
from mpijax.core.types import effects as fx
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.collectives.scope import check_bound, names_of, vma_with


def axis_index(axis_name):
    """Position of this shard along a named axis (row-major over several), an int32 scalar.

    >>> mpijax.vmap(lambda x: 10 * x + lax.axis_index("i"), axis_name="i")(jnp.array([1, 1, 1]))
    Array([10, 11, 12], dtype=int32)
    """
    check_bound(names_of(axis_name), "axis_index")
    if not isinstance(axis_name, (tuple, list)):
        return axis_index_p.bind(axis_name=axis_name)
    position, stride = np.int32(0), 1
    for n in reversed(axis_name):
        position = position + axis_index_p.bind(axis_name=n) * np.int32(stride)
        stride *= named_axis_size(n)
    return position


def axis_size(axis_name) -> int:
    """Size of a named axis (the product over several), a Python int.

    >>> mpijax.vmap(lambda x: x / lax.axis_size("i"), axis_name="i")(jnp.array([2.0, 4.0]))
    Array([1., 2.], dtype=float32)
    """
    return named_axis_size(axis_name, "axis_size")


def _batch(axis, args, dims, *, axis_name):
    out = registry["iota"].bind(dtype=np.dtype(np.int32), shape=(axis.size,), dimension=0, sharding=None)
    return out, 0


axis_index_p: Primitive = Primitive(
    "axis_index",
    type_rule=lambda *, axis_name: ShapedArray((), np.int32),
    reference=lambda *, axis_name: np.int32(0),
    lower=Communication(Exchange.POSITION),
    jvp=lambda primals, tangents, *, axis_name: (axis_index_p.bind(axis_name=axis_name), None),
    transpose=Unsupported("axis_index has no arguments"),
    batch=_batch,
    effects=lambda params: frozenset({fx.NamedAxisEffect(params["axis_name"])}),
    vma=vma_with("axis_name"),
)
