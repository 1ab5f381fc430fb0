"""Defines `lax.reduce`: reduction with any associative function."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.programs.jaxpr import ClosedJaxpr, Jaxpr, Literal, eval_jaxpr
from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.lowering import Decompose, Elementwise
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees.tree import tree_flatten, tree_unflatten
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise import binary, bitwise
from mpijax.ops.elementwise.convert import convert
from mpijax.ops.families import ANY, BITS, NOT_LINEAR, accepts_dtype
from mpijax.ops.indexing.references import by_references
from mpijax.ops.reductions import standard as reductions
from mpijax.transforms.batching import batch_at
from mpijax.transforms.jvp import jvp_flat
from mpijax.transforms.vmap import vmap
from mpijax.transforms.zeros import Zero, instantiate


def _zero(dtype):
    return dtype.type(0)


def _ones(dtype):
    return np.array(-1).astype(dtype)[()]


def lowest(dtype):
    return reductions.extreme(dtype, largest=False)


def highest(dtype):
    return reductions.extreme(dtype, largest=True)


# Functions that have a reduction primitive, with their neutral value and the supported dtypes.
_KNOWN: dict[Callable, tuple[Callable, Callable, tuple[type, ...]]] = {
    binary.add: (reductions.reduce_sum, _zero, ANY),
    binary.mul: (reductions.reduce_prod, lambda dtype: dtype.type(1), ANY),
    binary.max: (reductions.reduce_max, lowest, ANY),
    binary.min: (reductions.reduce_min, highest, ANY),
    bitwise.bitwise_and: (reductions.reduce_and, _ones, BITS),
    bitwise.bitwise_or: (reductions.reduce_or, _zero, BITS),
    bitwise.bitwise_xor: (reductions.reduce_xor, _zero, BITS),
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

    operands: an array, or a pytree of arrays of one shape that are combined together.
    init_values: scalars in the same pytree; neutral elements of the function.
    computation: `(values, values) -> values` on such pytrees of scalars.

    Raises:
      ValueError: if operands and initial values differ in structure.
      TypeError: if their dtypes differ.

    >>> lax.reduce(jnp.array([[1, 2], [3, 4]]), 1, lambda x, y: x * y % 7, (1,))
    Array([2, 5], dtype=int32)
    """
    flat, tree = tree_flatten(operands)
    init, init_tree = tree_flatten(init_values)
    if tree != init_tree:
        raise ValueError(f"Operands must have the same tree structure as init_values: {tree} vs. {init_tree}")
    dims = tuple(operator.index(d) for d in dimensions)
    if len(flat) == 1:
        known = _known_reduction(computation, init[0])
        if known is not None:
            out = known(flat[0], dims)
            weak = typeof(flat[0]).weak_type and typeof(init[0]).weak_type
            return tree_unflatten(tree, [convert(out, typeof(out).dtype, weak)])
    outs = reduce_p.bind(
        *flat,
        *init,
        computation=Computation(computation),
        jaxpr=monoid_jaxpr(computation, [typeof(x) for x in init], tree, "reduce"),
        dimensions=dims,
    )
    return tree_unflatten(tree, outs)


@dataclass(frozen=True)
class Computation:
    """The function of a reduction as its equation shows it. The equation computes what its Jaxpr says.

    In a program that was saved, only the text is left.
    """

    function: Callable | str

    def __call__(self, *values: Any) -> Any:
        if isinstance(self.function, str):
            raise NotImplementedError(f"{self.function} was not saved with the program: evaluate the parameter jaxpr.")
        return self.function(*values)

    def __repr__(self) -> str:
        return self.function if isinstance(self.function, str) else repr(self.function)

    def _plain_(self) -> tuple[str]:
        return (_without_addresses(repr(self)),)

    @staticmethod
    def _from_plain_(text: str) -> Computation:
        return Computation(text)


def monoid_jaxpr(computation: Callable, scalars: list[ShapedArray], tree: Any, where: str) -> ClosedJaxpr:
    """The Jaxpr of `(values, values) -> values`, on pytrees of scalars of the given types.

    Raises:
      ValueError: if the result is another pytree. NotImplementedError: if the function closes over traced values.
    """

    def flat_computation(*values):
        half = len(values) // 2
        out = computation(tree_unflatten(tree, values[:half]), tree_unflatten(tree, values[half:]))
        leaves, out_tree = tree_flatten(out)
        if out_tree != tree:
            raise ValueError(
                f"{where} output must have the same tree structure as the operands: its function takes {tree} and "
                f"returns {out_tree}."
            )
        return leaves

    jaxpr = trace_to_closed_jaxpr(flat_computation, [*scalars, *scalars])
    if any(isinstance(c, Tracer) for c in jaxpr.consts):
        raise NotImplementedError(
            f"The function of lax.{where} closes over a traced value. Pass the value as one of the operands."
        )
    return jaxpr


def _known_reduction(computation: Callable, init: Any) -> Callable | None:
    """The reduction function for `computation`, if there is one and `init` is its neutral value."""
    try:
        known = _KNOWN.get(computation)
    except TypeError:
        return None
    if known is None or isinstance(init, Tracer) or np.ndim(init) != 0:
        return None
    function, neutral, kinds = known
    dtype = typeof(init).dtype
    if not accepts_dtype(dtype, kinds):
        return None
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
    if any(a.shape for a in init):
        raise ValueError(f"reduce found non-scalar initial value: {[a.shape for a in init]}")
    ndim = operands[0].ndim
    if any(not -ndim <= d < ndim for d in dimensions):
        raise IndexError(f"reduce: dimensions {dimensions} are out of bounds for shape {operands[0].shape}")
    dims = {d % ndim for d in dimensions}
    shape = tuple(d for i, d in enumerate(operands[0].shape) if i not in dims)
    return [
        ShapedArray(shape, a.dtype, a.weak_type and b.weak_type) for a, b in zip(operands, init, strict=True)
    ]


