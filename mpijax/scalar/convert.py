"""Conversion between dtypes with the meaning of `lax.convert_element_type`.

Float to integer truncates, saturates at the ends of the integer type and sends NaN to 0; anything to bool
is `x != 0`; integers wrap; complex to real drops the imaginary part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpijax.scalar import narrow
from mpijax.scalar.types import FLOAT32, FLOAT64, Scalar, info

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
            return b.or_(convert(b, re, dtype), convert(b, x.imag, dtype))
        return convert(b, re, dtype)
    if target.kind == "b":
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
    name = "fptosi" if target.kind == "i" else "fptoui"
    result, operand = b.vector(target.compute), b.vector(source.compute)
    overload = f"{b._suffix(target.compute)}.{b._suffix(source.compute)}"
    return Scalar(dtype, b.call(f"llvm.{name}.sat.{overload}", result, [(operand, x.ir)]))


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
        wide = FLOAT64 if target.compute == "double" else FLOAT32
        value = b.cast("sitofp" if source.kind == "i" else "uitofp", x, wide)
    result = Scalar(dtype, value.ir)
    return narrow.round_to(b, result) if target.kind == "n" else result
