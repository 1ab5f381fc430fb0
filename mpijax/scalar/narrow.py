"""Narrow floats (float16, bfloat16, 4 to 8 bits) computed as float: rounding, packing, unpacking.

Rounds to nearest, ties to even, with integer operations on the float's bits (float16 uses LLVM's `half`). As in
ml_dtypes, overflow gives infinity if the format has one, else NaN if it has one, else the largest number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from mpijax.scalar.types import BFLOAT16, FLOAT16, FLOAT32, UINT32, Scalar

EXPONENT = np.dtype(ml_dtypes.float8_e8m0fnu)  # powers of two and a NaN, without sign, mantissa and zero

if TYPE_CHECKING:
    from mpijax.scalar.builder import Builder


@dataclass(frozen=True)
class NarrowFloat:
    """A float of 4 to 8 bits: sign bit, stored mantissa bits, exponent bias, largest finite value, special values.

    negative_zero False means that the bits 0x80 are the NaN (the `fnuz` formats).
    """

    sign: int

    mantissa: int
    bias: int
    largest: float
    has_inf: bool
    has_nan: bool
    negative_zero: bool
    nan_bits: int


@cache
def format_of(dtype: np.dtype) -> NarrowFloat:
    """The parameters of a float of 4 to 8 bits, computed from ml_dtypes."""
    f = ml_dtypes.finfo(dtype)
    fnuz = dtype.name.endswith("fnuz")
    with np.errstate(over="ignore", invalid="ignore"):
        nan, infinity = np.array([np.nan, np.inf]).astype(dtype)
    has_nan, has_inf = bool(np.isnan(nan.astype(np.float32))), bool(np.isinf(infinity.astype(np.float32)))
    nan_bits = int(np.asarray(nan).view(np.uint8)) & (0xFF if fnuz else 0x7F)
    bias = 1 - int(np.log2(float(f.smallest_normal)))
    return NarrowFloat(1 << (f.bits - 1), f.nmant, bias, float(f.max), has_inf, has_nan, not fnuz, nan_bits)


def round_to(b: Builder, x: Scalar) -> Scalar:
    """The float in x rounded to x's narrow dtype, still as a float."""
    if x.dtype == FLOAT16:
        value = x.ir
        if b.lanes == 1:
            # If x comes from a double, LLVM would copy its sign directly to a half, by a function that C lacks.
            value = b.call("llvm.arithmetic.fence.f32", "float", [("float", value)])
        half = b.emit(f"fptrunc {b.vector('float')} {value} to {b.vector('half')}")
        return Scalar(x.dtype, b.emit(f"fpext {b.vector('half')} {half} to {b.vector('float')}"))
    if x.dtype == BFLOAT16:
        return Scalar(x.dtype, b.bitcast(_round_bits(b, Scalar(FLOAT32, x.ir), 16), FLOAT32).ir)
    return _round_exponent(b, x) if x.dtype == EXPONENT else _round_fp8(b, x)


def _round_bits(b: Builder, x: Scalar, drop: int) -> Scalar:
    """Bits (uint32) of float x rounded to drop the low `drop` mantissa bits; a NaN becomes a quiet NaN."""
    u = lambda v: b.const(v, UINT32)
    bits = b.bitcast(x, UINT32)
    odd = b.and_(b.lshr(bits, u(drop)), u(1))
    rounded = b.add(b.add(bits, u((1 << (drop - 1)) - 1)), odd)
    rounded = b.and_(rounded, u(-1 << drop))
    quiet = b.and_(b.or_(bits, u(0x400000)), u(-1 << drop))
    return b.select(b.is_nan(x), quiet, rounded)


def _round_fp8(b: Builder, x: Scalar) -> Scalar:
    f = format_of(x.dtype)
    value = Scalar(FLOAT32, x.ir)
    c = lambda v: b.const(v, FLOAT32)
    normal = b.bitcast(_round_bits(b, value, 23 - f.mantissa), FLOAT32)
    # Below the smallest normal the spacing is fixed: adding and subtracting 1.5 * 2^23 spacings rounds to it.
    magic = c(1.5 * 2.0 ** (23 + 1 - f.bias - f.mantissa))
    size = b.abs(value)
    small = b.copysign(b.sub(b.add(size, magic), magic), value)
    result = b.select(b.compare("lt", size, c(2.0 ** (1 - f.bias))), small, normal)
    over = b.compare("gt", b.abs(result), c(f.largest))
    limit = np.inf if f.has_inf else np.nan if f.has_nan else f.largest
    result = b.select(over, b.copysign(c(limit), value), result)
    if not f.negative_zero:
        result = b.select(b.compare("eq", result, c(0)), c(0), result)
    if not f.has_nan:
        result = b.select(b.is_nan(value), b.copysign(c(0), b.neg(value)), result)
    return Scalar(x.dtype, result.ir)


def _round_exponent(b: Builder, x: Scalar) -> Scalar:
    """The nearest power of two >= 2^-127, ties up; NaN for 0, negative numbers, and from 1.5 * 2^127."""
    u = lambda v: b.const(v, UINT32)
    bits = b.bitcast(Scalar(FLOAT32, x.ir), UINT32)
    # 2^-127, half of the smallest normal float, is unchanged.
    half = b.select(b.icmp("ult", bits, u(1 << 23)), u((1 << 22) - 1), u(1 << 22))
    power = _power_of_two(b, b.lshr(b.add(bits, half), u(23)))
    allowed = b.icmp("ult", b.sub(bits, u(1)), u(0x7F400000 - 1))
    return Scalar(x.dtype, b.select(allowed, power, b.const(np.nan, FLOAT32)).ir)


