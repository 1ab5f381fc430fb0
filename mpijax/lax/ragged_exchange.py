"""Exchanges of ragged arrays: consecutive groups of rows whose sizes are values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.tracing.trace import axis_size, named_axes
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives import all_gather, axis_index
from mpijax.ops.collectives.scope import effects, names_of, varying, vma_with
from mpijax.ops.elementwise.binary import add, max, min, sub
from mpijax.ops.elementwise.bitwise import bitwise_and
from mpijax.ops.elementwise.compare import ge, lt
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.elementwise.select import select
from mpijax.ops.indexing.dynamic import dynamic_index_in_dim
from mpijax.ops.indexing.gather import index_take
from mpijax.ops.indexing.slicing import index_in_dim
from mpijax.ops.rules import is_linear
from mpijax.ops.shapes.creation import broadcasted_iota
from mpijax.ops.shapes.reshape import broadcast_in_dim
from mpijax.transforms.batching import batch_flat
from mpijax.transforms.transpose import backward_pass
from mpijax.transforms.zeros import Zero, instantiate


def ragged_all_to_all(
    operand: Any,
    output: Any,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: Any,
    axis_index_groups: Any = None,
) -> Any:
    """Sends slices of rows of `operand` to the shards, to positions in `output` that the sender chooses.

    Slice i, `operand[input_offsets[i]:][:send_sizes[i]]`, is written by shard `i // (N // size)` at its row
    `output_offsets[i]`, where N is the length of the four integer vectors. All other rows are those of `output`.

    Sizes are values, so no message can be shorter than the operand: communicates an allgather of `operand` and of the
    vectors. If sizes are known during tracing, `mpijax.mpi.alltoallv` sends only the slices.

    Args:
      operand: (m, ...).
      output: (n, ...), of the same dtype and further axes.
      recv_sizes: the sizes of received slices; not read, because the senders' `send_sizes` determine them.

    Raises:
      ValueError: if shapes or dtypes do not match.

    >>> mesh, all_rows = mpijax.make_mesh((1,), ("x",)), mpijax.P("x")
    >>> move = lambda rows: lax.ragged_all_to_all(
    ...     rows, jnp.zeros(4), *jnp.array([[1], [2], [0], [2]]), axis_name="x")
    >>> mpijax.shard_map(move, mesh=mesh, in_specs=all_rows, out_specs=all_rows)(jnp.array([5.0, 6.0, 7.0]))
    Array([6., 7., 0., 0.], dtype=float32)
    """
    names = names_of(axis_name)
    groups = None if axis_index_groups is None else tuple(map(tuple, axis_index_groups))
    args = (operand, output, input_offsets, send_sizes, output_offsets, recv_sizes)
    sizes = tuple((n, axis_size(n)) for n in names)
    _check_exchange(typeof(operand), typeof(output), [typeof(v) for v in args[2:]], _ranks(groups, sizes))
    args = tuple(varying(x, names) for x in args)
    return ragged_all_to_all_p.bind(*args, axis_name=names, axis_index_groups=groups, axis_sizes=sizes)


def _ranks(axis_index_groups: Any, axis_sizes: tuple) -> int:
    """The number of shards that exchange."""
    return math.prod(n for _, n in axis_sizes) if axis_index_groups is None else len(axis_index_groups[0])


def _exchanged(operand, output, input_offsets, send_sizes, output_offsets, _recv_sizes, *, axis_name, axis_index_groups,
               axis_sizes):  # fmt: skip
    """Gathers all rows and selects those for this shard."""
    size = _ranks(axis_index_groups, axis_sizes)
    count = typeof(input_offsets).shape[0]
    gather = lambda x: all_gather(x, axis_name, axis_index_groups=axis_index_groups)
    with named_axes(dict(axis_sizes)):
        rows, starts, sizes, targets = map(gather, (operand, input_offsets, send_sizes, output_offsets))
        me = _position(axis_name, axis_index_groups)
    result = output
    for source in range(size):
        for part in range(count // size):
            slot = add(convert_element_type(me, np.int32) * np.int32(count // size), np.int32(part))
            start, length, target = (
                dynamic_index_in_dim(index_in_dim(v, source, keepdims=False), slot, keepdims=False)
                for v in (starts, sizes, targets)
            )
            result = _written(result, index_in_dim(rows, source, keepdims=False), start, length, target)
    return result


def _position(axis_name: Any, groups: Any) -> Any:
    """This shard's position among the shards it exchanges with."""
    if groups is None:
        return axis_index(axis_name)
    places = np.zeros(axis_size(axis_name), np.int32)
    for group in groups:
        places[list(group)] = np.arange(len(group))
    return dynamic_index_in_dim(places, axis_index(axis_name), keepdims=False)


