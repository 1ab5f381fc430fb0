"""Derivatives of windowed maxima and minima: read, or add to, the element that each window selects."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.rules import window_rules
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.shapes.dimensions import position_dtype
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.select import select
from mpijax.ops.indexing.gather import GatherScatterMode
from mpijax.ops.indexing.scatter import ScatterDimensionNumbers, scatter_add
from mpijax.ops.indexing.slicing import slice as slice_
from mpijax.ops.reductions import standard as reductions
from mpijax.ops.rules import const_like, full_like, is_linear
from mpijax.ops.shapes.moves import shape_of
from mpijax.ops.shapes.padding import pad
from mpijax.ops.shapes.reshape import reshape
from mpijax.ops.windows.folds import fold_windows, numpy_windows, padded
from mpijax.ops.windows.shapes import window_shape, with_axis
from mpijax.transforms.batching import batch_at
from mpijax.transforms.zeros import Zero


def _worst(select_prim: Primitive, dtype: np.dtype) -> Any:
    """The value that a window selects last."""
    return reductions.extreme(dtype, largest=select_prim.name == "le")


def _selecting(select_prim: Primitive) -> Callable[[list, list], list]:
    """Combines pairs of a key to compare and a value to carry; keeps the first pair if its key compares true."""

    def combine(xs: list, ys: list) -> list:
        keeps = select_prim.bind(xs[0], ys[0])
        return [select(keeps, x, y) for x, y in zip(xs, ys, strict=True)]

    return combine


def _selected(select_prim: Primitive, pairs) -> np.ndarray:
    """In NumPy, the values carried with the selected elements of all windows."""
    best = taken = None
    for key, along in pairs:
        if best is None:
            best, taken = key, along
            continue
        keeps = select_prim.reference(best, key)
        best, taken = np.where(keeps, best, key), np.where(keeps, taken, along)
    assert taken is not None
    return taken


def _undilated(params: dict[str, Any]) -> dict[str, Any]:
    ones = (1,) * len(params["window_dimensions"])
    return {**params, "base_dilation": ones, "window_dilation": ones}


# ---------------------------------------------------------------- gather


def select_and_gather_add(tangents: Any, operand: Any, select_prim: Primitive, params: dict[str, Any]) -> Any:
    """The tangents of the elements that windows over `operand` select; params: those of `reduce_window_max`."""
    return select_and_gather_add_p.bind(tangents, operand, select_prim=select_prim, **params)


def _gather_type(tangents, operand, *, select_prim, **params):
    if tangents.shape != operand.shape:
        raise TypeError(
            "select_and_gather_add tangents and operand shapes must match, got "
            f"{tangents.shape} and {operand.shape}."
        )
    return ShapedArray(window_shape(operand, **params), tangents.dtype)


def _gather_decomposed(tangents, operand, *, select_prim, **params):
    units = [_worst(select_prim, typeof(operand).dtype), typeof(tangents).dtype.type(0)]
    return fold_windows(_selecting(select_prim), [operand, tangents], units, **params)[1]


def _gather_reference(tangents, operand, *, select_prim, **params):
    keys = numpy_windows(operand, _worst(select_prim, operand.dtype), **params)
    return np.array(_selected(select_prim, zip(keys, numpy_windows(tangents, 0, **params), strict=True)))


def _gather_transpose(ct, tangents, operand, *, select_prim, base_dilation, window_dilation, **params):
    if any(d != 1 for d in window_dilation):
        raise NotImplementedError(
            "the reverse derivative of windowed maxima and minima is not implemented for windows with gaps, got "
            f"window_dilation={window_dilation}"
        )
    if any(d != 1 for d in base_dilation):
        config = [(0, 0, d - 1) for d in base_dilation]
        operand = pad(operand, _worst(select_prim, typeof(operand).dtype), config)
    out = select_and_scatter_add(ct, operand, select_prim, params)
    if any(d != 1 for d in base_dilation):
        out = slice_(out, (0,) * len(base_dilation), shape_of(out), base_dilation)
    return [out, None]


def _gather_batch(axis, args, dims, *, select_prim, **params):
    tangents, operand = (batch_at(x, d, 0, axis, by_numpy=True) for x, d in zip(args, dims, strict=True))
    return select_and_gather_add(tangents, operand, select_prim, with_axis(params, 0)), 0


def _by_first(apply: Callable) -> Callable:
    """The derivative by the first operand only: the selection is constant."""

    def jvp(primals, tangents, *, select_prim, **params):
        first, operand = primals
        out = apply(first, operand, select_prim, params)
        if type(tangents[0]) is Zero:
            return out, Zero.of_primal(out)
        return out, apply(tangents[0], operand, select_prim, params)

    return jvp


select_and_gather_add_p = Primitive(
    "select_and_gather_add",
    type_rule=_gather_type,
    reference=_gather_reference,
    lower=Decompose(_gather_decomposed),
    jvp=_by_first(select_and_gather_add),
    transpose=_gather_transpose,
    batch=_gather_batch,
    sharding=window_rules.examples_apart,
)

# ---------------------------------------------------------------- scatter


def select_and_scatter_add(source: Any, operand: Any, select_prim: Primitive, params: dict[str, Any]) -> Any:
    """Zeros of the operand's shape, with each window's source added at the element that the window selects.

    params: window_dimensions, window_strides, padding.
    """
    return select_and_scatter_add_p.bind(source, operand, select_prim=select_prim, **params)


def _positions(shape: tuple[int, ...]) -> Any:
    """The position of each element in row-major order."""
    n = math.prod(shape)
    return reshape(registry["iota"].bind(dtype=position_dtype(n), shape=(n,), dimension=0, sharding=None), shape)


def _scatter_decomposed(source, operand, *, select_prim, padding, **params):
    """Finds the positions that windows select as for their maxima; selected padding is dropped."""
    params = _undilated({**params, "padding": ((0, 0),) * len(padding)})
    worst = _worst(select_prim, typeof(operand).dtype)
    whole = padded(operand, worst, padding, params["base_dilation"])
    shape = shape_of(whole)
    places = _positions(shape)
    units = [worst, typeof(places).dtype.type(0)]
    chosen = fold_windows(_selecting(select_prim), [whole, places], units, **params)[1]
    index, values = reshape(chosen, (chosen.size, 1)), reshape(source, (source.size,))
    out = scatter_add(
        full_like(source, 0, (math.prod(shape),)),
        index,
        values,
        ScatterDimensionNumbers((), (0,), (0,)),
        mode=GatherScatterMode.PROMISE_IN_BOUNDS,
    )
    return pad(reshape(out, shape), const_like(out, 0), [(-lo, -hi, 0) for lo, hi in padding])


def _scatter_reference(source, operand, *, select_prim, padding, **params):
    params = _undilated({**params, "padding": ((0, 0),) * len(padding)})
    config = tuple((lo, hi, 0) for lo, hi in padding)
    worst = np.asarray(_worst(select_prim, operand.dtype))
    whole = registry["pad"].reference(operand, worst, padding_config=config)
    places = np.arange(whole.size).reshape(whole.shape)
    pairs = zip(numpy_windows(whole, worst, **params), numpy_windows(places, 0, **params), strict=True)
    out = np.zeros(whole.size, source.dtype)
    np.add.at(out, _selected(select_prim, pairs).reshape(-1), source.reshape(-1))
    config = tuple((-lo, -hi, 0) for lo, hi in padding)
    return registry["pad"].reference(out.reshape(whole.shape), out.dtype.type(0), padding_config=config)


def _scatter_transpose(ct, source, operand, *, select_prim, **params):
    assert is_linear(source) and not is_linear(operand)
    return [select_and_gather_add(ct, operand, select_prim, _undilated(params)), None]


def _scatter_batch(axis, args, dims, *, select_prim, **params):
    source, operand = (batch_at(x, d, 0, axis, by_numpy=True) for x, d in zip(args, dims, strict=True))
    return select_and_scatter_add(source, operand, select_prim, with_axis(params, 0)), 0


select_and_scatter_add_p = Primitive(
    "select_and_scatter_add",
    type_rule=lambda source, operand, **_params: ShapedArray(operand.shape, source.dtype),
    reference=_scatter_reference,
    lower=Decompose(_scatter_decomposed),
    jvp=_by_first(select_and_scatter_add),
    transpose=_scatter_transpose,
    batch=_scatter_batch,
    sharding=window_rules.examples_apart,
)
