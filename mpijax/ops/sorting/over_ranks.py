"""Sorts arrays along an axis that is sharded over ranks.

If another axis can be split instead, one alltoall redistributes the array, and each rank sorts whole lines. A single
line is sorted as follows. Each rank sorts its part. The ranks find together where the parts of the result begin in each
rank's sorted part. Each element is then sent once, to its final rank: `(n - 1) / n` of a part on average.

The borders are found digit by digit from the highest digit of the keys, as in a radix selection: the ranks count their
elements below each value of the next digit, and add the counts. Elements with equal keys are ordered by rank, so the
sort is stable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules import sharding_rules as rules
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.cuts import Cut, part_number
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.counted import counted_all_to_all
from mpijax.ops.collectives.gather_scatter import all_gather
from mpijax.ops.collectives.reductions import psum
from mpijax.ops.elementwise.bitwise import bitwise_not
from mpijax.ops.elementwise.convert import bitcast_convert_type, convert_element_type
from mpijax.ops.elementwise.select import clamp, select
from mpijax.ops.elementwise.unary import imag, real
from mpijax.ops.indexing.gather import GatherDimensionNumbers, GatherScatterMode, gather
from mpijax.ops.indexing.slicing import concatenate, index_in_dim, slice_in_dim
from mpijax.ops.ranks.loops import fori_loop, loop_map
from mpijax.ops.reductions.cumulative import cumsum
from mpijax.ops.reductions.standard import reduce_max, reduce_min, reduce_sum
from mpijax.ops.shapes.creation import full_like
from mpijax.ops.shapes.reshape import broadcast_to, expand_dims, reshape, transpose
from mpijax.ops.shapes.stacking import stack
from mpijax.transforms.batching import move_dim

# Bits of a digit. Longer digits mean fewer rounds, which send more bytes.
_DIGITS = (8, 4, 2)
# Maximal number of lines that the program sorts without a loop.
_UNROLLED = 4


def plan(s: rules.Operation) -> rules.Plan | None:
    """The plan of `sort` along a split axis."""
    shape, dim = s.shapes[0], s.params["dimension"]
    cuts = rules.agreed(s.shapes, s.cuts, shape)
    cut = cuts[dim]
    if cut is None:
        return None
    moved = rules.moved_off(s, shape, cuts, [dim])
    if moved is not None:
        return rules.same(s, moved)
    if math.prod(shape) == 0 or shape[dim] >= 2**31:
        return None
    target = s.even(shape[dim], cut.axes)
    results = (*cuts[:dim], target, *cuts[dim + 1 :])
    me = part_number(cut.axes, s.sizes, s.place)
    return rules.Plan(
        [cuts] * len(s.shapes), [results] * len(s.shapes), s.params, program=_program(s.params, cut, target, me)
    )


def _program(params: Any, have: Cut, want: Cut, me: int) -> Callable[..., Any]:
    """Sorts one line after the other: there are fewer lines than ranks."""
    dim, num_keys = params["dimension"], params["num_keys"]

    def program(*xs: Any) -> list[Any]:
        shape = typeof(xs[0]).shape
        others = (*shape[:dim], *shape[dim + 1 :])
        flat = [reshape(move_dim(x, dim, 0), (shape[dim], math.prod(others))) for x in xs]
        if math.prod(others) > _UNROLLED:
            rows = [transpose(x, (1, 0)) for x in flat]
            found = loop_map(lambda line: tuple(_sorted(line, num_keys, have, want, me)), tuple(rows))
            columns = [transpose(x, (1, 0)) for x in found]
        else:
            lines = [
                _sorted([index_in_dim(x, k, 1, False) for x in flat], num_keys, have, want, me)
                for k in range(math.prod(others))
            ]
            columns = [stack(parts, 1) for parts in zip(*lines, strict=True)]
        low, high = want.part(me)
        return [move_dim(reshape(x, (high - low, *others)), 0, dim) for x in columns]

    return program


def _sorted(xs: Sequence[Any], num_keys: int, have: Cut, want: Cut, me: int) -> list[Any]:
    """Sorts one line; returns this rank's part of it."""
    xs = _sorted_here(xs, num_keys)
    send, receive = _counts([w for x in xs[:num_keys] for w in _words(x)], have, want, me)
    low, high = want.part(me)
    return _sorted_here([counted_all_to_all(x, send, receive, have.axes, high - low) for x in xs], num_keys)


def _sorted_here(xs: Sequence[Any], num_keys: int) -> list[Any]:
    return registry["sort"].bind(*xs, dimension=0, is_stable=True, num_keys=num_keys)


# ---------------------------------------------------------------- keys as unsigned integers


def _words(x: Any) -> list[tuple[Any, int]]:
    """Unsigned integers in the order of the elements, with their number of significant bits; most significant first."""
    dtype = typeof(x).dtype
    if dtype.kind == "c":
        return [*_words(real(x)), *_words(imag(x))]
    if dtype == np.bool_ or dtypes.issubdtype(dtype, np.unsignedinteger):
        bits = 1 if dtype == np.bool_ else 8 * dtype.itemsize
        return [(convert_element_type(x, _unsigned(dtype)), bits)]
    if dtypes.issubdtype(dtype, np.integer):
        wide = convert_element_type(x, np.dtype(f"i{_unsigned(dtype).itemsize}"))
        word, bits = bitcast_convert_type(wide, _unsigned(dtype)), 8 * dtype.itemsize
        return [(word + full_like(word, _unsigned(dtype).type(2 ** (bits - 1))), bits)]
    return [_of_float(convert_element_type(x, np.float32) if dtype.itemsize < 4 else x)]


