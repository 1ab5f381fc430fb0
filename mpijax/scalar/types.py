"""Maps dtypes to LLVM: compute type, storage type, constants.

Values have one of a few compute types: `i1` (bool), `i8..i64`, `float`, `double`. Narrow integers are computed as `i1`,
`i2` and `i4`, and stored in the low bits of a byte. Narrow floats (float16, bfloat16, those of 4 to 8 bits) are
computed as `float` and rounded to their own precision after every operation, so that a fused expression equals the same
operations done one by one. A complex value is a pair of reals.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np

BOOL = np.dtype(np.bool_)
INT8, INT16, INT32, INT64 = (np.dtype(f"i{n}") for n in (1, 2, 4, 8))
UINT8, UINT16, UINT32, UINT64 = (np.dtype(f"u{n}") for n in (1, 2, 4, 8))
FLOAT16, FLOAT32, FLOAT64 = (np.dtype(f"f{n}") for n in (2, 4, 8))
COMPLEX64, COMPLEX128 = np.dtype("c8"), np.dtype("c16")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class TypeInfo:
    """The LLVM types of a dtype.

    kind: 'b' bool, 'i' signed, 'u' unsigned, 'f' float/double, 'n' narrow float (computed in float),
    'c' complex. bits: width of the element (of one part for complex). compute, storage: LLVM types
    of one lane (of one part for complex). part: dtype of the real part for complex, else the dtype itself.
    """

    kind: str
    bits: int
    compute: str
    storage: str
    part: np.dtype
    itemsize: int

    @property
    def is_float(self) -> bool:
        return self.kind in "fn"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"


@cache
def info(dtype: np.dtype) -> TypeInfo:
    """TypeInfo of a dtype; TypeError if the scalar layer does not support it."""
    dtype = np.dtype(dtype)
    bits = dtype.itemsize * 8
    if dtype == BOOL:
        return TypeInfo("b", 8, "i1", "i8", dtype, 1)
    if dtype.kind in "iu":
        return TypeInfo(dtype.kind, bits, f"i{bits}", f"i{bits}", dtype, dtype.itemsize)
    if dtype in (FLOAT32, FLOAT64):
        name = "float" if bits == 32 else "double"
        return TypeInfo("f", bits, name, name, dtype, dtype.itemsize)
    if dtype == FLOAT16:
        return TypeInfo("n", 16, "float", "half", dtype, 2)
    if dtype in (COMPLEX64, COMPLEX128):
        part = FLOAT32 if dtype == COMPLEX64 else FLOAT64
        name = info(part).compute
        return TypeInfo("c", bits // 2, name, name, part, dtype.itemsize)
    narrow = re.fullmatch(r"(u?)int([124])", dtype.name)
    if narrow:
        return TypeInfo(narrow[1] or "i", int(narrow[2]), f"i{narrow[2]}", "i8", dtype, 1)
    if dtype == BFLOAT16 or re.match(r"float[468]_", dtype.name):
        return TypeInfo("n", bits, "float", f"i{bits}", dtype, dtype.itemsize)
    raise TypeError(f"no machine code for values of dtype {dtype.name}")


class Scalar:
    """A value in W lanes: `ir` is the operand text of its (real) value, `imag` is a Scalar or None."""

    __slots__ = ("dtype", "ir", "imag")

    def __init__(self, dtype: np.dtype, ir: str, imag: Scalar | None = None):
        self.dtype = dtype
        self.ir = ir
        self.imag = imag

    def __repr__(self) -> str:
        return f"Scalar({self.dtype.name}, {self.ir}{f', {self.imag.ir}' if self.imag else ''})"

    @property
    def is_constant(self) -> bool:
        """Whether the text is a literal and not the name of a computed value."""
        return not self.ir.startswith("%") and (self.imag is None or self.imag.is_constant)

    @property
    def constant(self) -> float | None:
        """The value of a real floating-point literal that is the same in all lanes; None for anything else."""
        text = self.ir.rsplit(" ", 1)[-1].rstrip(")")
        if not text.startswith("0x") or self.imag is not None:
            return None
        return struct.unpack(">d", bytes.fromhex(text[2:]))[0]


def imag_part(x: Scalar) -> Scalar:
    """The imaginary part of a complex Scalar."""
    assert x.imag is not None, x
    return x.imag


def float_text(value: float, single: bool) -> str:
    """LLVM's exact (hexadecimal) text of a floating point constant."""
    if single:
        with np.errstate(over="ignore", invalid="ignore"):
            value = float(np.float32(value))
    return "0x" + struct.pack(">d", value).hex()


def literal(value, dtype: np.dtype) -> str:
    """Text of one real constant in the compute type of `dtype` (for complex numbers, pass the dtype of the parts)."""
    i = info(dtype)
    if i.kind == "b":
        return "true" if value else "false"
    if i.is_integer:
        value = int(value) & ((1 << i.bits) - 1)
        return str(value - (1 << i.bits) if value >> (i.bits - 1) else value)
    if i.kind == "n":
        with np.errstate(over="ignore", invalid="ignore"):
            return float_text(float(np.asarray(value).astype(dtype)), True)
    return float_text(float(value), i.bits == 32)
