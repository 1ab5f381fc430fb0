"""Reductions along axes: sum, product, maximum, minimum, logic."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import config
from mpijax.core.rules import sum_types
from mpijax.core.rules.lowering import Combiner, Reduction
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.out_sharding import explicit_sharding, with_out_sharding
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops import same_bits
from mpijax.ops.elementwise.binary import div, mul
from mpijax.ops.elementwise.compare import eq
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.families import CONSTANT, NOT_LINEAR, check_dtype
from mpijax.ops.rules import broadcast_to, complement, const_like
from mpijax.ops.shapes.reshape import reshape_p, reshape_permuted_p
from mpijax.transforms.jvp import jvp_flat
from mpijax.transforms.zeros import Zero

# ---------------------------------------------------------------- types and batching


def _check_axes(x: ShapedArray, axes: tuple[int, ...]) -> None:
    if not isinstance(axes, (tuple, list)):
        raise TypeError(f"reduction axes must be a tuple or list; got {axes=}")
    if len(axes) != len(set(axes)):
        raise ValueError(f"duplicate value in 'axes' of reduction: {axes}")
    if not all(0 <= a < x.ndim for a in axes):
        raise ValueError(f"reduction axes {axes} contains out-of-bounds indices for {x.str_short(False)}.")


def reduced_shape(x: ShapedArray, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(d for i, d in enumerate(x.shape) if i not in axes)


def _reduction_type(name: str, kinds: Sequence[type] | None) -> Callable:
    def type_rule(x: ShapedArray, *, axes, out_sharding=None) -> ShapedArray:
        if kinds is not None:
            check_dtype(name, x.dtype, kinds)
        _check_axes(x, axes)
        return ShapedArray(reduced_shape(x, axes), x.dtype, x.weak_type)

    return type_rule


def _logical_type(x: ShapedArray, *, axes) -> ShapedArray:
    if not (x.dtype == np.bool_ or dtypes.issubdtype(x.dtype, np.integer)):
        raise TypeError(f"logical reduction requires operand dtype bool or int, got {x.dtype}.")
    _check_axes(x, axes)
    return ShapedArray(reduced_shape(x, axes), x.dtype, x.weak_type)


def batched_reduction(primitive: Primitive) -> Callable:
    def batch(axis, args, dims, *, axes, **params):
        (x,), (dim,) = args, dims
        if dim is None:
            return primitive.bind(x, axes=axes, **params), None
        shifted = tuple(np.where(np.less(axes, dim), axes, np.add(axes, 1)))
        out_dim = dim - sum(1 for a in axes if a < dim)
        if "out_sharding" in params:
            params["out_sharding"] = axis.of_batch(params["out_sharding"], out_dim)
        return primitive.bind(x, axes=shifted, **params), out_dim

    return batch


def _numpy_reduce(ufunc: np.ufunc) -> Callable:
    """A ufunc's reduction; floats narrower than float32 accumulate in float32."""

    def reference(x, *, axes, out_sharding=None):
        accumulated = x
        if dtypes.issubdtype(x.dtype, np.floating) and x.dtype.itemsize < 4:
            accumulated = x.astype(np.float32)
        initial = None
        if ufunc in (np.maximum, np.minimum) and x.size == 0:
            initial = extreme(x.dtype, largest=ufunc is np.minimum)
        with np.errstate(all="ignore"):
            kwargs = {} if initial is None else {"initial": initial}
            out = ufunc.reduce(accumulated, axis=tuple(map(int, axes)), dtype=accumulated.dtype, **kwargs)
        return np.asarray(out).astype(x.dtype, copy=False)

    return reference


def extreme(dtype: np.dtype, largest: bool) -> Any:
    """The largest or smallest value of a dtype."""
    if dtype == np.bool_:
        return np.bool_(largest)
    if dtypes.issubdtype(dtype, np.integer):
        return dtype.type(dtypes.iinfo(dtype).max if largest else dtypes.iinfo(dtype).min)
    return dtype.type(np.inf if largest else -np.inf)


def _reduction(
    name: str, op: Combiner, ufunc: np.ufunc, type_rule: Callable, transpose: Callable = NOT_LINEAR
) -> Primitive:
    primitive = Primitive(
        name,
        type_rule=type_rule,
        reference=_numpy_reduce(ufunc),
        lower=Reduction(op),
        jvp=NOT_LINEAR,
        transpose=transpose,
        batch=NOT_LINEAR,
    )
    primitive.batch = batched_reduction(primitive)
    primitive.jvp = CONSTANT.attach(primitive)
    return primitive


