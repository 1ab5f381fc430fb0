"""Vectorization: turns every operation on one example into an operation on a batch of examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import config, provided
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.base.state import state
from mpijax.core.programs.jaxpr import ClosedJaxpr, eval_jaxpr, subjaxprs
from mpijax.core.sharding.context import in_context
from mpijax.core.sharding.split import Split
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.trace import Trace, named_axes
from mpijax.core.tracing.tracer import Tracer, check_leaks
from mpijax.core.types.abstract import MappingSpec
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.effects import NamedAxisEffect, everywhere
from mpijax.core.types.typeof import typeof
from mpijax.transforms.zeros import zeros


@dataclass(frozen=True)
class AxisData:
    """The batch axis: its name (None if unnamed) and size.

    spmd: mesh axes that the batch axis is split over wherever the function specifies a sharding. split: the split of
    the batch axis over Explicit mesh axes in the types of batches, if it is split.
    """

    name: Any
    size: int
    spmd: tuple[Any, ...] = ()
    split: Split | None = None

    @property
    def along(self) -> tuple[Any, ...]:
        """The mesh axes that the batch axis is split over."""
        return self.spmd or (() if self.split is None else self.split.axes[0])

    def of_batch(self, sharding: Any, dim: int | None) -> Any:
        """The sharding over Explicit mesh axes of a batch along axis `dim`, from that of one example (or None).
        """
        if sharding is None or dim is None:
            return sharding
        parts = list(sharding.spec.partitions)
        parts += [None] * (dim - len(parts))
        explicit = sharding.mesh.explicit_axes
        parts.insert(dim, tuple(a for a in self.along if a in explicit))
        return sharding.update(spec=sharding.spec.update(parts))

    def in_context(self) -> AxisData:
        """This axis, with only those mesh axes in its split that have type Explicit in context."""
        split = in_context(self.split)
        return self if split is self.split else replace(self, split=split)


class BatchTracer(Tracer):
    """One example of a batch: `batched` is the batch, with the examples along axis `dim`."""

    __slots__ = ("batched", "dim", "_aval")
    _trace: BatchTrace

    def __init__(self, trace: BatchTrace, batched: Any, dim: int):
        self._trace = trace
        self.batched = batched
        self.dim = dim
        self._aval = typeof(batched).without_axis(dim, trace.axis.size)

    aval = property(lambda self: self._aval)
    # JAX's names, which libraries read.
    val = property(lambda self: self.batched)
    batch_dim = property(lambda self: self.dim)

    def _origin_msg(self) -> str:
        return "" if not isinstance(self.batched, Tracer) else self.batched._origin_msg()

    def __repr__(self) -> str:  # prints JAX's class name
        whole = typeof(self.batched).str_short(short_dtypes=False)
        return f"VmapTracer(aval={self._aval.str_short(short_dtypes=False)}, batched={whole})"

    __str__ = __repr__


class BatchTrace(Trace):
    """Runs every operation on whole batches.

    `tag` identifies the `vmap` of the trace. A user's rule runs in a new trace with the same tag, and may close over
    examples of the trace that existed when the rule was created.
    """

    __slots__ = ("axis", "tag")
    along = property(lambda self: self.axis.along)

    def __init__(self, parent: Trace, axis: AxisData, tag: object = None):
        super().__init__(parent)
        self.axis = axis
        self.tag = object() if tag is None else tag

    def unpack(self, x: Any) -> tuple[Any, int | None]:
        if type(x) is BatchTracer and x._trace.tag is self.tag:
            return x.batched, x.dim
        if hasattr(type(x), "__jax_array__") and not typeof(x).is_high:
            return self.unpack(x.__jax_array__())
        return x, None

    def wrap(self, x: Any, dim: int | None) -> Any:
        return x if dim is None else BatchTracer(self, x, dim)

    def process_primitive(self, primitive, args, params):
        pairs = [self.unpack(x) for x in args]
        values = [v for v, _ in pairs]
        dims = [d for _, d in pairs]
        saved = state.trace
        state.trace = self.parent
        try:
            if all(d is None for d in dims) and not self._names_axis(params) and not everywhere(primitive, params):
                return primitive.bind(*values, **params)
            out, dim = primitive.batch(self.axis.in_context(), values, dims, **params)
        finally:
            state.trace = saved
        if primitive.multiple_results:
            return [self.wrap(o, d) for o, d in zip(out, dim, strict=True)]
        return self.wrap(out, dim)

    def _names_axis(self, params) -> bool:
        """Whether a collective communicates over the batch axis."""
        if self.axis.name is None:
            return False
        name = self.axis.name
        axes = params.get("axes", params.get("axis_name", ()))
        if name == axes or (isinstance(axes, (tuple, list)) and name in axes):
            return True
        effect = NamedAxisEffect(name)
        return any(effect in sub.effects for sub in subjaxprs(params))

    def write_ref(self, ref, value):
        raise ValueError(
            f"performing a set/swap operation with vmapped value on an unbatched array reference of type {ref.aval}. "
            "Move the array reference to be an argument to the vmapped function?"
        )

    def process_custom_call(self, call, args):
        pairs = [self.unpack(x) for x in args]
        saved = state.trace
        state.trace = self.parent
        try:
            outs, dims = call.bind_batched(self, [v for v, _ in pairs], [d for _, d in pairs])
        finally:
            state.trace = saved
        return [self.wrap(o, d) for o, d in zip(outs, dims, strict=True)]


def batch_flat(fun: Callable, axis: AxisData, args: Sequence[Any], dims: Sequence[int | None], tag: object = None):
    """Run `fun` of flat arguments on batches. Returns the results and their batch axes (None: not batched)."""
    parent = state.trace
    trace = BatchTrace(parent, axis, tag)
    wrapped = [trace.wrap(x, d) for x, d in zip(args, dims, strict=True)]
    scope = named_axes({} if axis.name is None else {axis.name: axis.size})
    with scope:
        state.trace = trace
        try:
            outs = fun(*wrapped)
        finally:
            state.trace = parent
    pairs = [trace.unpack(o) for o in outs]
    if tag is None and config.checking_leaks():
        del outs, wrapped
        check_leaks(trace, None)
    return [v for v, _ in pairs], [d for _, d in pairs]


def move_dim(x: Any, source: int, target: int) -> Any:
    """Transpose so that axis `source` becomes axis `target`.

    >>> mpijax.interpreters.batching.moveaxis(jnp.zeros((2, 3, 4)), 0, 2).shape
    (3, 4, 2)
    """
    aval = typeof(x)
    if aval.is_high:
        return _known_to_be_at(x, source, target)
    source, target = source % aval.ndim, target % aval.ndim
    if source == target:
        return x
    order = [i for i in range(aval.ndim) if i != source]
    order.insert(target, source)
    return provided.basic.transposed(x, order)


def leading(aval: Any) -> Any:
    """Where batches of values of a type have their examples if they lead: axis 0 of arrays."""
    return aval.leading_axis_spec()


def _known_to_be_at(x: Any, source: Any, target: Any) -> Any:
    """A batch of values of a type of a library, whose examples can be moved nowhere. 0: as `leading` says."""
    aval = typeof(x)
    if source == target or (target == 0 and source == leading(aval.dec_rank(None, source))):
        return x
    raise NotImplementedError(f"vmap: a value of type {aval} is mapped along {source}, but the result needs {target}.")


def broadcast_dim(x: Any, size: int, target: int, along: Split | None = None, by_numpy: bool = False) -> Any:
    """Repeat `x` along a new axis at position `target`. along: the split of the new axis over mesh axes, if any.

    by_numpy: whether the kept axes print as NumPy integers, as in some of JAX's rules.
    """
    wanted = typeof(x).with_axis(target, size, along)
    if wanted.has_no_tangent:
        return np.zeros(wanted.shape, dtypes.float0)
    kept = np.delete(np.arange(wanted.ndim), target)
    places = tuple(kept) if by_numpy else tuple(kept.tolist())
    sharding = None if along is None else wanted.sharding
    return provided.basic.broadcast(x, wanted.shape, places, sharding)


def same_for_all(x: Any) -> Any:
    """A value that is equal for all examples of the current `vmap`, as one example.

    Data from other ranks is batched even if all examples on this rank are equal. With no examples the result is zeros.
    """
    trace = state.trace
    if not isinstance(trace, BatchTrace):
        return x
    batch, dim = trace.unpack(x)
    if dim is None:
        return batch
    state.trace = trace.parent
    try:
        shape = typeof(batch).shape
        if shape[dim] == 0:
            return zeros(typeof(batch).without_axis(dim, shape[dim]))
        return provided.basic.first_along(batch, dim, shape)
    finally:
        state.trace = trace


def batch_at(x: Any, dim: int | None, target: int, axis: AxisData, by_numpy: bool = False) -> Any:
    """`x` with its batch axis at `target`; repeats `x` if it has none. `by_numpy` as for `broadcast_dim`."""
    if isinstance(target, MappingSpec) and not typeof(x).is_high:
        raise ValueError(f"vmap: the axis of an array of type {typeof(x)} must be an int, got {target}.")
    if dim is None and typeof(x).is_high:
        raise NotImplementedError(
            f"vmap: a value of type {typeof(x)} is not mapped, but others that it is used with are, and a value of "
            "this type cannot be repeated. Compute it from mapped values."
        )
    return broadcast_dim(x, axis.size, target, axis.split, by_numpy) if dim is None else move_dim(x, dim, target)


@memo_on_jaxpr
def batch_jaxpr(closed: ClosedJaxpr, axis: AxisData, in_batched: tuple[bool, ...], force: bool | tuple[bool, ...]):
    """A Jaxpr over batches, batch axes first.

    `force` says which results to return batched even if they do not depend on the example (True: all).
    Returns the Jaxpr and a flag for each result: whether it is batched.
    """
    out_batched: list[bool] = []

    def fun(*args):
        outs, out_dims = batch_flat(lambda *xs: eval_jaxpr(closed.jaxpr, closed.consts, *xs), axis, args, dims)
        forced = [force] * len(outs) if isinstance(force, bool) else force
        out_batched.extend(d is not None or f for d, f in zip(out_dims, forced, strict=True))
        return [batch_at(o, d, 0, axis) if b else o for o, d, b in zip(outs, out_dims, out_batched, strict=True)]

    dims = [leading(a) if b else None for a, b in zip(closed.in_avals, in_batched, strict=True)]
    return trace_to_closed_jaxpr(fun, _with_axes(closed, axis, dims), closed.jaxpr.debug_info), out_batched


@memo_on_jaxpr
def batch_jaxpr_in_place(
    closed: ClosedJaxpr, axis: AxisData, in_dims: tuple[int | None, ...]
) -> tuple[ClosedJaxpr, list[int | None]]:
    """A Jaxpr over batches with batch axes at `in_dims`, and the batch axes of its results. No axis is moved."""
    out_dims: list[int | None] = []

    def fun(*args):
        outs, dims = batch_flat(lambda *xs: eval_jaxpr(closed.jaxpr, closed.consts, *xs), axis, args, in_dims)
        out_dims.extend(dims)
        return outs

    return trace_to_closed_jaxpr(fun, _with_axes(closed, axis, in_dims), closed.jaxpr.debug_info), out_dims


@memo_on_jaxpr
def batch_jaxpr_axes(
    closed: ClosedJaxpr, axis: AxisData, in_dims: tuple[int | None, ...], out_dims: tuple[int | None, ...]
) -> ClosedJaxpr:
    """A Jaxpr over batches with batch axes at `in_dims` and `out_dims`.

    None means no batch axis. A result without one must be equal for all examples.
    """

    def fun(*args):
        outs, dims = batch_flat(lambda *xs: eval_jaxpr(closed.jaxpr, closed.consts, *xs), axis, args, in_dims)
        places = zip(outs, dims, out_dims, strict=True)
        return [o if to is None else batch_at(o, d, to, axis) for o, d, to in places]

    return trace_to_closed_jaxpr(fun, _with_axes(closed, axis, in_dims), closed.jaxpr.debug_info)


def _with_axes(closed: ClosedJaxpr, axis: AxisData, dims: Sequence[int | None]) -> list[ShapedArray]:
    """The types of a Jaxpr's arguments; batched arguments have one more axis."""
    return [
        a if d is None else a.with_axis(d, axis.size, axis.split)
        for a, d in zip(closed.in_avals, dims, strict=True)
    ]