def combining(jaxpr: ClosedJaxpr) -> Callable[[list, list], list]:
    """The function of scalars applied elementwise to lists of arrays of one shape."""
    elementwise = _takes_arrays(jaxpr.jaxpr)

    def combine(xs: list, ys: list) -> list:
        fun = lambda *values: eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *values)
        for _ in range(0 if elementwise else typeof(xs[0]).ndim):
            fun = vmap(fun)
        return list(fun(*xs, *ys))

    return combine


def _takes_arrays(jaxpr: Jaxpr) -> bool:
    """Whether a function of scalars can be applied directly to arrays of one shape, with the elementwise result.

    Operations of more than two operands, such as `select_n`, do not mix arrays with the function's own scalars.
    """
    scalars = set(jaxpr.constvars)
    for eqn in jaxpr.eqns:
        own = [isinstance(v, Literal) or v in scalars for v in eqn.invars]
        if all(own):
            scalars.update(eqn.outvars)
        elif not isinstance(eqn.primitive.lower, Elementwise) or (any(own) and len(own) > 2):
            return False
    return True


def _fold(operands: list, init: list, jaxpr: ClosedJaxpr, dimensions) -> list:
    """Combine halves until one element is left; pads odd lengths with the initial values."""
    ndim = typeof(operands[0]).ndim
    return reductions.by_halves(combining(jaxpr), operands, init, tuple(d % ndim for d in dimensions))


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
    if 0 in [typeof(operands[0]).shape[d] for d in dims]:
        shape = tuple(n for d, n in enumerate(typeof(operands[0]).shape) if d not in dims)
        return [_repeat(x, shape) for x in init]
    outs = reductions.by_neighbours(combining(jaxpr), operands, dims)
    wide = [_repeat(x, typeof(o).shape) for x, o in zip(init, outs, strict=True)]
    return combining(jaxpr)(wide, outs)


def _repeat(x: Any, shape: tuple[int, ...]) -> Any:
    if not shape:
        return x
    return registry["broadcast_in_dim"].bind(x, shape=shape, broadcast_dimensions=(), sharding=None)


def _reference(*args, computation, jaxpr: ClosedJaxpr, dimensions):
    """Combines one element after another."""
    operands, init = args[: len(args) // 2], args[len(args) // 2 :]
    dims = [d % operands[0].ndim for d in dimensions]
    kept = [i for i in range(operands[0].ndim) if i not in dims]
    rest = [operands[0].shape[i] for i in kept]
    rows = [x.transpose(*dims, *kept).reshape(-1, *rest) for x in operands]
    out = [np.broadcast_to(v, rest).astype(x.dtype) for v, x in zip(init, operands, strict=True)]
    for i in range(rows[0].shape[0]):
        out = by_references(jaxpr.jaxpr, jaxpr.consts, *out, *(r[i] for r in rows))
        out = [np.broadcast_to(o, rest) for o in out]
    return [np.array(o) for o in out]


def _reduce_jvp(primals, tangents, *, computation, jaxpr, dimensions):
    """Differentiates the tree of combinations, assuming that the initial values are neutral."""
    half = len(primals) // 2
    if any(type(t) is not Zero for t in tangents[half:]):
        raise NotImplementedError("lax.reduce cannot be differentiated with respect to its initial values")
    dims = tuple(d % typeof(primals[0]).ndim for d in dimensions)
    primals, init = [reductions.lead(x, dims) for x in primals[:half]], list(primals[half:])
    tangents = [reductions.lead(instantiate(t), dims) for t in tangents[:half]]
    return jvp_flat(lambda *xs: _fold(list(xs), init, jaxpr, (0,)), primals, tangents)


def _reduce_batch(axis, args, dims, *, computation, jaxpr, dimensions):
    half = len(args) // 2
    if any(d is not None for d in dims[half:]):
        raise NotImplementedError("vmap of lax.reduce over initial values is not supported")
    operands = [batch_at(x, d, 0, axis) for x, d in zip(args[:half], dims[:half], strict=True)]
    ndim = typeof(operands[0]).ndim - 1
    shifted = tuple(d % ndim + 1 for d in dimensions)
    outs = reduce_p.bind(*operands, *args[half:], computation=computation, jaxpr=jaxpr, dimensions=shifted)
    return outs, [0] * half


def _reduce_pretty(eqn, _names):
    """Prints addresses masked, so that equal programs print equally."""
    return sorted({**eqn.params, "computation": _without_addresses(repr(eqn.params["computation"]))}.items())


def _without_addresses(text: str) -> str:
    return re.sub("0x[0-9a-f]+", "0x" + "X" * 12, text)


reduce_p = Primitive(
    "reduce",
    type_rule=_reduce_type,
    reference=_reference,
    lower=Decompose(_decomposed),
    jvp=_reduce_jvp,
    transpose=NOT_LINEAR,
    batch=_reduce_batch,
    multiple_results=True,
    pretty=_reduce_pretty,
    sharding_type=types.without_axes("dimensions"),
)
