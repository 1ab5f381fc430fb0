"""`lax.reduce`: reduction by any associative function."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core.avals import ShapedArray
from mpijax.core.jaxpr import ClosedJaxpr, eval_jaxpr
from mpijax.core.lowering import Decompose
from mpijax.core.primitive import Primitive, registry
from mpijax.core.trace import Tracer, trace_to_closed_jaxpr, typeof
from mpijax.core.tree import tree_flatten, tree_unflatten
from mpijax.ops import binary, bitwise, reductions
from mpijax.ops.families import NOT_LINEAR
from mpijax.transforms.batching import batch_at
from mpijax.transforms.jvp import jvp_flat


def _zero(dtype):
    return dtype.type(0)


# Functions that have a reduction of their own, and the value which leaves others unchanged.
_KNOWN: dict[Callable, tuple[Callable, Callable]] = {
    binary.add: (reductions.reduce_sum, _zero),
    binary.mul: (reductions.reduce_prod, lambda dtype: dtype.type(1)),
    binary.max: (reductions.reduce_max, lambda dtype: reductions.extreme(dtype, largest=False)),
    binary.min: (reductions.reduce_min, lambda dtype: reductions.extreme(dtype, largest=True)),
    bitwise.bitwise_and: (reductions.reduce_and, lambda dtype: np.array(-1).astype(dtype)[()]),
    bitwise.bitwise_or: (reductions.reduce_or, _zero),
    bitwise.bitwise_xor: (reductions.reduce_xor, _zero),
}
_BY_NAME = {"add": "reduce_sum", "mul": "reduce_prod", "max": "reduce_max", "min": "reduce_min",
            "and": "reduce_and", "or": "reduce_or", "xor": "reduce_xor"}  # fmt: skip


def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    out_sharding=None,
) -> Any:
    """Combine the elements along `dimensions` with an associative function.

    operands: an array, or a tree of arrays of one shape that are combined together.
    init_values: scalars in the same tree, which leave other values unchanged.
    computation: `(values, values) -> values` of such trees of scalars.

    Raises:
      ValueError: operands and initial values differ in structure.
      TypeError: their dtypes differ.
    """
    flat, tree = tree_flatten(operands)
    init, init_tree = tree_flatten(init_values)
    if tree != init_tree:
        raise ValueError(f"Operands must have the same tree structure as init_values: {tree} vs. {init_tree}")
    if len(flat) != len(init):
        raise ValueError(
            f"Must have same total number of operands as init_values:  {len(flat)} vs. {len(init)}"
        )
    dims = tuple(operator.index(d) for d in dimensions)
    if len(flat) == 1:
        known = _known_reduction(computation, flat[0], init[0])
        if known is not None:
            return tree_unflatten(tree, [known(flat[0], tuple(d % typeof(flat[0]).ndim for d in dims))])

    def flat_computation(*values):
        half = len(values) // 2
        out = computation(tree_unflatten(tree, values[:half]), tree_unflatten(tree, values[half:]))
        return tree_flatten(out)[0]

    scalars = [typeof(x).update(shape=(), weak_type=False) for x in init]
    jaxpr = trace_to_closed_jaxpr(flat_computation, scalars * 2)
    outs = reduce_p.bind(*flat, *init, computation=computation, jaxpr=jaxpr, dimensions=dims)
    return tree_unflatten(tree, outs)


def _known_reduction(computation: Callable, x: Any, init: Any) -> Callable | None:
    """The primitive's function, if `computation` has one and `init` is its neutral value."""
    try:
        known = _KNOWN.get(computation)
    except TypeError:
        return None
    if known is None or isinstance(init, Tracer) or np.ndim(init) != 0:
        return None
    dtype = typeof(x).dtype
    if typeof(init).dtype != dtype and not isinstance(init, (bool, int, float)):
        return None
    function, neutral = known
    with np.errstate(all="ignore"):
        return function if np.asarray(init).astype(dtype) == neutral(dtype) else None


