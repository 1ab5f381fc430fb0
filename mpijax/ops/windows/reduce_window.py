"""Defines `lax.reduce_window`: combines array windows with any associative function; sum, max, min are primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.programs.jaxpr import ClosedJaxpr, Jaxpr, eval_jaxpr
from mpijax.core.rules import window_rules
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees.tree import tree_flatten, tree_unflatten
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise import binary
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.families import LINEAR, NOT_LINEAR
from mpijax.ops.indexing.references import by_references
from mpijax.ops.reductions.reduce import combining, highest, lowest, monoid_jaxpr
from mpijax.ops.rules import const_like
from mpijax.ops.shapes.padding import pad
from mpijax.ops.windows.folds import fold_windows, numpy_windows
from mpijax.ops.windows.select_windows import select_and_gather_add
from mpijax.ops.windows.shapes import check_rank, dilated, padtype_to_pads, transposed_padding, window_shape, with_axis
from mpijax.transforms.batching import batch_at
from mpijax.transforms.jvp import jvp_jaxpr
from mpijax.transforms.zeros import Zero, instantiate


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Combine the elements of every window with an associative function.

    Args:
      operand: an array, or a pytree of arrays of one shape that are combined together.
      init_value: scalars in the same pytree; neutral elements of the function, and the values of the padding.
      computation: `(values, values) -> values` on such pytrees of scalars. `lax.add`, `lax.max` and `lax.min` with
        their neutral values have primitives, which support reverse-mode differentiation.
      window_dimensions: the window's size along each axis.
      window_strides: the distance between windows (1).
      padding: `VALID`, `SAME`, `SAME_LOWER`, or for each axis the number of values before and after; negative
        numbers remove elements.
      base_dilation: the distance between elements of the operand (1), with initial values between them.
      window_dilation: the distance between elements of the window (1).

    Raises:
      ValueError: if operands and initial values differ in structure. TypeError: for invalid sizes or dtypes.

    >>> lax.reduce_window(jnp.array([1, 2, 3, 4, 5]), 0, lax.add, (3,), (1,), "VALID")
    Array([ 6,  9, 12], dtype=int32)
    """
    flat, tree = tree_flatten(operand)
    init, init_tree = tree_flatten(init_value)
    if tree != init_tree:
        raise ValueError(f"Operands must have the same tree structure as init_values: {tree} vs. {init_tree}")
    if not flat:
        raise ValueError("reduce_window must have at least one operand.")
    ones = (1,) * len(window_dimensions)
    strides = ones if window_strides is None else tuple(window_strides)
    base = ones if base_dilation is None else tuple(base_dilation)
    dilation = ones if window_dilation is None else tuple(window_dilation)
    if isinstance(padding, str):
        check_rank(typeof(flat[0]), window_dimensions)
        window = dilated(window_dimensions, dilation)
        padding = padtype_to_pads(typeof(flat[0]).shape, window, strides, padding)
    params = {
        "window_dimensions": tuple(window_dimensions),
        "window_strides": strides,
        "padding": tuple((lo, hi) for lo, hi in padding),
        "base_dilation": base,
        "window_dilation": dilation,
    }
    known = _known_primitive(computation, init)
    if known is not None:
        return tree_unflatten(tree, [known.bind(flat[0], **params)])
    closed = monoid_jaxpr(computation, [typeof(x) for x in init], tree, "reduce_window")
    outs = reduce_window_p.bind(*flat, *init, jaxpr=closed.jaxpr, consts=tuple(closed.consts), **params)
    return tree_unflatten(tree, outs)


def _known_primitive(computation: Callable, init: list) -> Primitive | None:
    """The primitive for `computation` with initial value `init`, if there is one."""
    if len(init) != 1 or isinstance(init[0], Tracer) or np.ndim(init[0]) != 0:
        return None
    dtype = typeof(init[0]).dtype
    for function, primitive, neutral in (
        (binary.add, reduce_window_sum_p, lambda d: d.type(0)),
        (binary.max, reduce_window_max_p, lowest),
        (binary.min, reduce_window_min_p, highest),
    ):
        if computation is function:
            return primitive if np.asarray(init[0]).astype(dtype) == neutral(dtype) else None
    return None


