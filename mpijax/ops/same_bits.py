"""Sums whose bits do not depend on the order of additions: the slot `same_bits` of primitives that add.

Each addend is split into a few float64 numbers on fixed grids. A sum of numbers on one grid is exact as long as it
needs at most 53 bits. Then the order of additions, lanes, threads and ranks cannot change a bit. The largest addend
determines the grids: with `n` addends, one grid keeps about `50 - log2(n)` bits below it. (J. Demmel, H. D. Nguyen,
Fast reproducible floating-point summation, ARITH 2013; products: K. Ozaki et al., Error-free transformations of matrix
multiplication, Numer. Algorithms 59, 2012.)

The rules here replace an operation, `(*operands, **params) -> result`. They return None to keep it, if its elements are
not floats. They work on whole arrays, so that all ranks use the same grids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules.registry import registry
from mpijax.core.types.typeof import typeof

WIDE = np.dtype(np.float64)
MANTISSA = 53
# Bits kept below the largest addend, in addition to those of the dtype.
MORE_BITS = 4
# The exponent bits of a float64, and twice those of 1: the latter minus the bits of a power of two is its reciprocal.
_WORD = np.dtype(np.uint64)
_EXPONENT, _TWICE_ONE = np.uint64(0x7FF << 52), np.uint64(2046 << 52)

Sum = Callable[[Any], Any]


def adds_floats(x: Any) -> bool:
    dtype = typeof(x).dtype
    return isinstance(dtype, np.dtype) and dtypes.issubdtype(dtype, np.inexact)


def of_sum(
    x: Any, total: Sum, largest: Callable[[Any], tuple[Any, Any]], count: int, dtype: np.dtype | None = None
) -> Any:
    """A sum of elements of `x` that has the same bits for any order of additions.

    total: the operation, on an array like `x` of any dtype; it adds at most `count` elements for each result. largest:
    from |x|, the largest magnitude among the addends of each element's sum, for each element and for each result.
    dtype: of the result, if not that of `x`.
    """
    dtype = typeof(x).dtype if dtype is None else dtype
    if dtype.kind == "c":
        parts = [of_sum(registry[name].bind(x), total, largest, count) for name in ("real", "imag")]
        return _converted(registry["complex"].bind(*parts), dtype)
    if count < 1 or 0 in typeof(x).shape:
        return _converted(total(x), dtype)
    finite, special = _finite(x), total(_special(x))
    power, power_of_result = (_power_of_two(_quarter(v)) for v in largest(_abs(finite)))
    scaled = _mul(_quarter(finite), _reciprocal(power))
    sums = [total(part) for part in _parts(scaled, _grids_of_sums(_bits(dtype), count))]
    out = _mul(_added(sums), power_of_result)
    return _with_special(_converted(_mul(out, 4.0), dtype), special)


def of_product(
    x: Any, y: Any, product: Callable[[Any, Any], Any], largest: Callable[[Any, Any], tuple], count: int, dtype: Any
) -> Any:
    """A product of arrays, each result a sum of `count` products of elements, with the same bits for any order.

    product: the operation, in any dtype. largest: from |x| and |y|, the magnitudes that divide each operand, and the
    magnitudes that multiply the results afterwards. dtype: of the result.
    """
    for k, operand in enumerate((x, y)):
        if typeof(operand).dtype.kind == "c":
            return _complex_product(x, y, product, largest, count, dtype, k)
    if count < 1 or 0 in (*typeof(x).shape, *typeof(y).shape):
        return _converted(product(x, y), dtype)
    special = product(*(_converted(_signs(v), np.dtype(np.float32)) for v in (x, y)))
    finite = [_finite(v) for v in (x, y)]
    magnitudes, of_result = largest(*map(_abs, finite))
    width = (MANTISSA - _log2(count)) // 2
    parts = []
    for v, magnitude in zip(finite, magnitudes, strict=True):
        scaled = _mul(_quarter(v), _reciprocal(_power_of_two(_quarter(magnitude))))
        parts.append(_parts(scaled, _grids_of_products(_bits(typeof(v).dtype), width)))
    last = max(map(len, parts))
    pairs = [(i + j, a, b) for i, a in enumerate(parts[0]) for j, b in enumerate(parts[1]) if i + j < last]
    out = _added([product(a, b) for _, a, b in sorted(pairs, key=lambda pair: pair[0])])
    for magnitude in of_result:
        out = _mul(_mul(out, _power_of_two(_quarter(magnitude))), 4.0)
    return _with_special(_converted(out, dtype), special)


def _complex_product(x, y, product, largest, count, dtype, which: int) -> Any:
    """Splits one operand into real and imaginary part."""
    real = np.dtype(np.float64 if np.dtype(dtype).itemsize == 16 else np.float32)

    def by(part: Any) -> Any:
        pair = (part, y) if which == 0 else (x, part)
        inner = dtype if any(typeof(v).dtype.kind == "c" for v in pair) else real
        return of_product(*pair, product, largest, count, inner)

    re, im = (by(registry[name].bind((x, y)[which])) for name in ("real", "imag"))
    if typeof(re).dtype.kind != "c":
        return registry["complex"].bind(re, im)
    (a, b), (c, d) = ((registry["real"].bind(v), registry["imag"].bind(v)) for v in (re, im))
    return registry["complex"].bind(_sub(a, d), _add(b, c))


# ---------------------------------------------------------------- grids


def _bits(dtype: np.dtype) -> int:
    """The number of bits kept below the largest addend."""
    return int(dtypes.finfo(dtype).nmant) + 1 + MORE_BITS


def _log2(count: int) -> int:
    return max((count - 1).bit_length(), 1)


def _grids_of_sums(bits: int, count: int) -> list[float]:
    """1.5 times powers of two: adding one and subtracting it rounds a number below 2 to its grid."""
    room = max(_log2(count) - 1, 1)
    kept = MANTISSA - room - 2
    sigma, found = 1.5 * 2.0 ** (1 + room), []
    for _ in range(-(-bits // kept)):
        found.append(sigma)
        sigma *= 2.0 ** (room - MANTISSA)
    return found


def _grids_of_products(bits: int, width: int) -> list[float]:
    """Grids with `width` bits between consecutive ones."""
    sigma, found = 1.5 * 2.0 ** (MANTISSA - width), []
    for _ in range(-(-(bits + 1) // width)):
        found.append(sigma)
        sigma *= 2.0**-width
    return found


def _parts(x: Any, grids: Sequence[float]) -> list[Any]:
    """Numbers that add up to `x`, except bits below the last grid; each is on its grid."""
    parts = []
    for sigma in grids:
        on_grid = _sub(_add(x, sigma), sigma)
        parts.append(on_grid)
        x = _sub(x, on_grid)
    return parts


def _added(parts: Sequence[Any]) -> Any:
    """The sum of a few numbers, starting with the last one."""
    out = parts[-1]
    for part in reversed(parts[:-1]):
        out = _add(part, out)
    return out


def _quarter(x: Any) -> Any:
    """x / 4 as float64, so that the largest numbers do not overflow."""
    return _mul(_converted(x, WIDE), 0.25)


def _power_of_two(x: Any) -> Any:
    """The largest power of two that does not exceed a magnitude."""
    bits = registry["and"].bind(_bitcast(x, _WORD), _constant_of(x, _EXPONENT))
    return _bitcast(bits, WIDE)


def _reciprocal(power: Any) -> Any:
    """The reciprocal of a power of two, or of zero."""
    bits = registry["sub"].bind(_constant_of(power, _TWICE_ONE), _bitcast(power, _WORD))
    return _bitcast(bits, WIDE)


def _bitcast(x: Any, dtype: np.dtype) -> Any:
    return registry["bitcast_convert_type"].bind(x, new_dtype=dtype)


# ---------------------------------------------------------------- infinities and NaN


def _is_finite(x: Any) -> Any:
    return registry["is_finite"].bind(x)


def _finite(x: Any) -> Any:
    """`x` with zeros in place of infinities and NaNs."""
    return _select(_is_finite(x), x, _constant(x, 0))


def _special(x: Any) -> Any:
    """The infinities and NaNs of `x`, zeros elsewhere."""
    return _select(_is_finite(x), _constant(x, 0), x)


def _signs(x: Any) -> Any:
    """-1, 0, 1, or an infinity or NaN: a product of these is finite where the product of the elements is."""
    return _select(_is_finite(x), registry["sign"].bind(x), x)


def _with_special(x: Any, special: Any) -> Any:
    """`x` where `special`, the sum of infinities and NaNs, is finite; else `special`, with one canonical NaN."""
    dtype = typeof(x).dtype
    special = _converted(special, dtype)
    special = _select(registry["eq"].bind(special, special), special, _constant(special, np.nan))
    return _select(_is_finite(special), x, special)


# ---------------------------------------------------------------- elementwise operations


def _constant(like: Any, value: Any) -> Any:
    return _constant_of(like, np.asarray(value).astype(typeof(like).dtype))


def _constant_of(like: Any, scalar: Any) -> Any:
    """A scalar broadcast to the shape of another value."""
    return _spread(np.asarray(scalar), typeof(like).shape, ()) if typeof(like).shape else np.asarray(scalar)


def _converted(x: Any, dtype: Any) -> Any:
    if typeof(x).dtype == dtype:
        return x
    return registry["convert_element_type"].bind(x, new_dtype=np.dtype(dtype), weak_type=False, sharding=None)


def _abs(x: Any) -> Any:
    return registry["abs"].bind(x)


def _binary(name: str, x: Any, y: Any) -> Any:
    return registry[name].bind(x, _constant(x, y) if isinstance(y, float) else y)


def _add(x: Any, y: Any) -> Any:
    return _binary("add", x, y)


def _sub(x: Any, y: Any) -> Any:
    return _binary("sub", x, y)


def _mul(x: Any, y: Any) -> Any:
    return _binary("mul", x, y)


def _select(which: Any, x: Any, y: Any) -> Any:
    return registry["select_n"].bind(which, y, x)


# ---------------------------------------------------------------- the largest addend of each sum


def _spread(x: Any, shape: Sequence[int], dims: Sequence[int]) -> Any:
    return registry["broadcast_in_dim"].bind(
        x, shape=tuple(shape), broadcast_dimensions=tuple(map(int, dims)), sharding=None
    )


def _over(x: Any, axes: Sequence[int]) -> Any:
    return registry["reduce_max"].bind(x, axes=tuple(axes), out_sharding=None)


def along(axes: Sequence[int]) -> Callable[[Any], tuple[Any, Any]]:
    """The largest magnitude along axes that the result does not have."""

    def largest(x: Any) -> tuple[Any, Any]:
        shape, found = typeof(x).shape, _over(x, axes)
        return _spread(found, shape, [d for d in range(len(shape)) if d not in axes]), found

    return largest


def kept_along(axis: int) -> Callable[[Any], tuple[Any, Any]]:
    """The largest magnitude along an axis that the result also has."""

    def largest(x: Any) -> tuple[Any, Any]:
        return (along((axis,))(x)[0],) * 2

    return largest


# ---------------------------------------------------------------- rules


def reduce_sum(x: Any, *, axes: Sequence[int], out_sharding: Any = None) -> Any:
    if not adds_floats(x):
        return None
    del out_sharding  # the type of the result contains it
    total = lambda v: registry["reduce_sum"].bind(v, axes=tuple(axes), out_sharding=None)
    return of_sum(x, total, along(axes), math.prod(typeof(x).shape[a] for a in axes))


def cumsum(x: Any, *, axis: int, reverse: bool) -> Any:
    if not adds_floats(x):
        return None
    total = lambda v: registry["cumsum"].bind(v, axis=axis, reverse=reverse)
    return of_sum(x, total, kept_along(axis), typeof(x).shape[axis])


def dot_general(x: Any, y: Any, **params: Any) -> Any:
    out = registry["dot_general"].type_rule(typeof(x), typeof(y), **params)
    if not dtypes.issubdtype(out.dtype, np.inexact):
        return None
    x, y = (v if adds_floats(v) else _converted(v, out.dtype) for v in (x, y))
    (lc, rc), (lb, rb) = params["dimension_numbers"]
    if _is_thin(x, lc, lb) or _is_thin(y, rc, rb):
        return _thin_product(x, y, out, lc, rc, lb, rb)

    def product(a: Any, b: Any) -> Any:
        here = {**params, "preferred_element_type": typeof(a).dtype, "out_sharding": None}
        return registry["dot_general"].bind(a, b, **here)

    def largest(a: Any, b: Any) -> tuple[Any, Any]:
        of_rows, of_columns = _over(a, lc), _over(b, rc)
        rows = [d for d in range(typeof(a).ndim) if d not in (*lc, *lb)]
        batch = list(range(len(lb)))
        at_rows = [*batch, *range(len(lb), len(lb) + len(rows))]
        at_columns = [*batch, *range(len(lb) + len(rows), out.ndim)]
        scales, of_result = [], []
        for v, found, contract, in_batch, at in ((a, of_rows, lc, lb, at_rows), (b, of_columns, rc, rb, at_columns)):
            kept = [d for d in range(typeof(v).ndim) if d not in contract]
            scales.append(_spread(found, typeof(v).shape, kept))
            # In the order of the result: batch axes first.
            order = [kept.index(d) for d in (*in_batch, *(d for d in kept if d not in in_batch))]
            moved = registry["transpose"].bind(found, permutation=tuple(order)) if order else found
            of_result.append(_spread(moved, out.shape, at))
        return scales, of_result

    return of_product(x, y, product, largest, math.prod(typeof(x).shape[d] for d in lc), out.dtype)


def _is_thin(x: Any, contract: Sequence[int], batch: Sequence[int]) -> bool:
    """Whether an operand of a product consists of vectors."""
    return all(n == 1 for d, n in enumerate(typeof(x).shape) if d not in (*contract, *batch))


def _thin_product(x: Any, y: Any, out: Any, lc, rc, lb, rb) -> Any:
    """Products of elements as float64, which is exact for float32, and their sums."""
    ndims = [typeof(v).ndim for v in (x, y)]
    free = [[d for d in range(n) if d not in (*c, *b)] for n, c, b in zip(ndims, (lc, rc), (lb, rb), strict=True)]
    shape = (*out.shape, *(typeof(x).shape[d] for d in lc))
    wide = np.dtype(np.complex128) if "c" in (typeof(x).dtype.kind, typeof(y).dtype.kind) else WIDE
    factors = []
    for v, contract, batch, own, first in ((x, lc, lb, free[0], len(lb)), (y, rc, rb, free[1], len(lb) + len(free[0]))):
        at = {d: k for k, d in enumerate(batch)}
        at.update({d: first + k for k, d in enumerate(own)})
        at.update({d: out.ndim + k for k, d in enumerate(contract)})
        order = sorted(at, key=at.__getitem__)
        v = _converted(v, wide)
        v = registry["transpose"].bind(v, permutation=tuple(order)) if order else v
        factors.append(_spread(v, shape, [at[d] for d in order]))
    axes = tuple(range(out.ndim, len(shape)))
    total = lambda v: registry["reduce_sum"].bind(v, axes=axes, out_sharding=None)
    return of_sum(_mul(*factors), total, along(axes), math.prod(shape[out.ndim :]), out.dtype)


def conv_general_dilated(x: Any, y: Any, **params: Any) -> Any:
    conv = registry["conv_general_dilated"]
    out = conv.type_rule(typeof(x), typeof(y), **params)
    if not dtypes.issubdtype(out.dtype, np.inexact):
        return None
    x, y = (v if adds_floats(v) else _converted(v, out.dtype) for v in (x, y))
    product = lambda a, b: conv.bind(a, b, **{**params, "preferred_element_type": typeof(a).dtype})

    lhs_spec, rhs_spec, out_spec = params["dimension_numbers"]
    apart = params["batch_group_count"] == 1  # then examples and output features have separate grids

    def largest(a: Any, b: Any) -> tuple[Any, Any]:
        scales, of_result = [], []
        for v, own, at in ((a, lhs_spec[0], out_spec[0]), (b, rhs_spec[0], out_spec[1])):
            shape = typeof(v).shape
            found = _over(v, [d for d in range(len(shape)) if d != own or not apart])
            scales.append(_spread(found, shape, (own,) if apart else ()))
            of_result.append(_spread(found, out.shape, (at,) if apart else ()))
        return scales, of_result

    count = math.prod(n for d, n in enumerate(typeof(y).shape) if d != rhs_spec[0])
    return of_product(x, y, product, largest, count, out.dtype)
