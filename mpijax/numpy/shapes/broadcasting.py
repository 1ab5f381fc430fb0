"""Broadcasting, `where`, and the sizes of arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core.sharding.shardings import SingleDeviceSharding
from mpijax.core.tracing.out_sharding import put, with_out_sharding
from mpijax.core.tracing.requested import over_devices
from mpijax.core.types.axes import canonical_axis
from mpijax.numpy.arguments import (
    as_array,
    canonical_axes,
    canonical_shape,
    check_arraylike,
    ensure_arraylike,
    unwrap,
)
from mpijax.numpy.dtypes.casts import shape_of, zero_like
from mpijax.numpy.dtypes.promotion import promote_dtypes
from mpijax.transforms.jit import jit


def broadcast_to(x: Any, shape: Any) -> Any:
    """`x` broadcast to a shape by NumPy's rules, as lax equations."""
    x = ensure_arraylike("broadcast_to", x)
    shape = canonical_shape(shape)
    have = x.shape
    if have == shape:
        return x
    if len(shape) < len(have):
        raise ValueError(f"Cannot broadcast to shape with fewer dimensions: arr_shape={have} shape={shape}")
    lead = len(shape) - len(have)
    if any(d not in (1, s) for d, s in zip(have, shape[lead:], strict=True)):
        requested = f"{x.dtype.name}[{','.join(map(str, shape))}]"
        raise ValueError(
            f"Incompatible types for broadcasting: input type={x.aval} and requested type={requested}: "
            "counted from the last axis, each axis of the input must have size 1 or the requested size."
        )
    return lax.broadcast_in_dim(x, shape, tuple(range(lead, len(shape))))


def broadcast_together(*args: Any) -> list[Any]:
    """Arrays broadcast to their common shape."""
    shapes = [shape_of(x) for x in args]
    if all(shape == shapes[0] for shape in shapes):
        return list(map(as_array, args))
    shape = lax.broadcast_shapes(*shapes)
    return [broadcast_to(x, shape) for x in args]


@jit
def _where(condition, x, y):
    """Elements of x where the condition holds, else of y, as a separate program. Scalars stay scalars."""
    condition, x, y = ensure_arraylike("where", condition, x, y)
    if condition.dtype != np.bool_:
        condition = lax.ne(condition, zero_like(condition))
    x, y = promote_dtypes(x, y)
    if condition.ndim == 0:
        x, y = broadcast_together(x, y)
    else:
        condition, x, y = broadcast_together(condition, x, y)
    return lax.select(condition, x, y) if math.prod(x.shape) else x


def ndim(a: Any) -> int:
    """Number of axes of an array or scalar; lists are deprecated.

    >>> jnp.ndim(jnp.ones((2, 3))), jnp.ndim(5.0)
    (2, 0)
    """
    if hasattr(a, "ndim"):
        return a.ndim
    check_arraylike("ndim", a, emit_warning=True)
    return np.ndim(unwrap(a))


def shape(a: Any) -> tuple[int, ...]:
    """Shape of an array or scalar; lists are deprecated.

    >>> jnp.shape(jnp.ones((2, 3))), jnp.shape(5.0)
    ((2, 3), ())
    """
    if hasattr(a, "shape"):
        return a.shape
    check_arraylike("shape", a, emit_warning=True)
    return np.shape(unwrap(a))


def size(a: Any, axis: int | Sequence[int] | None = None) -> int:
    """Number of elements of an array or scalar, or the product of its sizes along `axis`.

    >>> jnp.size(jnp.ones((2, 3))), jnp.size(jnp.ones((2, 3)), axis=1)
    (6, 3)
    """
    if axis is None and hasattr(a, "size"):
        return a.size
    if not hasattr(a, "shape"):
        check_arraylike("size", a, emit_warning=True)
    dims = np.shape(unwrap(a)) if not hasattr(a, "shape") else a.shape
    if isinstance(axis, Sequence):
        axis = tuple(canonical_axis(a, len(dims)) for a in axis)
        if len(set(axis)) != len(axis):
            raise ValueError(f"repeated axis: {axis}")
    return math.prod(dims[i] for i in canonical_axes(axis, len(dims)))


def device_sharding(device: Any, out_sharding: Any, name: str) -> Any:
    """The sharding that the `device` or `out_sharding` argument of a creation function names, or None."""
    if device is not None and out_sharding is not None:
        raise ValueError(
            f"Only one of `device` or `out_sharding` can be set in {name}. Got {device=} and {out_sharding=}"
        )
    if not hasattr(out_sharding, "mesh"):
        return device if device is not None else out_sharding

    return over_devices(out_sharding, name)


def place(x: Any, sharding: Any) -> Any:
    """Put an array onto the sharding that `device_sharding` returned; None leaves it unchanged.

    A device has no effect inside of a program that is traced, as in JAX; see `place_inside`.
    """
    if hasattr(sharding, "axes_of"):
        return with_out_sharding(x, sharding, "out_sharding")
    if sharding is None:
        return x
    return put(x, sharding)


def place_inside(x: Any, sharding: Any) -> Any:
    """Like `place`, also onto a device inside of a program that is traced."""
    return place(x, SingleDeviceSharding(sharding) if hasattr(sharding, "device_kind") else sharding)