# ---------------------------------------------------------------- sums, maxima, minima


def _reference(ufunc: Callable, neutral: Callable) -> Callable:
    def reference(x, **params):
        narrow = dtypes.issubdtype(x.dtype, np.floating) and x.dtype.itemsize < 4
        wide = x.astype(np.float32) if narrow else x
        out = np.full(window_shape(typeof(x), **params), neutral(wide.dtype), wide.dtype)
        with np.errstate(all="ignore"):
            for part in numpy_windows(wide, neutral(wide.dtype), **params):
                out = ufunc(out, part)
        return out.astype(x.dtype, copy=False)

    return reference


def _decomposed(op: str, reduction: str, neutral: Callable) -> Callable:
    """Lowers to a fold over windows; sums of narrow floats are computed in float32."""

    def fun(x, **params):
        dtype = typeof(x).dtype
        narrow = op == "add" and dtypes.issubdtype(dtype, np.floating) and dtype.itemsize < 4
        x = convert_element_type(x, np.float32) if narrow else x
        combine = lambda xs, ys: [registry[op].bind(xs[0], ys[0])]
        unit = neutral(typeof(x).dtype)
        [out] = fold_windows(combine, [x], [unit], **params, reduction=reduction)
        return convert_element_type(out, dtype) if narrow else out

    return fun


def _type(name: str) -> Callable:
    def type_rule(x, **params):
        if name == "reduce_window_sum" and not dtypes.issubdtype(x.dtype, np.number):
            raise TypeError(f"operand to reduce_window_sum must have a number dtype, got {x.dtype.name}")
        return ShapedArray(window_shape(x, **params), x.dtype, x.weak_type)

    return type_rule


def _define(op: str, name: str, ufunc: Callable, neutral: Callable) -> Primitive:
    def batch(_axis, args, dims, **params):
        return primitive.bind(args[0], **with_axis(params, dims[0])), dims[0]

    primitive = Primitive(
        name,
        type_rule=_type(name),
        reference=_reference(ufunc, neutral),
        lower=Decompose(_decomposed(op, name.replace("_window", ""), neutral)),
        jvp=NOT_LINEAR,
        transpose=NOT_LINEAR,
        batch=batch,
        sharding=window_rules.reduce_window,
    )
    return primitive


def _sum_transpose(ct, operand, **params):
    """Sums the cotangents of all windows that contain an element: windows over the dilated cotangent."""
    shape = operand.aval.shape
    pads = transposed_padding(shape, typeof(ct).shape, **params)
    config = [(lo, hi, s - 1) for (lo, hi), s in zip(pads, params["window_strides"], strict=True)]
    spread = pad(ct, const_like(ct, 0), config)
    ones = (1,) * len(shape)
    back = {
        **params,
        "window_strides": params["base_dilation"],
        "padding": ((0, 0),) * len(shape),
        "base_dilation": ones,
    }
    return [reduce_window_sum_p.bind(spread, **back)]


def _extremum_jvp(primitive: Primitive, select: str) -> Callable:
    def jvp(primals, tangents, **params):
        (x,), (t,) = primals, tangents
        out = primitive.bind(x, **params)
        if type(t) is Zero:
            return out, Zero.of_primal(out)
        return out, select_and_gather_add(t, x, registry[select], params)

    return jvp


reduce_window_sum_p = _define("add", "reduce_window_sum", np.add, lambda d: d.type(0))
reduce_window_sum_p.jvp = LINEAR.attach(reduce_window_sum_p)
reduce_window_sum_p.transpose = _sum_transpose
reduce_window_max_p = _define("max", "reduce_window_max", np.maximum, lowest)
reduce_window_max_p.jvp = _extremum_jvp(reduce_window_max_p, "ge")
reduce_window_min_p = _define("min", "reduce_window_min", np.minimum, highest)
reduce_window_min_p.jvp = _extremum_jvp(reduce_window_min_p, "le")