def _unsigned(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.uint64 if dtype.itemsize == 8 else np.uint32)


def _of_float(x: Any) -> tuple[Any, int]:
    """Inverts the bits of a negative number, else sets the sign bit. Gives one zero and one NaN, which is largest."""
    dtype = typeof(x).dtype
    x = select(x == full_like(x, 0), full_like(x, 0), x)
    x = select(x == x, x, full_like(x, np.nan))
    word, bits = bitcast_convert_type(x, _unsigned(dtype)), 8 * dtype.itemsize
    sign = full_like(word, _unsigned(dtype).type(2 ** (bits - 1)))
    return select(word >= sign, bitwise_not(word), word | sign), bits


# ---------------------------------------------------------------- borders of the parts of the result


def _counts(words: Sequence[tuple[Any, int]], have: Cut, want: Cut, me: int) -> tuple[Any, Any]:
    """The numbers of elements that this rank sends to, and receives from, each rank. words: the sorted keys.

    Communicates an allreduce of a few bytes for each digit of the keys, and one allgather.
    """
    low, high = have.part(me)
    borders = want.lows[1:].astype(np.int32)
    # For each border: the range of local elements that may be at it, and how many of these, on all ranks, precede it.
    state = np.zeros_like(borders), np.full_like(borders, high - low), borders
    counted = np.dtype(np.int16 if have.size < 2**15 else np.int32)
    digit = _digit(sum(bits for _, bits in words), len(borders), want.widest)
    for word, bits in words:
        state = _narrowed(word, bits, digit, state, have.axes, counted)
    starts, ends, left = state
    spans = all_gather(stack([starts, ends], 0), have.axes)  # [rank, start or end, border]
    starts, ends = (index_in_dim(spans, k, 1, False) for k in (0, 1))
    equal = ends - starts
    left = broadcast_to(left, typeof(equal).shape) - (cumsum(equal, 0) - equal)
    at = starts + clamp(full_like(equal, 0), left, equal)
    sizes = have.lengths[:, None].astype(np.int32)
    at = concatenate([np.zeros_like(sizes), at, sizes], 1)
    counts = slice_in_dim(at, 1, None, axis=1) - slice_in_dim(at, 0, -1, axis=1)
    return index_in_dim(counts, me, 0, False), index_in_dim(counts, me, 1, False)


def _digit(bits: int, borders: int, part: int) -> int:
    """The longest digit with which the counts of all rounds take at most a quarter of a part."""
    return next((d for d in _DIGITS if 8 * borders * (2**d - 1) * -(-bits // d) <= part), _DIGITS[-1])


def _narrowed(
    word: Any, bits: int, digit: int, state: tuple[Any, Any, Any], names: tuple[Any, ...], counted: np.dtype
) -> tuple[Any, Any, Any]:
    """Narrows the range of elements at each border to those with the same `word`. Sends counts as `counted`."""
    if typeof(word).shape == (0,):
        word = np.zeros(1, typeof(word).dtype)
    kind = typeof(word).dtype
    rounds = -(-bits // digit)
    digits = np.arange(1, 2**digit, dtype=kind)

    def iteration(k: Any, carry: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
        starts, ends, left, known = carry
        shift = convert_element_type(digit * (rounds - 1 - k), kind)
        tried = expand_dims(known, [1]) | expand_dims(digits << shift, [0])  # [border, digit]
        begin, end, rest = (broadcast_to(expand_dims(v, [1]), typeof(tried).shape) for v in (starts, ends, left))
        places = _places(word, tried, begin, end)
        below = convert_element_type(psum(convert_element_type(places - begin, counted), names), np.int32)
        reached = below <= rest
        found = reduce_sum(convert_element_type(reached, kind), [1])
        return (
            reduce_max(select(reached, places, begin), [1]),
            reduce_min(select(reached, end, places), [1]),
            left - reduce_max(select(reached, below, full_like(below, 0)), [1]),
            known | (found << shift),
        )

    *state, _ = fori_loop(0, rounds, iteration, (*state, np.zeros(typeof(state[0]).shape, kind)))
    return tuple(state)


def _places(word: Any, wanted: Any, begin: Any, end: Any) -> Any:
    """The number of elements of a vector before each wanted value; `word` is sorted between `begin` and `end`."""
    size = typeof(word).shape[0]
    numbers = GatherDimensionNumbers((), (0,), (0,))
    axis = typeof(wanted).ndim

    def iteration(_: Any, span: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = span
        middle = low + ((high - low) >> 1)
        index = expand_dims(clamp(full_like(middle, 0), middle, full_like(middle, size - 1)), [axis])
        found = gather(word, index, numbers, (1,), mode=GatherScatterMode.PROMISE_IN_BOUNDS)
        less = (found < wanted) & (low < high)
        return select(less, middle + 1, low), select(less, high, middle)

    return fori_loop(0, size.bit_length(), iteration, (begin, end))[0]
