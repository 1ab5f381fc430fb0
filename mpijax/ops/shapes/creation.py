"""Creates arrays: full, full_like, iota."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules.lowering import Structural
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.sharding.shardings import SingleDeviceSharding
from mpijax.core.tracing.out_sharding import (
    explicit_sharding,
    over_devices,
    put,
    sharding_in_context,
    with_out_sharding,
)
from mpijax.core.types.avals import ShapedArray, ShapeDtypeStruct
from mpijax.core.types.typeof import typeof
from mpijax.core.types.varying import varying_over
from mpijax.ops.elementwise.convert import convert
from mpijax.ops.families import check_dtype
from mpijax.ops.random.keys import random_wrap
from mpijax.ops.shapes.moves import canonical_shape, check_shapelike, shape_of
from mpijax.ops.shapes.reshape import broadcast

_NUMERIC = (np.integer, np.floating, np.complexfloating)


def full(shape: Any, fill_value: Any, dtype: Any = None, *, sharding=None) -> Any:
    """An array filled with a scalar. Its dtype is the scalar's unless another one is given.

    Args:
      sharding: the sharding of the array.

    >>> lax.full((2, 2), 7)
    Array([[7, 7],
           [7, 7]], dtype=int32, weak_type=True)
    """
    shape = canonical_shape(shape)
    _check_scalar(fill_value)
    if isinstance(dtype, dtypes.ExtendedDType):
        return _placed(_full_of_extended(shape, fill_value, dtype), sharding)
    if dtype is None:
        weak = dtypes.is_weak(fill_value)
        dtype = dtypes.dtype(int) if type(fill_value) is int else typeof(fill_value).dtype
    else:
        weak, dtype = False, dtypes.check_user_dtype_supported(dtype, "full")
    return _filled(convert(fill_value, dtype, weak), shape, sharding)


def _check_scalar(fill_value: Any) -> None:
    # An int beyond the default integer type has no type.
    if type(fill_value) is not int and shape_of(fill_value):
        raise TypeError(f"full must be called with scalar fill_value, got fill_value.shape {shape_of(fill_value)}.")


def _filled(value: Any, shape: tuple[int, ...], sharding: Any) -> Any:
    explicit = sharding_in_context(sharding, "full")
    return _placed(broadcast(value, shape, out_sharding=explicit), sharding if explicit is None else None)


def _placed(x: Any, sharding: Any) -> Any:
    return x if sharding is None else put(x, sharding)


def _full_of_extended(shape, fill_value, dtype):
    if getattr(fill_value, "dtype", None) == dtype:
        return broadcast(fill_value, shape)
    if not dtypes.issubdtype(dtype, dtypes.prng_key):
        return _full_by_rule(shape, fill_value, dtype)
    words = dtype.physical_shape
    physical = full(words, fill_value, np.uint32) if not shape_of(fill_value) else fill_value
    return random_wrap(broadcast(physical, shape), impl=dtype.impl)


def _full_by_rule(shape, fill_value, dtype):
    rule = getattr(dtype._rules, "full", None)
    if rule is not None:
        return rule(shape, fill_value, dtype)
    return convert(full((*shape, *dtype.physical_shape), fill_value, dtype.physical_dtype), dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, sharding=None) -> Any:
    """An array filled with a scalar, with the shape and dtype of x unless others are given.

    Its sharding is `sharding`, or else that of `x` if the user set it; with another shape, only if `x` is on one
    device.
    Inside `shard_map` it varies over the mesh axes that `x` varies over.

    >>> lax.full_like(jnp.zeros(3), 7)
    Array([7., 7., 7.], dtype=float32)
    """
    aval = typeof(x)
    if sharding is None:
        given = over_devices(x.sharding) if isinstance(x, ShapeDtypeStruct) else getattr(x, "_sharding", None)
        if shape is None:
            sharding = aval.sharding if given is None and aval.split is not None else given
        elif isinstance(given, SingleDeviceSharding):
            sharding = given
    shape = aval.shape if shape is None else canonical_shape(shape)
    weak = dtype is None and aval.weak_type
    dtype = aval.dtype if dtype is None else dtypes.dtype(dtype)
    if isinstance(dtype, dtypes.ExtendedDType):
        return _placed(_full_of_extended(shape, fill_value, dtype), sharding)
    _check_scalar(fill_value)
    return varying_over(aval.vma, _filled(convert(fill_value, dtype, weak), shape, sharding))


def iota(dtype: Any, size: int) -> Any:
    """`[0, 1, ..., size - 1]`.

    >>> lax.iota(jnp.int32, 4)
    Array([0, 1, 2, 3], dtype=int32)
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int, *, out_sharding=None) -> Any:
    """An array whose elements are their positions along one axis.

    >>> lax.broadcasted_iota(jnp.int32, (2, 3), 1)
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    dtype = dtypes.check_user_dtype_supported(dtype, "broadcasted_iota")
    sharding = explicit_sharding(out_sharding, "broadcasted_iota")
    out = iota_p.bind(dtype=dtype, shape=canonical_shape(shape), dimension=operator.index(dimension), sharding=sharding)
    return with_out_sharding(out, out_sharding, "broadcasted_iota")


def _iota_type(*, dtype, shape, dimension, sharding):
    check_shapelike("iota", "shape", shape)
    check_dtype("iota", dtype, _NUMERIC)
    if not 0 <= dimension < len(shape):
        raise ValueError(f"iota dimension must be between 0 and len(shape), got {dimension=} for {shape=}")
    return ShapedArray(shape, dtype)


def _iota_reference(*, dtype, shape, dimension, sharding):
    positions = np.arange(shape[dimension])
    positions = positions.reshape([-1 if d == dimension else 1 for d in range(len(shape))])
    return np.ascontiguousarray(np.broadcast_to(positions, shape)).astype(dtype)


_NO_OPERANDS = Unsupported("iota has no operands, so there is nothing to differentiate or vectorize")

iota_p = Primitive(
    "iota",
    type_rule=_iota_type,
    reference=_iota_reference,
    lower=Structural(
        lambda r, index, avals, params: r.convert(r.index(index[params["dimension"]]), params["dtype"]),
        counts=lambda params: params["dimension"],
    ),
    jvp=_NO_OPERANDS,
    transpose=_NO_OPERANDS,
    batch=_NO_OPERANDS,
)
