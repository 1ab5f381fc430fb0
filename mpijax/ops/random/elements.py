"""Index maps of operations on PRNG keys: compute one word of a key, or one random number, by threefry2x32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core.rules.index_maps import INT64, UINT32, Elements, Index
from mpijax.core.shapes.index import Lin


def seed(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    word, number = index[-1], r.read(0, index[:-1])
    wide = r.convert(number, np.dtype(np.uint64 if number.dtype.itemsize == 8 else np.uint32))
    low = r.convert(wide, UINT32)
    if number.dtype.itemsize == 8:
        high = r.convert(r.op("shift_right_logical", wide, r.const(32, wide.dtype)), UINT32)
    else:
        high = r.const(0, UINT32)
    return _pick(r, word, high, low)


def split(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    shape = params["shape"]
    lead = len(index) - 1 - len(shape)
    k0, k1 = _key_words(r, 0, index[:lead])
    high, low = _counter(r, index[lead:-1], shape)
    return _pick(r, index[-1], *_hashed(r, k0, k1, high, low))


def fold_in(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    k0, k1 = _key_words(r, 0, index[:-1])
    data = r.convert(r.read(1, index[:-1]), UINT32)
    return _pick(r, index[-1], *_hashed(r, k0, k1, r.const(0, UINT32), data))


def bits(r: Elements, index: Index, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    shape, width = params["shape"], params["bit_width"]
    lead = len(index) - len(shape)
    k0, k1 = _key_words(r, 0, index[:lead])
    high, low = _counter(r, index[lead:], shape)
    a, b = _hashed(r, k0, k1, high, low)
    if width == 64:
        wide = np.dtype(np.uint64)
        top = r.op("shift_left", r.convert(a, wide), r.const(32, wide))
        return r.op("or", top, r.convert(b, wide))
    found = r.op("xor", a, b)
    return found if width == 32 else r.convert(found, np.dtype(f"uint{width}"))


def _hashed(r: Elements, *words: Any) -> list[Any]:
    return [r.op("threefry2x32", *words, result=i) for i in (0, 1)]


def _pick(r: Elements, word: Lin, first: Any, second: Any) -> Any:
    """`first` for word 0 of a key, `second` for word 1."""
    if not word.terms:
        return second if word.offset else first
    return r.op("select_n", r.op("eq", r.index(word), r.const(0, INT64)), second, first)


def _key_words(r: Elements, operand: int, index: Index) -> tuple[Any, Any]:
    return r.read(operand, (*index, Lin(0))), r.read(operand, (*index, Lin(1)))


def _counter(r: Elements, index: Index, shape: Sequence[int]) -> tuple[Any, Any]:
    """The 64-bit position in a dense array as two 32-bit words."""
    total, step = Lin(0), 1
    for i, d in zip(reversed(index), reversed(shape), strict=True):
        total = total + i * step
        step *= d
    position = r.index(total)
    low = r.convert(position, UINT32)
    if step <= 2**32:
        return r.const(0, UINT32), low
    high = r.op("shift_right_logical", position, r.const(32, INT64))
    return r.convert(high, UINT32), low
