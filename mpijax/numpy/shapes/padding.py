"""`pad`: an array with a margin on each side of its axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core.base.errors import InconclusiveDimensionOperation
from mpijax.core.shapes.dimensions import dimension, is_constant_shape
from mpijax.core.trees import tree
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.creation.ranges import linspace
from mpijax.numpy.reductions import standard as reductions
from mpijax.numpy.reductions.quantiles import median
from mpijax.numpy.reductions.statistics import mean
from mpijax.numpy.shapes.rearrange import flip, repeat
from mpijax.numpy.ufuncs.apply import apply_along_axis
from mpijax.numpy.ufuncs.arithmetic import multiply, subtract
from mpijax.numpy.ufuncs.floats import round as round_to_integer
from mpijax.numpy.util import broadcast_to, convert, ensure_arraylike, is_integer, static
from mpijax.transforms.jit import jit

Pairs = tuple[tuple[Any, Any], ...]

# The keyword arguments that each mode takes.
_ARGUMENTS = {
    "empty": [],
    "edge": [],
    "wrap": [],
    "constant": ["constant_values"],
    "linear_ramp": ["end_values"],
    "maximum": ["stat_length"],
    "mean": ["stat_length"],
    "median": ["stat_length"],
    "minimum": ["stat_length"],
    "reflect": ["reflect_type"],
    "symmetric": ["reflect_type"],
}


def _pairs(values: Any, ndim: int, name: str) -> Pairs:
    """A (before, after) pair for each axis from a number, a pair, or one of either per axis."""
    values = tree.tree_map(lambda x: static(x, f"{name} argument of jnp.pad"), values)
    try:
        values = np.asarray(values)
    except ValueError as e:
        if "inhomogeneous" in str(e):
            raise TypeError(f"`{name}` entries must be the same shape: {values}") from e
        raise
    if values.shape not in ((ndim, 2), (1, 2), (2,), (1,), ()):
        raise ValueError(
            f"jnp.pad: {name} with nd={ndim!r} has unsupported shape {values.shape}. Valid shapes are "
            f"({ndim}, 2), (1, 2), (2,), (1,), or ()."
        )
    return tuple((before, after) for before, after in np.broadcast_to(values, (ndim, 2)))


def _is_size(x: Any) -> bool:
    try:
        dimension(x)
    except TypeError:
        return False
    return True


def pad(array, pad_width, mode: str | Callable[..., Any] = "constant", **kwargs):
    """The array with a margin on each side of its axes.

    Args:
      pad_width: sizes of the margins: a number for all, a (before, after) pair, or a pair for each axis.
      mode: the elements of the margin:
        "constant": `constant_values`, default 0, in the forms of `pad_width`;
        "edge": the nearest element;
        "reflect", "symmetric": the mirror image without and with the edge; `reflect_type` "even" or "odd";
        "wrap": the elements of the other end;
        "linear_ramp": values from the edge to `end_values`;
        "maximum", "minimum", "mean", "median": the maximum (and so on) of the nearest `stat_length` elements;
        "empty": zeros;
        a function of a line whose margins are zeros, the (before, after) widths, the axis, and the dict of keyword
        arguments. It returns the new line. `pad` calls it for the lines of one axis after the other.

    Raises:
      ValueError: a negative margin.
      NotImplementedError: an unknown mode.

    >>> jnp.pad(jnp.array([1, 2, 3]), (2, 1), mode="reflect")
    Array([3, 2, 1, 2, 3, 2], dtype=int32)
    """
    array = ensure_arraylike("pad", array)
    pad_width = _pairs(pad_width, array.ndim, "pad_width")
    if not all(_is_size(before) and _is_size(after) for before, after in pad_width):
        raise TypeError("`pad_width` must be of integral type.")
    if callable(mode):
        return _apply(array, pad_width, mode, kwargs)
    if mode not in _ARGUMENTS:
        raise NotImplementedError(f"Unimplemented padding mode '{mode}' for np.pad.")
    unsupported = set(kwargs) - set(_ARGUMENTS[mode])
    if unsupported:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unsupported}")
    return _pad(
        array,
        pad_width,
        mode,
        kwargs.get("constant_values", 0),
        kwargs.get("stat_length"),
        kwargs.get("end_values", 0),
        kwargs.get("reflect_type", "even"),
    )


@jit(static_argnums=(1, 2, 4, 5, 6))
def _pad(array, pad_width, mode, constant_values, stat_length, end_values, reflect_type):
    ndim = array.ndim
    if ndim == 0:
        return array
    if any(before < 0 or after < 0 for before, after in pad_width):
        raise ValueError("index can't contain negative values")
    if mode == "constant":
        return _constant(array, pad_width, asarray(constant_values))
    if mode == "wrap":
        return _wrap(array, pad_width)
    if mode in ("symmetric", "reflect"):
        return _mirror(array, pad_width, mode == "reflect", reflect_type == "odd")
    if mode == "edge":
        return _edge(array, pad_width)
    if mode == "linear_ramp":
        return _linear_ramp(array, pad_width, _pairs(end_values, ndim, "end_values"))
    if mode == "empty":
        return _zeros(array, pad_width)
    if stat_length is not None:
        stat_length = _pairs(stat_length, ndim, "stat_length")
    return _statistic(array, pad_width, stat_length, _statistic_function(mode))


def _statistic_function(mode: str):
    return {"maximum": reductions.amax, "minimum": reductions.amin, "mean": mean, "median": median}[mode]


def _apply(array, pad_width: Pairs, function: Callable[..., Any], kwargs: dict[str, Any]):
    array = _zeros(array, pad_width)
    for axis, widths in enumerate(pad_width):
        array = apply_along_axis(function, axis, array, widths, axis, kwargs)
    return array


def _constant(array, pad_width: Pairs, values):
    values = convert(values, array.dtype, array.aval.weak_type)
    shape = np.shape(values)
    if len(shape) == 0 or shape == (1,):
        value = lax.squeeze(values, (0,)) if shape else values
        return lax.pad(array, value, [(before, after, 0) for before, after in pad_width])
    if len(shape) == 1 and shape != (2,):
        raise ValueError(
            f"jnp.pad: constant_values has unsupported shape {shape}. If the shape is 1D or 2D, the last "
            "dimension must be of size 1 or 2."
        )
    values = broadcast_to(values, (array.ndim, 2))
    for axis, sides in enumerate(pad_width):
        for side, width in enumerate(sides):
            if width == 0:
                continue
            widths = [(0, 0, 0)] * array.ndim
            widths[axis] = (width, 0, 0) if side == 0 else (0, width, 0)
            value = lax.squeeze(lax.slice(values, (axis, side), (axis + 1, side + 1)), (0, 1))
            array = lax.pad(array, value, widths)
    return array


def _axes_to_pad(array, pad_width: Pairs, mode: str):
    """(axis, (before, after)) of the axes that have elements to pad with."""
    for axis, (before, after) in enumerate(pad_width):
        if array.shape[axis]:
            yield axis, (before, after)
        elif before > 0 or after > 0:
            raise ValueError(f"Cannot apply '{mode}' padding to empty axis")


def _wrap(array, pad_width: Pairs):
    for axis, (before, after) in _axes_to_pad(array, pad_width, "wrap"):
        size = array.shape[axis]
        repeats_before, rest_before = divmod(before, size)
        repeats_after, rest_after = divmod(after, size)
        if not is_constant_shape((repeats_before, repeats_after)):
            raise InconclusiveDimensionOperation(
                f"jnp.pad with mode 'wrap' does not support symbolic sizes: how many times {size} elements fit into "
                f"{before} and {after} is not known. Concatenate slices instead."
            )
        parts = [array] * (repeats_before + repeats_after + 1)
        if rest_before:
            parts.insert(0, lax.slice_in_dim(array, size - rest_before, size, axis=axis))
        if rest_after:
            parts.append(lax.slice_in_dim(array, 0, rest_after, axis=axis))
        array = lax.concatenate(parts, dimension=axis)
    return array


def _mirror(array, pad_width: Pairs, without_edge: bool, odd: bool):
    for axis, widths in _axes_to_pad(array, pad_width, "reflect" if without_edge else "symmetric"):
        if widths == (0, 0):
            continue
        size = array.shape[axis]
        for before, width in zip((True, False), widths):
            _check_mirror(axis, size, width, before, without_edge)
            array = _mirror_side(array, axis, size, width, before, without_edge, odd)
    return array


def _check_mirror(axis: int, size: Any, width: Any, before: bool, without_edge: bool) -> None:
    """Raise ValueError for symbolic sizes, unless one image is known to be long enough."""
    if is_constant_shape((size, width)):
        return
    try:
        if size > 1 and size - int(without_edge) >= width:
            return
        error = None
    except InconclusiveDimensionOperation as unknown:
        error = unknown
    raise ValueError(
        "Shape polymorphism is supported for jnp.pad with 'reflect' or 'symmetric' padding mode only when it is "
        f"possible to determine at lowering time that the axis size (= {size}) is larger than 1 and larger or equal "
        f"than the padding length (= {width}). Error while handling {'left' if before else 'right'} padding on axis "
        f"{axis}. Export with a constraint, such as '{size} >= {width + 1}'."
    ) from error


def _mirror_side(array, axis: int, size: int, width: int, before: bool, without_edge: bool, odd: bool):
    """Add a margin on one side, one image of the array of original `size` after another."""
    start, stop = (0, 1) if before else (-1, None)
    edge = lax.slice_in_dim(array, start, stop, axis=axis)
    skipped = 1 if without_edge and size > 1 else 0
    while width > 0:
        taken = min(width, size - skipped)
        width -= taken
        start, stop = (skipped, skipped + taken) if before else (-(taken + skipped), -1 if skipped else None)
        image = flip(lax.slice_in_dim(array, start, stop, axis=axis), axis=axis)
        if odd:
            image = subtract(multiply(2, edge), image)
            if size > 1:
                start, stop = (0, 1) if before else (-1, None)
                edge = lax.slice_in_dim(image, start, stop, axis=axis)
        array = lax.concatenate([image, array] if before else [array, image], dimension=axis)
    return array


def _edge(array, pad_width: Pairs):
    for axis, (before, after) in _axes_to_pad(array, pad_width, "edge"):
        size = array.shape[axis]
        first = repeat(lax.slice_in_dim(array, 0, 1, axis=axis), before, axis=axis)
        last = repeat(lax.slice_in_dim(array, size - 1, size, axis=axis), after, axis=axis)
        array = lax.concatenate([first, array, last], dimension=axis)
    return array


def _linear_ramp(array, pad_width: Pairs, end_values: Pairs):
    def ramp(end, edge, width, axis):
        values = linspace(
            end, lax.squeeze(edge, (axis,)), width, endpoint=False, dtype=array.dtype, axis=axis
        )
        return convert(values, array.dtype, array.aval.weak_type)

    for axis, (before, after) in enumerate(pad_width):
        first = lax.slice_in_dim(array, 0, 1, axis=axis)
        last = lax.slice_in_dim(array, -1, None, axis=axis)
        up = ramp(end_values[axis][0], first, before, axis)
        down = flip(ramp(end_values[axis][1], last, after, axis), axis)
        array = lax.concatenate([up, array, down], dimension=axis)
    return array


def _statistic(array, pad_width: Pairs, lengths: Pairs | None, statistic):
    for axis, (before, after) in enumerate(pad_width):
        if lengths is None:
            first = last = statistic(array, axis=axis, keepdims=True)
        else:
            near_start, near_end = lengths[axis]
            if near_start == 0 or near_end == 0:
                raise ValueError("stat_length of 0 yields no value for padding")
            size = array.shape[axis]
            head = lax.slice_in_dim(array, 0, min(near_start, size), axis=axis)
            tail = lax.slice_in_dim(array, -min(near_end, size), None, axis=axis)
            first = statistic(head, axis=axis, keepdims=True)
            last = statistic(tail, axis=axis, keepdims=True)
        if is_integer(array.dtype):
            first, last = round_to_integer(first), round_to_integer(last)
        first, last = (convert(x, array.dtype, array.aval.weak_type) for x in (first, last))
        parts = [repeat(first, before, axis=axis), array, repeat(last, after, axis=axis)]
        array = lax.concatenate(parts, dimension=axis)
    return array


def _zeros(array, pad_width: Pairs):
    for axis, (before, after) in enumerate(pad_width):
        margins = [
            lax.full_like(array, 0, shape=(*array.shape[:axis], width, *array.shape[axis + 1 :]))
            for width in (before, after)
        ]
        array = lax.concatenate([margins[0], array, margins[1]], dimension=axis)
    return array
