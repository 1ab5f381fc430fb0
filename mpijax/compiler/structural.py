"""Index maps: for every primitive that moves elements, the expression of one element of its result.

A rule is `rule(r, index, avals, params) -> Expr`; `r.read(k, index)` is the element of operand
`k` at an index, `r` also makes constants, applies scalar operations and turns computed
integers into indices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.compiler.index import Dynamic, Lin, reindexed
from mpijax.core import dtypes

INT64 = np.dtype(np.int64)
UINT32 = np.dtype(np.uint32)

rules: dict[str, Callable[..., Any]] = {}


def rule(name: str) -> Callable:
    def register(fun):
        rules[name] = fun
        return fun

    return register


@rule("broadcast_in_dim")
def _broadcast_in_dim(r, index, avals, params):
    operand = avals[0].shape
    picked = [index[d] if operand[i] != 1 else Lin(0) for i, d in enumerate(params["broadcast_dimensions"])]
    return r.read(0, tuple(picked))


@rule("reshape")
def _reshape(r, index, avals, params):
    return r.read(0, reindexed(index, params["new_sizes"], avals[0].shape))


@rule("squeeze")
def _squeeze(r, index, avals, params):
    ndim = len(avals[0].shape)
    dropped = {d % ndim for d in params["dimensions"]}
    it = iter(index)
    return r.read(0, tuple(Lin(0) if d in dropped else next(it) for d in range(ndim)))


@rule("expand_dims")
def _expand_dims(r, index, avals, params):
    new = set(params["dimensions"])
    return r.read(0, tuple(i for d, i in enumerate(index) if d not in new))


@rule("transpose")
def _transpose(r, index, avals, params):
    source = [Lin(0)] * len(index)
    for out_dim, in_dim in enumerate(params["permutation"]):
        source[in_dim] = index[out_dim]
    return r.read(0, tuple(source))


@rule("rev")
def _rev(r, index, avals, params):
    shape = avals[0].shape
    dims = set(params["dimensions"])
    return r.read(0, tuple(-i + (shape[d] - 1) if d in dims else i for d, i in enumerate(index)))


@rule("slice")
def _slice(r, index, avals, params):
    strides = params["strides"] or (1,) * len(index)
    return r.read(0, tuple(i * s + b for i, s, b in zip(index, strides, params["start_indices"], strict=True)))


# ---------------------------------------------------------------- parts


@rule("concatenate")
def _concatenate(r, index, avals, params):
    axis = params["dimension"]
    cuts, parts, at = [], [], 0
    for k, aval in enumerate(avals):

        def part(k=k, at=at):
            return r.read(k, tuple(i - at if d == axis else i for d, i in enumerate(index)))

        parts.append(part)
        at += aval.shape[axis]
        cuts.append(at)
    return r.choice(index[axis], tuple(cuts[:-1]), tuple(parts))


@rule("pad")
def _pad(r, index, avals, params):
    def outside():
        return r.read(1, ())

    start = [int(low) for low, _, _ in params["padding_config"]]
    return _boxed(r, index, start, avals[0].shape, outside, lambda source: r.read(0, source))


@rule("static_update")
def _static_update(r, index, avals, params):
    def outside():
        return r.read(0, index)

    def inside(source):
        new = r.read(1, source)
        return new if params["combine"] is None else r.op(params["combine"], outside(), new)

    return _boxed(r, index, params["start"], avals[1].shape, outside, inside)


def _boxed(r, index, start, shape, outside, inside):
    """`inside(position in the box)` in the box of `shape` at `start`, else `outside()`."""

    def along(axis: int, source: tuple[Lin, ...]):
        if axis == len(index):
            return inside(source)
        at = index[axis] - start[axis]
        return r.choice(at, (0, shape[axis]), (outside, lambda: along(axis + 1, (*source, at)), outside))

    return along(0, ())


@rule("copy")
@rule("copy_p")
@rule("pvary")
@rule("random_wrap")
@rule("random_unwrap")
@rule("optimization_barrier")
def _identity(r, index, avals, params):
    return r.read(0, index)


@rule("iota")
def _iota(r, index, avals, params):
    return r.convert(r.index(index[params["dimension"]]), params["dtype"])


@rule("rank_index")
def _rank_index(r, index, avals, params):
    return r.convert(r.index(Lin(params["position"])), np.dtype(np.int32))


def clamped(r, expr, low: int, high: int):
    """A start index moved into `[low, high]`, as dynamic slices and clamping gathers do."""
    wide = r.convert(expr, INT64)
    if expr.dtype.kind == "u" and expr.dtype.itemsize == 8:
        wide = r.op("min", expr, r.const(2**62, expr.dtype))
        wide = r.convert(wide, INT64)
    return r.op("min", r.op("max", wide, r.const(low, INT64)), r.const(high, INT64))


@rule("dynamic_slice")
def _dynamic_slice(r, index, avals, params):
    operand = avals[0].shape
    source = []
    for d, (i, full, part) in enumerate(zip(index, operand, params["slice_sizes"], strict=True)):
        if full == part:
            source.append(i)
            continue
        start = clamped(r, r.read(1 + d, ()), 0, full - part)
        source.append(i + r.as_index(start, full - part + 1))
    return r.read(0, tuple(source))


@rule("gather")
def _gather(r, index, avals, params):
    operand = avals[0].shape
    dn = params["dimension_numbers"]
    sizes = params["slice_sizes"]
    mode = params["mode"].name
    offset_dims = list(dn.offset_dims)
    batch = [index[d] for d in range(len(index)) if d not in offset_dims]
    removed = set(dn.collapsed_slice_dims) | set(dn.operand_batching_dims)
    window_dims = [d for d in range(len(operand)) if d not in removed]
    position: list[Lin] = [Lin(0)] * len(operand)
    for d, out_dim in zip(window_dims, offset_dims, strict=True):
        position[d] = index[out_dim]
    for op_dim, idx_dim in zip(dn.operand_batching_dims, dn.start_indices_batching_dims, strict=True):
        position[op_dim] = batch[idx_dim]
    valid = None
    for k, d in enumerate(dn.start_index_map):
        last = operand[d] - sizes[d]
        raw = r.read(1, (*batch, Lin(k)))
        start = clamped(r, raw, 0, max(last, 0))
        if mode == "FILL_OR_DROP":
            ok = _within(r, raw, last)
            valid = ok if valid is None else r.op("and", valid, ok)
        position[d] = position[d] + r.as_index(start, max(last, 0) + 1)
    if 0 in operand:
        return _fill(r, avals[0].dtype, params)
    value = r.read(0, tuple(position))
    if valid is None:
        return value
    return r.op("select_n", valid, _fill(r, value.dtype, params), value)


def _within(r, raw, last: int):
    """0 <= raw <= last."""
    wide = r.convert(raw, INT64)
    return r.op("and", r.op("ge", wide, r.const(0, INT64)), r.op("le", wide, r.const(last, INT64)))


def _fill(r, dtype, params):
    """What out-of-bounds positions read."""
    given = params["fill_value"]
    value = dtypes.out_of_bounds(dtype) if given is None else given
    return r.const(value, dtype if isinstance(dtype, np.dtype) else UINT32)


# ---------------------------------------------------------------- random bits


@rule("random_seed")
def _random_seed(r, index, avals, params):
    word = index[-1]
    seed = r.read(0, index[:-1])
    wide = r.convert(seed, np.dtype(np.uint64 if seed.dtype.itemsize == 8 else np.uint32))
    low = r.convert(wide, UINT32)
    if seed.dtype.itemsize == 8:
        high = r.convert(r.op("shift_right_logical", wide, r.const(32, wide.dtype)), UINT32)
    else:
        high = r.const(0, UINT32)
    return _pick(r, word, high, low)


def _pick(r, word: Lin, first, second):
    """`first` for word 0 of a key, `second` for word 1."""
    if not word.terms:
        return second if word.offset else first
    return r.op("select_n", r.op("eq", r.index(word), r.const(0, INT64)), second, first)


def _key_words(r, operand: int, index):
    return r.read(operand, (*index, Lin(0))), r.read(operand, (*index, Lin(1)))


def _counter(r, index, shape):
    """The 64-bit position in a dense array as two 32-bit words."""
    total = Lin(0)
    step = 1
    for i, d in zip(reversed(index), reversed(shape), strict=True):
        total = total + i * step
        step *= d
    position = r.index(total)
    low = r.convert(position, UINT32)
    if step <= 2**32:
        return r.const(0, UINT32), low
    high = r.op("shift_right_logical", position, r.const(32, INT64))
    return r.convert(high, UINT32), low


@rule("random_split")
def _random_split(r, index, avals, params):
    shape = params["shape"]
    lead = len(index) - 1 - len(shape)
    k0, k1 = _key_words(r, 0, index[:lead])
    high, low = _counter(r, index[lead:-1], shape)
    hashed = [r.op("threefry2x32", k0, k1, high, low, result=i) for i in (0, 1)]
    return _pick(r, index[-1], *hashed)


@rule("random_fold_in")
def _random_fold_in(r, index, avals, params):
    k0, k1 = _key_words(r, 0, index[:-1])
    data = r.convert(r.read(1, index[:-1]), UINT32)
    hashed = [r.op("threefry2x32", k0, k1, r.const(0, UINT32), data, result=i) for i in (0, 1)]
    return _pick(r, index[-1], *hashed)


@rule("random_bits")
def _random_bits(r, index, avals, params):
    shape, width = params["shape"], params["bit_width"]
    lead = len(index) - len(shape)
    k0, k1 = _key_words(r, 0, index[:lead])
    high, low = _counter(r, index[lead:], shape)
    a, b = (r.op("threefry2x32", k0, k1, high, low, result=i) for i in (0, 1))
    if width == 64:
        wide = np.dtype(np.uint64)
        top = r.op("shift_left", r.convert(a, wide), r.const(32, wide))
        return r.op("or", top, r.convert(b, wide))
    bits = r.op("xor", a, b)
    return bits if width == 32 else r.convert(bits, np.dtype(f"uint{width}"))


def as_dynamic(expr, size: int) -> Lin:
    """A computed integer in `range(size)` as an index."""
    return Lin(0, [(Dynamic(expr, size), 1)])