def _power_of_two(b: Builder, exponent: Scalar) -> Scalar:
    """The float 2^(exponent - 127); the smallest is not a normal float."""
    u = lambda v: b.const(v, UINT32)
    bits = b.select(b.icmp("eq", exponent, u(0)), u(1 << 22), b.shl(exponent, u(23)))
    return b.bitcast(bits, FLOAT32)


def unpack(b: Builder, bits: str, dtype: np.dtype) -> str:
    """Converts storage bits (operand text; half for float16, i16, i8) to the float value."""
    if dtype == FLOAT16:
        return b.emit(f"fpext {b.vector('half')} {bits} to {b.vector('float')}")
    width = dtype.itemsize * 8
    wide = Scalar(UINT32, b.emit(f"zext {b.vector(f'i{width}')} {bits} to {b.vector('i32')}"))
    u = lambda v: b.const(v, UINT32)
    if dtype == BFLOAT16:
        return b.bitcast(b.shl(wide, u(16)), FLOAT32).ir
    if dtype == EXPONENT:
        return b.select(b.icmp("eq", wide, u(0xFF)), b.const(np.nan, FLOAT32), _power_of_two(b, wide)).ir
    f = format_of(dtype)
    unsigned = b.and_(wide, u(f.sign - 1))
    shifted = b.shl(unsigned, u(23 - f.mantissa))
    magnitude = b.bitcast(shifted, FLOAT32)
    # The exponent field is that of a float with another bias. Denormals of the format are normal in float32. They are
    # computed from their mantissa as an integer, because float32 denormals may be treated as zero.
    normal = b.bitcast(b.add(shifted, u((127 - f.bias) << 23)), FLOAT32)
    whole = Scalar(FLOAT32, b.emit(f"uitofp {b.vector('i32')} {unsigned.ir} to {b.vector('float')}"))
    small = b.mul(whole, b.const(2.0 ** (1 - f.bias - f.mantissa), FLOAT32))
    value = b.select(b.icmp("ult", unsigned, u(1 << f.mantissa)), small, normal)
    if f.has_inf:
        top = b.icmp("uge", b.and_(wide, u(0x7F)), u((f.nan_bits >> f.mantissa) << f.mantissa))
        special = b.bitcast(b.or_(b.bitcast(magnitude, UINT32), u(0x7F800000)), FLOAT32)
        value = b.select(top, special, value)
    elif f.has_nan and f.negative_zero:
        value = b.select(b.icmp("eq", b.and_(wide, u(0x7F)), u(f.nan_bits)), b.const(np.nan, FLOAT32), value)
    elif f.has_nan:
        value = b.select(b.icmp("eq", wide, u(f.nan_bits)), b.const(np.nan, FLOAT32), value)
    sign = b.shl(b.and_(wide, u(f.sign)), u(32 - f.sign.bit_length()))
    return b.bitcast(b.or_(b.bitcast(value, UINT32), sign), FLOAT32).ir


def pack(b: Builder, x: Scalar) -> str:
    """Storage bits (operand text) of a float already rounded to x's dtype."""
    if x.dtype == FLOAT16:
        return b.emit(f"fptrunc {b.vector('float')} {x.ir} to {b.vector('half')}")
    u = lambda v: b.const(v, UINT32)
    value = Scalar(FLOAT32, x.ir)
    bits = b.bitcast(value, UINT32)
    if x.dtype == BFLOAT16:
        return b.emit(f"trunc {b.vector('i32')} {b.lshr(bits, u(16)).ir} to {b.vector('i16')}")
    if x.dtype == EXPONENT:  # 0xFF for a NaN, and for a negative number
        packed = b.select(b.icmp("ult", bits, u(1 << 31)), b.lshr(bits, u(23)), u(0xFF))
        return b.emit(f"trunc {b.vector('i32')} {packed.ir} to {b.vector('i8')}")
    f = format_of(x.dtype)
    sign = b.and_(b.lshr(bits, u(32 - f.sign.bit_length())), u(f.sign))
    # Changing the bias gives the narrow exponent field; a denormal is its mantissa as an integer.
    size = b.abs(value)
    normal = b.lshr(b.sub(b.bitcast(size, UINT32), u((127 - f.bias) << 23)), u(23 - f.mantissa))
    scaled = b.mul(size, b.const(2.0 ** (f.bias - 1 + f.mantissa), FLOAT32))
    small = Scalar(UINT32, b.emit(f"fptosi {b.vector('float')} {scaled.ir} to {b.vector('i32')}"))
    packed = b.select(b.compare("lt", size, b.const(2.0 ** (1 - f.bias), FLOAT32)), small, normal)
    if f.has_inf:
        exponent = (f.nan_bits >> f.mantissa) << f.mantissa
        packed = b.select(b.compare("eq", b.abs(value), b.const(np.inf, FLOAT32)), u(exponent), packed)
    if f.has_nan:
        packed = b.select(b.is_nan(value), u(f.nan_bits), packed)
    if f.negative_zero:
        packed = b.or_(packed, sign)
    else:
        signed = b.or_(packed, sign)
        plain = b.or_(b.is_nan(value), b.compare("eq", value, b.const(0, FLOAT32)))
        packed = b.select(plain, packed, signed)
    return b.emit(f"trunc {b.vector('i32')} {packed.ir} to {b.vector('i8')}")