def _check_exchange(operand: Any, output: Any, vectors: list[Any], size: int) -> int:
    """The length of the vectors. Raises ValueError for operands that do not match."""
    if operand.dtype != output.dtype or operand.shape[1:] != output.shape[1:]:
        raise ValueError(
            "ragged_all_to_all: operand and output must have the same dtype and the same axes after the first, got "
            f"{operand.str_short(True)} and {output.str_short(True)}."
        )
    shapes = {v.shape for v in vectors}
    if len(shapes) != 1 or any(v.ndim != 1 or not dtypes.issubdtype(v.dtype, np.integer) for v in vectors):
        listed = ", ".join(v.str_short(True) for v in vectors)
        raise ValueError(
            "ragged_all_to_all: input_offsets, send_sizes, output_offsets and recv_sizes must be integer vectors of "
            f"the same length, got {listed}."
        )
    count = vectors[0].shape[0]
    if not count or count % size:
        raise ValueError(
            f"ragged_all_to_all: the number of offsets ({count}) must be a multiple of the axis size ({size})."
        )
    return count


def _written(result: Any, rows: Any, start: Any, length: Any, target: Any) -> Any:
    """`result` with `length` rows from `start` written at row `target`."""
    shape, available = typeof(result).shape, typeof(rows).shape[0]
    if not available:
        return result
    row = broadcasted_iota(typeof(start).dtype, shape[:1], 0)
    inside = bitwise_and(ge(row, target), lt(row, add(target, length)))
    last = typeof(start).dtype.type(available - 1)
    source = max(min(add(sub(row, target), start), last), last.dtype.type(0))
    taken = index_take(rows, (source,), (0,))
    return select(broadcast_in_dim(inside, shape, (0,)), taken, result)


# ---------------------------------------------------------------- rules


def _type(operand, output, *vectors, axis_name, axis_index_groups, axis_sizes):
    for name in axis_name:
        axis_size(name)  # raises if it is not in scope
    return ShapedArray(output.shape, output.dtype)


def _jvp(primals, tangents, **params):
    """Linear in the sent rows and in the rows of `output` that remain."""
    out = ragged_all_to_all_p.bind(*primals, **params)
    if all(type(t) is Zero for t in tangents[:2]):
        return out, Zero.of_primal(out)
    return out, ragged_all_to_all_p.bind(*map(instantiate, tangents[:2]), *primals[2:], **params)


def _transpose(ct, *args, **params):
    """Returns the cotangents of sent rows to their senders, summed. Rows that nobody wrote keep their cotangent."""
    if type(ct) is Zero:
        return [Zero(x.aval) if is_linear(x) else None for x in args]
    avals = [x.aval if is_linear(x) else typeof(x) for x in args]
    jaxpr, consts = trace_to_jaxpr(lambda *xs: [_exchanged(*xs, **params)], avals)
    return backward_pass(jaxpr, consts, args, [ct])


def _batch(axis, args, dims, **params):
    """Batches the gathers and writes that define the exchange."""
    [out], [d] = batch_flat(lambda *xs: [_exchanged(*xs, **params)], axis, args, dims)
    return out, d


def _pretty(eqn, _names):
    """Omits the sizes, which are those of the axes in scope."""
    return sorted((k, v) for k, v in eqn.params.items() if k != "axis_sizes")


ragged_all_to_all_p = Primitive(
    "ragged_all_to_all",
    type_rule=_type,
    reference=Unsupported("ragged_all_to_all needs the shard_map or vmap that names its axis"),
    lower=Decompose(_exchanged),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    effects=effects("axis_name"),
    vma=vma_with("axis_name"),
    pretty=_pretty,
)