def _axes(operand: Any, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(operator.index(a) for a in axes)


# ---------------------------------------------------------------- sum


def reduce_sum(operand: Any, axes: Sequence[int], *, out_sharding=None) -> Any:
    """Sum over `axes`, which are removed. Numbers only; no axis may be negative.

    The result has the operand's dtype and its other axes. TypeError for dtypes without the operation, ValueError for
    invalid axes.

    >>> lax.reduce_sum(jnp.array([[1, 2], [4, 3]]), (1,))
    Array([3, 7], dtype=int32)
    """
    sharding = explicit_sharding(out_sharding, "reduce_sum")
    out = reduce_sum_p.bind(operand, axes=_axes(operand, axes), out_sharding=sharding)
    return with_out_sharding(out, out_sharding, "reduce_sum")


def _sum_jvp(primals, tangents, **params):
    out = reduce_sum_p.bind(*primals, **params)
    (t,) = tangents
    return out, Zero.of_primal(out) if type(t) is Zero else reduce_sum_p.bind(t, **params)


def _sum_transpose(ct, x, *, axes, out_sharding):
    shape = x.aval.shape
    kept = complement(len(shape), axes)
    if not axes:
        return [ct]
    sharding = x.aval.to_cotangent_aval().said_sharding
    return [registry["broadcast_in_dim"].bind(ct, shape=shape, broadcast_dimensions=kept, sharding=sharding)]


_number_sum_type = _reduction_type("reduce_sum", (np.number,))


def _sum_type(x: ShapedArray, *, axes, out_sharding=None) -> ShapedArray:
    out = _number_sum_type(x, axes=axes)
    if x.dtype.name in ("float16", "bfloat16") and not config.values.jax_allow_f16_reductions and x.size > out.size:
        raise ValueError(
            f"reduce_sum on operand {x.str_short(True)} is not allowed when jax_allow_f16_reductions=False. Convert "
            "it to float32 first."
        )
    return out


reduce_sum_p = _reduction("reduce_sum", Combiner.ADD, np.add, _sum_type, transpose=_sum_transpose)
reduce_sum_p.jvp = _sum_jvp
reduce_sum_p.sums = sum_types.summed
reduce_sum_p.same_bits = same_bits.reduce_sum

# ---------------------------------------------------------------- product


def reduce_prod(operand: Any, axes: Sequence[int]) -> Any:
    """Product over `axes`, which are removed.

    The result has the operand's dtype and its other axes. TypeError for dtypes without the operation, ValueError for
    invalid axes.

    >>> lax.reduce_prod(jnp.array([[1, 2], [4, 3]]), (1,))
    Array([ 2, 12], dtype=int32)
    """
    return reduce_prod_p.bind(operand, axes=_axes(operand, axes))


def _slice(x, start: int, stop: int, step: int = 1, axis: int = 0):
    """Elements start to stop of an axis."""
    shape = typeof(x).shape
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], limits[axis], strides[axis] = start, stop, step
    return registry["slice"].bind(
        x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=tuple(strides)
    )


def lead(x, axes: tuple[int, ...]):
    """Merges `axes` into one, which becomes the first axis."""
    shape = typeof(x).shape
    kept = [int(i) for i in complement(len(shape), axes)]
    order = (*map(int, axes), *kept)
    dimensions = None if order == tuple(range(len(shape))) else order
    if dimensions is None and len(axes) == 1:
        return x
    sizes = (math.prod(shape[a] for a in axes), *(shape[i] for i in kept))
    primitive = reshape_p if dimensions is None else reshape_permuted_p
    return primitive.bind(x, new_sizes=sizes, dimensions=dimensions, sharding=None)


def by_halves(combine: Callable, operands: list, units: list, axes: tuple[int, ...]) -> list:
    """Combine the first half of `axes` with the second half until one element is left.

    combine: `(values, values) -> values` on lists of arrays, one for each operand.
    units: for each operand the value that pads odd lengths.
    """
    operands = [lead(x, axes) for x in operands]
    n, *rest = typeof(operands[0]).shape
    if n == 0:
        return [broadcast_to(unit, tuple(rest)) for unit in units]
    while n > 1:
        half = (n + 1) // 2
        config = ((0, 2 * half - n, 0),) + ((0, 0, 0),) * len(rest)
        low, high = [_slice(x, 0, half) for x in operands], [_slice(x, half, n) for x in operands]
        if n % 2:
            high = [registry["pad"].bind(x, u, padding_config=config) for x, u in zip(high, units, strict=True)]
        operands, n = combine(low, high), half
    return [registry["squeeze"].bind(x, dimensions=(0,)) for x in operands]


def by_neighbours(combine: Callable, operands: list, axes: tuple[int, ...]) -> list:
    """Combine neighbours along nonempty `axes` in row-major order until one element is left."""
    for axis in sorted(axes, reverse=True):
        n = typeof(operands[0]).shape[axis]
        tail: list | None = None
        while n > 1:
            if n % 2:
                last = [_slice(x, n - 1, n, axis=axis) for x in operands]
                tail = last if tail is None else combine(last, tail)
            even = [_slice(x, 0, n - 1, 2, axis) for x in operands]
            operands = combine(even, [_slice(x, 1, n, 2, axis) for x in operands])
            n //= 2
        operands = operands if tail is None else combine(operands, tail)
        operands = [registry["squeeze"].bind(x, dimensions=(axis,)) for x in operands]
    return operands


