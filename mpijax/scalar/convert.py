"""Conversion between dtypes as defined by `lax.convert_element_type`.

Float to integer truncates, saturates at the ends of the integer type, and converts NaN to 0. Conversion to bool is
`x != 0`, also for a denormal bfloat16. Integers wrap. Complex to real drops the imaginary part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpijax.scalar import narrow
from mpijax.scalar.types import FLOAT32, FLOAT64, Scalar, imag_part, info

INT32 = np.dtype(np.int32)

if TYPE_CHECKING:
    from mpijax.scalar.builder import Builder


def convert(b: Builder, x: Scalar, dtype: np.dtype) -> Scalar:
    """x as `dtype`."""
    if x.dtype == dtype:
        return x
    source, target = info(x.dtype), info(dtype)
    if target.kind == "c":
        re = convert(b, Scalar(source.part, x.ir), target.part)
        im = b.const(0, target.part) if x.imag is None else convert(b, x.imag, target.part)
        return Scalar(dtype, re.ir, im)
    if source.kind == "c":
        re = Scalar(source.part, x.ir)
        if target.kind == "b":
            return b.or_(convert(b, re, dtype), convert(b, imag_part(x), dtype))
        return convert(b, re, dtype)
    if target.kind == "b":
        if source.kind == "n":  # a denormal bfloat16 is a denormal float32, which a comparison may treat as zero
            x = b.shl(b.bitcast(Scalar(FLOAT32, x.ir), INT32), b.const(1, INT32))
        return b.compare("ne", x, b.const(0, x.dtype))
    if target.is_integer:
        return _to_integer(b, x, dtype)
    return _to_float(b, x, dtype)


def _to_integer(b: Builder, x: Scalar, dtype: np.dtype) -> Scalar:
    source, target = info(x.dtype), info(dtype)
    if source.kind == "b":
        return b.cast("zext", x, dtype)
    if source.is_integer:
        if target.bits == source.bits:
            return Scalar(dtype, x.ir)
        if target.bits < source.bits:
            return b.cast("trunc", x, dtype)
        return b.cast("sext" if source.kind == "i" else "zext", x, dtype)
    if target.bits in (8, 16) or (target.bits == 32 and target.kind == "i"):
        return _saturated(b, x, dtype)
    name = "fptosi" if target.kind == "i" else "fptoui"
    result, operand = b.vector(target.compute), b.vector(source.compute)
    overload = f"{b._suffix(target.compute)}.{b._suffix(source.compute)}"
    return Scalar(dtype, b.call(f"llvm.{name}.sat.{overload}", result, [(operand, x.ir)]))


def _saturated(b: Builder, x: Scalar, dtype: np.dtype) -> Scalar:
    """Converts a float to an integer type within int32, clamping first, by instructions that exist for vectors.

    LLVM's saturating conversions run lane by lane.
    """
    wide = FLOAT64 if info(x.dtype).compute == "double" else FLOAT32
    value = Scalar(wide, x.ir)
    ends = np.iinfo(dtype)
    low, high = b.const(ends.min, wide), b.const(ends.max, wide)
    clamped = b.select(b.compare("ge", value, low), value, low)
    above = b.compare("ge", clamped, high)
    if int(wide.type(ends.max)) == ends.max:
        number = b.cast("fptosi", b.select(above, high, clamped), INT32)
    else:  # the largest integer is not a float: map 2^31, the value of `high`, to it
        number = b.cast("fptosi", b.select(above, b.const(0, wide), clamped), INT32)
        number = b.select(above, b.const(ends.max, INT32), number)
    number = b.select(b.is_nan(value), b.const(0, INT32), number)
    return Scalar(dtype, number.ir) if dtype.itemsize == 4 else b.cast("trunc", number, dtype)


def _to_float(b: Builder, x: Scalar, dtype: np.dtype) -> Scalar:
    source, target = info(x.dtype), info(dtype)
    if source.is_float:
        wide = source.compute == "double"
        if wide == (target.compute == "double"):
            value = Scalar(FLOAT64 if wide else FLOAT32, x.ir)
        elif wide:
            value = b.cast("fptrunc", x, FLOAT32)
        else:
            value = b.cast("fpext", x, FLOAT64)
    else:
        value = b.cast(
            "sitofp" if source.kind == "i" else "uitofp", x, FLOAT64 if target.compute == "double" else FLOAT32
        )
    result = Scalar(dtype, value.ir)
    return narrow.round_to(b, result) if target.kind == "n" else result
