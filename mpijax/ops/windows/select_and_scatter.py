"""Defines select_and_scatter: selects one element of each window, and combines a value with it, by functions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from mpijax.core.programs.jaxpr import ClosedJaxpr
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.elementwise.bitwise import bitwise_and, bitwise_not, bitwise_or
from mpijax.ops.elementwise.compare import eq
from mpijax.ops.elementwise.select import select
from mpijax.ops.indexing.references import by_references
from mpijax.ops.indexing.slicing import slice as slice_
from mpijax.ops.reductions.reduce import combining
from mpijax.ops.rules import const_like, full_like
from mpijax.ops.shapes.moves import shape_of
from mpijax.ops.shapes.padding import pad
from mpijax.ops.shapes.reshape import broadcast_in_dim
from mpijax.ops.windows.folds import padded
from mpijax.ops.windows.shapes import window_shape, with_axis
from mpijax.transforms.batching import batch_at


def _closed(jaxpr: Any, consts: Any) -> ClosedJaxpr:
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, consts)


def _by_functions_type(operand, source, init_value, *, window_dimensions, window_strides, padding, **_functions):
    params = {"window_dimensions": window_dimensions, "window_strides": window_strides, "padding": padding}
    ones = (1,) * len(window_dimensions)
    windows = window_shape(operand, **params, base_dilation=ones, window_dilation=ones)
    if source.shape != windows:
        raise TypeError(
            f"select_and_scatter: source must have an element for each window, {windows}, got {source.str_short(True)}"
        )
    return ShapedArray(operand.shape, operand.dtype)


def _by_functions(
    operand, source, init_value, *, select_jaxpr, select_consts, scatter_jaxpr, scatter_consts, window_dimensions,
    window_strides, padding,
):  # fmt: skip
    """Loops over the positions of the window: first selects elements, then combines values at them.

    Padding elements are never selected. At one position of the window, different windows have different elements, so
    each position takes one operation on whole arrays.
    """
    keep = combining(_closed(select_jaxpr, select_consts))
    combine = combining(_closed(scatter_jaxpr, scatter_consts))
    shape, counts = shape_of(operand), shape_of(source)
    result = broadcast_in_dim(init_value, shape, ())
    if not source.size:
        return result
    inside = full_like(np.bool_(False), True, shape)
    whole, present = (padded(x, const_like(x, 0), padding, (1,) * len(shape)) for x in (operand, inside))
    places = list(itertools.product(*map(range, window_dimensions)))

    def windows(x, at):
        limits = tuple(b + (n - 1) * s + 1 for b, n, s in zip(at, counts, window_strides, strict=True))
        return slice_(x, at, limits, window_strides)

    best, chosen = windows(whole, places[0]), full_like(np.int32(0), 0, counts)
    known = windows(present, places[0])
    for number, at in enumerate(places[1:], 1):
        value, there = windows(whole, at), windows(present, at)
        better = bitwise_and(there, bitwise_not(bitwise_and(known, keep([best], [value])[0])))
        best, chosen = select(better, value, best), select(better, full_like(np.int32(0), number, counts), chosen)
        known = bitwise_or(known, there)
    for number, at in enumerate(places):
        taken = bitwise_and(known, eq(chosen, full_like(np.int32(0), number, counts)))
        config = [
            (b - lo, n + lo - b - (c - 1) * s - 1, s - 1)
            for b, (lo, _), n, c, s in zip(at, padding, shape, counts, window_strides, strict=True)
        ]
        here = pad(taken, np.bool_(False), config)
        result = select(here, combine([result], [pad(source, const_like(source, 0), config)])[0], result)
    return result


def _by_functions_batch(axis, args, dims, **params):
    operand, source, init = args
    if dims[2] is not None:
        raise NotImplementedError("vmap of select_and_scatter over initial values is not supported")
    operand, source = (batch_at(x, d, 0, axis, by_numpy=True) for x, d in zip(args[:2], dims[:2], strict=True))
    windows = {name: params[name] for name in ("window_dimensions", "window_strides", "padding")}
    return select_and_scatter_p.bind(operand, source, init, **{**params, **with_axis(windows, 0)}), 0


def _by_functions_reference(operand, source, init_value, *, select_jaxpr, select_consts, scatter_jaxpr,
                            scatter_consts, window_dimensions, window_strides, padding):  # fmt: skip
    """Processes one window after another."""
    out = np.full(operand.shape, init_value, operand.dtype)
    for window in np.ndindex(source.shape):
        best = None
        for at in np.ndindex(*window_dimensions):
            spot = tuple(
                i * s + a - lo for i, s, a, (lo, _) in zip(window, window_strides, at, padding, strict=True)
            )
            if not all(0 <= p < n for p, n in zip(spot, operand.shape, strict=True)):
                continue
            keep = best is not None and by_references(select_jaxpr, select_consts, operand[best], operand[spot])[0]
            best = best if keep else spot
        if best is not None:
            [out[best]] = by_references(scatter_jaxpr, scatter_consts, out[best], source[window])
    return out


_NO_DERIVATIVE = Unsupported(
    "select_and_scatter has no derivative; select_and_scatter_add, to which those of windowed maxima lead, has one"
)

select_and_scatter_p = Primitive(
    "select_and_scatter",
    type_rule=_by_functions_type,
    reference=_by_functions_reference,
    lower=Decompose(_by_functions),
    jvp=_NO_DERIVATIVE,
    transpose=_NO_DERIVATIVE,
    batch=_by_functions_batch,
)