def _prod_jvp(primals, tangents, *, axes):
    """Differentiates a tree of products, so that the derivative never divides by an element."""
    product = lambda xs, ys: [mul(xs[0], ys[0])]
    fold = lambda x: by_halves(product, [x], [const_like(x, 1)], tuple(axes))
    (out,), (tangent,) = jvp_flat(fold, primals, tangents)
    return out, tangent


def _prod_by_halves(x, *, axes):
    if not same_bits.adds_floats(x):
        return None
    return by_halves(lambda xs, ys: [mul(xs[0], ys[0])], [x], [const_like(x, 1)], tuple(axes))[0]


reduce_prod_p = _reduction("reduce_prod", Combiner.MUL, np.multiply, _reduction_type("reduce_prod", (np.number,)))
reduce_prod_p.jvp = _prod_jvp
reduce_prod_p.same_bits = _prod_by_halves

# ---------------------------------------------------------------- maximum and minimum


def reduce_max(operand: Any, axes: Sequence[int], *, out_sharding=None) -> Any:
    """Maximum over `axes`, which are removed. NaN if there is a NaN; -inf or the smallest integer for empty axes.

    The result has the operand's dtype and its other axes. TypeError for dtypes without the operation, ValueError for
    invalid axes.

    >>> lax.reduce_max(jnp.array([[1, 2], [4, 3]]), (1,))
    Array([2, 4], dtype=int32)
    """
    return with_out_sharding(reduce_max_p.bind(operand, axes=_axes(operand, axes)), out_sharding, "reduce_max")


def reduce_min(operand: Any, axes: Sequence[int], *, out_sharding=None) -> Any:
    """Minimum over `axes`, which are removed. NaN if there is a NaN; inf or the largest integer for empty axes.

    The result has the operand's dtype and its other axes. TypeError for dtypes without the operation, ValueError for
    invalid axes.

    >>> lax.reduce_min(jnp.array([[1, 2], [4, 3]]), (1,))
    Array([1, 3], dtype=int32)
    """
    return with_out_sharding(reduce_min_p.bind(operand, axes=_axes(operand, axes)), out_sharding, "reduce_min")


def _extremum_jvp(primitive: Primitive) -> Callable:
    """The mean of the tangents of all elements that equal the result."""

    def jvp(primals, tangents, *, axes):
        (x,), (t,) = primals, tangents
        out = primitive.bind(x, axes=axes)
        if type(t) is Zero:
            return out, Zero.of_primal(out)
        shape = tuple(1 if i in axes else d for i, d in enumerate(typeof(x).shape))
        spread = out
        if shape != typeof(out).shape:
            spread = registry["reshape"].bind(out, new_sizes=shape, dimensions=None, sharding=None)
        hits = convert_element_type(eq(x, spread), typeof(t).dtype)
        count = reduce_sum(hits, axes)
        return out, div(reduce_sum(mul(t, hits), axes), count)

    return jvp


reduce_max_p = _reduction("reduce_max", Combiner.MAX, np.maximum, _reduction_type("reduce_max", None))
reduce_min_p = _reduction("reduce_min", Combiner.MIN, np.minimum, _reduction_type("reduce_min", None))
for _primitive in (reduce_max_p, reduce_min_p):
    _primitive.jvp = _extremum_jvp(_primitive)

# ---------------------------------------------------------------- logic


def reduce_and(operand: Any, axes: Sequence[int]) -> Any:
    """Bitwise and over `axes`, which are removed; for bool: whether all are True.

    The result has the operand's dtype and its other axes. TypeError for dtypes without the operation, ValueError for
    invalid axes.

    >>> lax.reduce_and(jnp.array([[True, False], [True, True]]), (1,))
    Array([False,  True], dtype=bool)
    """
    return reduce_and_p.bind(operand, axes=_axes(operand, axes))


def reduce_or(operand: Any, axes: Sequence[int]) -> Any:
    """Bitwise or over `axes`, which are removed; for bool: whether any is True.

    The result has the operand's dtype and its other axes. TypeError for dtypes without the operation, ValueError for
    invalid axes.

    >>> lax.reduce_or(jnp.array([[True, False], [False, False]]), (1,))
    Array([ True, False], dtype=bool)
    """
    return reduce_or_p.bind(operand, axes=_axes(operand, axes))


def reduce_xor(operand: Any, axes: Sequence[int]) -> Any:
    """Bitwise exclusive or over `axes`, which are removed.

    The result has the operand's dtype and its other axes. TypeError for dtypes without the operation, ValueError for
    invalid axes.

    >>> lax.reduce_xor(jnp.array([5, 3]), (0,))
    Array(6, dtype=int32)
    """
    return reduce_xor_p.bind(operand, axes=_axes(operand, axes))


reduce_and_p = _reduction("reduce_and", Combiner.AND, np.bitwise_and, _logical_type)
reduce_or_p = _reduction("reduce_or", Combiner.OR, np.bitwise_or, _logical_type)
reduce_xor_p = _reduction("reduce_xor", Combiner.XOR, np.bitwise_xor, _logical_type)
