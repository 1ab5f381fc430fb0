"""Shared parts of operations that move elements: shapes given by users, and the constructor of these primitives.

PRNG keys: an array of keys of shape S is stored as uint32 of shape S + (2,). References receive that array.
Parameters of an operation refer to S only, so references leave the additional axes unchanged.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mpijax.core.base import errors
from mpijax.core.rules.lowering import Decompose, Structural
from mpijax.core.rules.primitive import Primitive
from mpijax.core.shapes.dimensions import DimExpr, dimension
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.families import ATTACHED, LINEAR
from mpijax.transforms import key_reuse


def canonical_shape(shape: Any) -> tuple[int, ...]:
    """A shape, any iterable of ints, as a tuple; a single int is a shape with one axis. Raises TypeError for others."""
    if type(shape) is tuple and all(type(d) is int for d in shape):
        return shape
    if isinstance(shape, (int, np.integer, DimExpr)):
        return (dimension(shape),)
    try:
        sizes = tuple(shape)
        if not any(isinstance(d, Tracer) for d in sizes):
            return tuple(map(dimension, sizes))
    except TypeError:
        pass
    raise errors.shape_error(shape)


def index_tuple(x: Any) -> tuple[int, ...]:
    """Ints from an int or a sequence of ints."""
    try:
        return (operator.index(x),)
    except TypeError:
        return tuple(operator.index(i) for i in x)


def check_shapelike(fun: str, what: str, dims: Sequence[Any]) -> None:
    """Raise TypeError unless `dims` is a sequence of nonnegative integers."""
    if not isinstance(dims, (tuple, list, np.ndarray)):
        raise TypeError(f"{fun} {what} must be of type tuple/list/ndarray, got {type(dims)}.")
    if not all(isinstance(d, (int, np.integer, DimExpr)) for d in dims):
        raise TypeError(
            f"{fun} {what} must have every element be an integer type, got {tuple(map(type, dims))}."
        )
    if not all(d >= 0 for d in dims):
        raise TypeError(f"{fun} {what} must have every element be nonnegative, got {dims}.")


def shape_of(x: Any) -> tuple[int, ...]:
    return typeof(x).shape


class NumpyInt(int):
    """An int that prints as a NumPy int. JAX's Jaxprs show axes and sizes computed by NumPy in this way."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"np.int64({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)

    def __reduce__(self):
        return NumpyInt, (int(self),)

    def _plain_(self) -> tuple[int]:
        return (int(self),)

    @staticmethod
    def _from_plain_(value: int) -> NumpyInt:
        return NumpyInt(value)


def numpy_ints(values: Iterable[int]) -> tuple[NumpyInt, ...]:
    return tuple(map(NumpyInt, values))


def shifted(dims: Iterable[int]) -> tuple[NumpyInt, ...]:
    """Axis numbers plus one, for a new batch axis at the front."""
    return tuple(NumpyInt(d + 1) for d in dims)


def without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(shape[:axis]) + tuple(shape[axis + 1 :])


def movement(
    name: str,
    *,
    shape: Callable,
    reference: Callable,
    transpose: Callable,
    batch: Callable,
    lower: Structural | Decompose,
    pretty: Callable | None = None,
    key: str | None = None,
    sharding: Callable | None = None,
    sharding_type: Callable | None = None,
    sums: Callable | None = None,
    keys: Any = key_reuse.SAME,
) -> Primitive:
    """An operation of one operand that moves elements: linear, and keeps the dtype.

    Args:
      shape: `(aval, **params) -> shape of the result`; raises for invalid parameters.
      batch: `(axis, operand, dim, **params) -> (out, dim)`.
    """

    def type_rule(operand, **params):
        return ShapedArray(tuple(shape(operand, **params)), operand.dtype, operand.weak_type)

    primitive = Primitive(
        name,
        type_rule=type_rule,
        reference=reference,
        lower=lower,
        sharding=sharding,
        sharding_type=sharding_type,
        sums=sums,
        keys=keys,
        jvp=ATTACHED,
        transpose=transpose,
        batch=lambda axis, args, dims, **params: batch(axis, args[0], dims[0], **params),
        pretty=pretty,
        key=key,
    )
    primitive.jvp = LINEAR.attach(primitive)
    return primitive