def _reduce_type(*avals: ShapedArray, computation, jaxpr: ClosedJaxpr, dimensions) -> list[ShapedArray]:
    operands, init = avals[: len(avals) // 2], avals[len(avals) // 2 :]
    if any(a.dtype != b.dtype for a, b in zip(operands, init, strict=True)):
        raise TypeError(
            "reduce operand dtypes should match corresponding initial value dtypes, got "
            f"operands={list(operands)} and initial_values={list(init)}"
        )
    if any(a.shape != operands[0].shape for a in operands):
        raise ValueError(f"reduce found operands with different shapes: {[a.shape for a in operands]}")
    dims = {d % a.ndim for a in operands for d in dimensions}
    shape = tuple(d for i, d in enumerate(operands[0].shape) if i not in dims)
    return [ShapedArray(shape, a.dtype, a.weak_type) for a in operands]


def _fold(operands: list, init: list, jaxpr: ClosedJaxpr, dimensions) -> list:
    """Combine halves until one is left; odd lengths are filled up with the initial values."""
    combine = lambda xs, ys: eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *xs, *ys)
    ndim = typeof(operands[0]).ndim
    return reductions.by_halves(combine, operands, init, tuple(d % ndim for d in dimensions))


def _decomposed(*args, computation, jaxpr: ClosedJaxpr, dimensions):
    operands, init = list(args[: len(args) // 2]), list(args[len(args) // 2 :])
    dims = tuple(d % typeof(operands[0]).ndim for d in dimensions)
    eqns = jaxpr.jaxpr.eqns
    if (
        len(eqns) == 1
        and eqns[0].primitive.name in _BY_NAME
        and set(eqns[0].invars) == set(jaxpr.jaxpr.invars)
    ):
        function = getattr(reductions, _BY_NAME[eqns[0].primitive.name])
        out = function(operands[0], dims)
        return [registry[eqns[0].primitive.name].bind(out, init[0])]
    outs = _fold(operands, init, jaxpr, dims)
    wide = [_repeat(x, typeof(o).shape) for x, o in zip(init, outs, strict=True)]
    return eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *outs, *wide)


def _repeat(x: Any, shape: tuple[int, ...]) -> Any:
    if not shape:
        return x
    return registry["broadcast_in_dim"].bind(x, shape=shape, broadcast_dimensions=(), sharding=None)


def _reference(*args, computation, jaxpr: ClosedJaxpr, dimensions):
    """One element after another."""
    operands, init = args[: len(args) // 2], args[len(args) // 2 :]
    dims = [d % operands[0].ndim for d in dimensions]
    kept = [i for i in range(operands[0].ndim) if i not in dims]
    rest = [operands[0].shape[i] for i in kept]
    rows = [x.transpose(*dims, *kept).reshape(-1, *rest) for x in operands]
    out = [np.broadcast_to(v, rest).astype(x.dtype) for v, x in zip(init, operands, strict=True)]
    for i in range(rows[0].shape[0]):
        out = eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *out, *(r[i] for r in rows))
        out = [np.broadcast_to(np.asarray(o), rest) for o in out]
    return [np.array(o) for o in out]


def _reduce_jvp(primals, tangents, *, computation, jaxpr, dimensions):
    """Through the tree of combinations; the initial values are taken for neutral."""
    half = len(primals) // 2
    if half != 1:
        raise NotImplementedError("differentiating lax.reduce of several operands is not supported")
    init = list(primals[half:])
    return jvp_flat(lambda *xs: _fold(list(xs), init, jaxpr, dimensions), primals[:half], tangents[:half])


def _reduce_batch(axis, args, dims, *, computation, jaxpr, dimensions):
    half = len(args) // 2
    if any(d is not None for d in dims[half:]):
        raise NotImplementedError("vmap of lax.reduce over initial values is not supported")
    operands = [batch_at(x, d, 0, axis.size) for x, d in zip(args[:half], dims[:half], strict=True)]
    ndim = typeof(operands[0]).ndim - 1
    shifted = tuple(d % ndim + 1 for d in dimensions)
    outs = reduce_p.bind(*operands, *args[half:], computation=computation, jaxpr=jaxpr, dimensions=shifted)
    return outs, [0] * half


reduce_p = Primitive(
    "reduce",
    type_rule=_reduce_type,
    reference=_reference,
    lower=Decompose(_decomposed),
    jvp=_reduce_jvp,
    transpose=NOT_LINEAR,
    batch=_reduce_batch,
    multiple_results=True,
)