# ---------------------------------------------------------------- any function


def _general_type(*avals, jaxpr: Jaxpr, consts, **params) -> list[ShapedArray]:
    operands, init = avals[: len(avals) // 2], avals[len(avals) // 2 :]
    if any(a.dtype != b.dtype for a, b in zip(operands, init, strict=True)):
        raise TypeError(
            "reduce_window got inconsistent dtypes for operands and init_values: got operand dtypes "
            f"{[a.dtype for a in operands]} and init_value dtypes {[b.dtype for b in init]}."
        )
    if any(a.shape for a in init):
        raise TypeError(
            "reduce_window expected init_values to be scalars but init_values have shapes "
            f"{[a.shape for a in init]}."
        )
    if any(a.shape != operands[0].shape for a in operands):
        raise TypeError(f"reduce_window got operands of different shapes: {[a.shape for a in operands]}.")
    shape = window_shape(operands[0], **params)
    return [ShapedArray(shape, a.dtype) for a in operands]


def _general_decomposed(*args, jaxpr, consts, **params):
    half = len(args) // 2
    operands, init = list(args[:half]), list(args[half:])
    combine = combining(ClosedJaxpr(jaxpr, consts))
    outs = fold_windows(combine, operands, init, **params)
    shape = typeof(outs[0]).shape
    first = [
        registry["broadcast_in_dim"].bind(x, shape=shape, broadcast_dimensions=(), sharding=None) for x in init
    ]
    return combine(first, outs)


def _general_reference(*args, jaxpr, consts, **params):
    half = len(args) // 2
    shape = window_shape(typeof(args[0]), **params)
    outs = [np.full(shape, v, x.dtype) for x, v in zip(args[:half], args[half:], strict=True)]
    parts = zip(*(numpy_windows(x, v, **params) for x, v in zip(args[:half], args[half:], strict=True)), strict=True)
    for values in parts:
        outs = [np.broadcast_to(o, shape) for o in by_references(jaxpr, consts, *outs, *values)]
    return [np.array(o) for o in outs]


def _general_jvp(primals, tangents, *, jaxpr, consts, **params):
    """Combines pairs of primals and tangents with the derivative of the function."""
    half = len(primals) // 2
    if any(type(t) is not Zero for t in tangents[half:]):
        raise TypeError("reduce_window cannot be differentiated with respect to its initial values.")
    derivative, _ = jvp_jaxpr(ClosedJaxpr(jaxpr, consts), (True,) * (2 * half), True)

    def pairs(left, right):
        (pl, tl), (pr, tr) = (left[:half], left[half:]), (right[:half], right[half:])
        return eval_jaxpr(derivative.jaxpr, derivative.consts, *pl, *pr, *tl, *tr)

    operands = [*primals[:half], *map(instantiate, tangents[:half])]
    init = [*primals[half:], *map(instantiate, tangents[half:])]
    outs = reduce_window(operands, init, pairs, **params)
    return outs[:half], outs[half:]


def _general_batch(axis, args, dims, *, jaxpr, consts, **params):
    half = len(args) // 2
    if any(d is not None for d in dims[half:]):
        raise NotImplementedError("reduce_window batching is not implemented for initial values")
    operands = [batch_at(x, d, 0, axis) for x, d in zip(args[:half], dims[:half], strict=True)]
    outs = reduce_window_p.bind(*operands, *args[half:], jaxpr=jaxpr, consts=consts, **with_axis(params, 0))
    return outs, [0] * half


reduce_window_p = Primitive(
    "reduce_window",
    type_rule=_general_type,
    reference=_general_reference,
    lower=Decompose(_general_decomposed),
    jvp=_general_jvp,
    transpose=NOT_LINEAR,
    batch=_general_batch,
    multiple_results=True,
)
