"""``mpijax.interpreters.batching``: batching rules of primitives.

    primitive_batchers[p] = rule         rule(args, dims, **params) -> (result, dim)
    fancy_primitive_batchers[p] = rule   rule(axis, args, dims, **params) -> (result, dim); axis has `name` and `size`
    axis_primitive_batchers[p] = rule    rule(size, name, None, args, dims, **params) -> (result, dim)

`args` and `dims` are tuples. `dims` has the batch axis of each argument (None: not batched), `dim` is the batch axis of
the result. With several results both are lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax import missing as _missing
from mpijax.core.rules.primitive import Primitive
from mpijax.core.types.typeof import typeof
from mpijax.extend.rules import RuleTable
from mpijax.ops.rules import at_front as bdim_at_front
from mpijax.ops.rules import expand_back
from mpijax.ops.rules import repeat_at as _repeat_at
from mpijax.transforms.batching import AxisData, move_dim
from mpijax.transforms.vmappable import is_vmappable, register_vmappable, unregister_vmappable

__all__ = [
    "axis_primitive_batchers",
    "bdim_at_front",
    "broadcast",
    "defbroadcasting",
    "defreducer",
    "defvectorized",
    "fancy_primitive_batchers",
    "is_vmappable",
    "moveaxis",
    "not_mapped",
    "primitive_batchers",
    "register_vmappable",
    "unregister_vmappable",
]

not_mapped = None
moveaxis = move_dim


def _without_axis(rule: Callable) -> Callable:
    return lambda axis, args, dims, **params: rule(tuple(args), tuple(dims), **params)


def _of_tuples(rule: Callable) -> Callable:
    return lambda axis, args, dims, **params: rule(axis, tuple(args), tuple(dims), **params)


def _with_axis(rule: Callable) -> Callable:
    def call(args, dims, **params):
        size = next(typeof(x).shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        return rule(AxisData(None, size), args, dims, **params)

    return call


def _with_size_and_name(rule: Callable) -> Callable:
    return lambda axis, args, dims, **params: rule(axis.size, axis.name, None, tuple(args), tuple(dims), **params)


def _with_record(rule: Callable) -> Callable:
    return lambda size, name, _trace_type, args, dims, **params: rule(AxisData(name, size), args, dims, **params)


primitive_batchers = RuleTable("batch", _without_axis, _with_axis)
fancy_primitive_batchers = RuleTable("batch", _of_tuples)
axis_primitive_batchers = RuleTable("batch", _with_size_and_name, _with_record)


def broadcast(x: Any, sz: int, axis: int) -> Any:
    """x repeated along a new axis.

    >>> mpijax.interpreters.batching.broadcast(jnp.array([1, 2]), 3, 1)
    Array([[1, 1, 1],
           [2, 2, 2]], dtype=int32)
    """
    return _repeat_at(x, axis, sz)


def defvectorized(prim: Primitive) -> None:
    """Declare that a primitive of one operand, or of operands of equal shape, works on each element separately.

    >>> half_p = mpijax.extend.core.Primitive("half_vectorized")
    >>> implementation, types = half_p.def_impl(lambda x: x / 2), half_p.def_abstract_eval(lambda x: x)
    >>> mpijax.interpreters.batching.defvectorized(half_p)
    >>> mpijax.vmap(half_p.bind)(jnp.arange(3.0))
    Array([0. , 0.5, 1. ], dtype=float32)
    """

    def rule(args, dims, **params):
        if len(set(dims)) > 1:
            raise NotImplementedError(
                f"defvectorized: the operands of {prim} are mapped along different axes, {tuple(dims)}. Use "
                "defbroadcasting."
            )
        return prim.bind(*args, **params), dims[0]

    primitive_batchers[prim] = rule


def defbroadcasting(prim: Primitive) -> None:
    """Declare that a primitive works elementwise, and broadcasts operands with axes of size 1 and scalars.

    >>> plus_p = mpijax.extend.core.Primitive("plus")
    >>> implementation, types = plus_p.def_impl(lambda x, y: x + y), plus_p.def_abstract_eval(lambda x, y: x)
    >>> mpijax.interpreters.batching.defbroadcasting(plus_p)
    >>> mpijax.vmap(plus_p.bind, in_axes=(0, None))(jnp.arange(3.0), jnp.float32(10))
    Array([10., 11., 12.], dtype=float32)
    """

    def rule(args, dims, **params):
        if len({(typeof(x).shape, d) for x, d in zip(args, dims, strict=True) if typeof(x).ndim}) == 1:
            dim = next(d for d in dims if d is not None)
        else:
            args = [bdim_at_front(x, d, 1) if typeof(x).ndim else x for x, d in zip(args, dims, strict=True)]
            ndim = max(typeof(x).ndim for x in args)
            args = [x if d is None else expand_back(x, ndim) for x, d in zip(args, dims, strict=True)]
            dim = 0
        out = prim.bind(*args, **params)
        return out, [dim] * len(out) if prim.multiple_results else dim

    primitive_batchers[prim] = rule


def defreducer(prim: Primitive) -> None:
    """Declare that a primitive of one operand removes the axes in its parameter `axes`.

    >>> total_p = mpijax.extend.core.Primitive("total")
    >>> implementation = total_p.def_impl(lambda x, *, axes: lax.reduce_sum(x, axes))
    >>> types = total_p.def_abstract_eval(lambda x, *, axes: mpijax.core.ShapedArray((), x.dtype))
    >>> mpijax.interpreters.batching.defreducer(total_p)
    >>> mpijax.vmap(lambda x: total_p.bind(x, axes=(0,)))(jnp.arange(6.0).reshape(2, 3))
    Array([ 3., 12.], dtype=float32)
    """

    def rule(args, dims, *, axes, **params):
        (x,), (dim,) = args, dims
        moved = tuple(a + (a >= dim) for a in axes)
        return prim.bind(x, axes=moved, **params), dim - sum(a < dim for a in moved)

    primitive_batchers[prim] = rule


def __getattr__(name: str):
    raise _missing.error(__name__, name)
