"""Defines Builder, which emits LLVM IR as text, one instruction per line, for W lanes at a time.

The same code works for `lanes=1` (`float`) and `lanes=8` (`<8 x float>`). It never emits branches or labels: the kernel
emitter writes the surrounding loop. Code that needs control flow (a data-dependent iteration count) is a helper
function, collected in `FunctionText.helpers` and inlined by LLVM.
"""

from __future__ import annotations

import numpy as np

from mpijax.scalar import narrow
from mpijax.scalar.convert import convert
from mpijax.scalar.memory import MemoryInstructions
from mpijax.scalar.registry import RULES
from mpijax.scalar.types import BOOL, INT32, INT64, Scalar, imag_part, info, literal

_FLOAT_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_SIGNED_PREDICATES = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_UNSIGNED_PREDICATES = {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}


class FunctionText:
    """Shared state of all builders of one LLVM module: the name counter, declarations and helper functions."""

    __slots__ = ("counter", "declares", "helpers")

    def __init__(self) -> None:
        self.counter = 0
        self.declares: set[str] = set()
        self.helpers: dict[str, str] = {}

    def fresh(self) -> str:
        self.counter += 1
        return f"%t{self.counter}"

    def add(self, other: FunctionText) -> None:
        """Add the declarations and definitions of another text that are missing here."""
        self.declares |= other.declares
        for name, text in other.helpers.items():
            self.helpers.setdefault(name, text)

    def module_text(self) -> str:
        """Declarations and helper definitions, for the module that contains the functions using them."""
        return "\n".join([*sorted(self.declares), *self.helpers.values()])


class Builder(MemoryInstructions):
    """Emits instructions on `Scalar`s into `self.lines`.

    lanes: vector width W; function: names and declarations shared with other builders of the same
    function; lines: the list to append to (a new list by default); indent: prefix of each line.
    Operands of a method have equal dtypes unless its docstring says otherwise; so does the result.
    All methods except select, splat, const and the memory methods take real values only.
    """

    def __init__(self, lanes: int = 1, function: FunctionText | None = None, lines: list[str] | None = None,
                 indent: str = "  "):
        self.lanes = lanes
        self.function = FunctionText() if function is None else function
        self.lines: list[str] = [] if lines is None else lines
        self.indent = indent

    @property
    def declares(self) -> set[str]:
        return self.function.declares

    def with_lanes(self, lanes: int) -> Builder:
        """A builder with another width that appends to the same lines."""
        return self if lanes == self.lanes else Builder(lanes, self.function, self.lines, self.indent)

    # ---- text

    def fresh(self) -> str:
        return self.function.fresh()

    def emit(self, text: str) -> str:
        """Append `%tN = text`, return `%tN`."""
        name = self.function.fresh()
        self.lines.append(f"{self.indent}{name} = {text}")
        return name

    def effect(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(self.indent + text)

    def vector(self, element: str) -> str:
        """LLVM type of W lanes of an LLVM element type."""
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def type(self, dtype: np.dtype) -> str:
        """LLVM compute type of W lanes (of one part, for complex)."""
        return self.vector(info(dtype).compute)

    def _suffix(self, element: str) -> str:
        name = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
        return name if self.lanes == 1 else f"v{self.lanes}{name}"

    def call(self, name: str, result: str, arguments: list[tuple[str, str]]) -> str:
        """Call an LLVM intrinsic or library function; arguments are (type, operand) pairs."""
        self.function.declares.add(f"declare {result} @{name}({', '.join(t for t, _ in arguments)})")
        return self.emit(f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in arguments)})")

    def intrinsic(self, name: str, *xs: Scalar, extra: tuple[tuple[str, str], ...] = ()) -> Scalar:
        """`llvm.<name>` overloaded on the type of its first operand; the result, of that type, is rounded."""
        element = info(xs[0].dtype).compute
        t = self.vector(element)
        ir = self.call(f"llvm.{name}.{self._suffix(element)}", t, [(t, x.ir) for x in xs] + list(extra))
        return self._rounded(xs[0].dtype, ir)

    def helper(self, name: str, text: str) -> None:
        """Add the definition of a helper function, once."""
        self.function.helpers.setdefault(name, text)

    # ---- constants

    def const(self, value, dtype) -> Scalar:
        """A constant in every lane; narrow floats are rounded to their type first."""
        dtype = np.dtype(dtype)
        i = info(dtype)
        if i.kind == "c":
            value = complex(value)
            return Scalar(dtype, self.const(value.real, i.part).ir, self.const(value.imag, i.part))
        text = literal(value, dtype)
        return Scalar(dtype, text if self.lanes == 1 else f"splat ({i.compute} {text})")

    def iota(self) -> Scalar:
        """int64 0, 1, ..., W-1."""
        if self.lanes == 1:
            return Scalar(INT64, "0")
        return Scalar(INT64, f"<{', '.join(f'i64 {i}' for i in range(self.lanes))}>")

    def splat(self, x: Scalar | str, dtype=None) -> Scalar:
        """Copies a one-lane value (a Scalar, or operand text with its dtype) to every lane."""
        if isinstance(x, str):
            x = Scalar(np.dtype(dtype), x)
        if self.lanes == 1:
            return x
        imag = None if x.imag is None else self.splat(x.imag)
        element = info(x.dtype).compute
        if not x.ir.startswith("%"):
            return Scalar(x.dtype, f"splat ({element} {x.ir})", imag)
        t = self.vector(element)
        first = self.emit(f"insertelement {t} poison, {element} {x.ir}, i64 0")
        ir = self.emit(f"shufflevector {t} {first}, {t} poison, <{self.lanes} x i32> zeroinitializer")
        return Scalar(x.dtype, ir, imag)

    def lane(self, x: Scalar, index: int) -> Scalar:
        """One lane as a one-lane value."""
        if self.lanes == 1:
            return x
        imag = None if x.imag is None else self.lane(x.imag, index)
        return Scalar(x.dtype, self.emit(f"extractelement {self.type(x.dtype)} {x.ir}, i64 {index}"), imag)

    # ---- arithmetic

    def _rounded(self, dtype: np.dtype, ir: str) -> Scalar:
        x = Scalar(dtype, ir)
        return narrow.round_to(self, x) if info(dtype).kind == "n" else x

    def op(self, opcode: str, a: Scalar, b: Scalar) -> Scalar:
        """Any two-operand LLVM instruction on the compute type."""
        return self._rounded(a.dtype, self.emit(f"{opcode} {self.type(a.dtype)} {a.ir}, {b.ir}"))

    def _arith(self, name: str, a: Scalar, b: Scalar) -> Scalar:
        return self.op("f" + name if info(a.dtype).is_float else name, a, b)

    def add(self, a: Scalar, b: Scalar) -> Scalar:
        return self._arith("add", a, b)

    def sub(self, a: Scalar, b: Scalar) -> Scalar:
        return self._arith("sub", a, b)

    def mul(self, a: Scalar, b: Scalar) -> Scalar:
        return self._arith("mul", a, b)

    def div(self, a: Scalar, b: Scalar) -> Scalar:
        """Floating point division."""
        return self.op("fdiv", a, b)

    def sdiv(self, a: Scalar, b: Scalar) -> Scalar:
        return self.op("sdiv", a, b)

    def udiv(self, a: Scalar, b: Scalar) -> Scalar:
        return self.op("udiv", a, b)

    def srem(self, a: Scalar, b: Scalar) -> Scalar:
        return self.op("srem", a, b)

    def urem(self, a: Scalar, b: Scalar) -> Scalar:
        return self.op("urem", a, b)

    def fma(self, a: Scalar, b: Scalar, c: Scalar) -> Scalar:
        """a * b + c with one rounding."""
        return self.intrinsic("fma", a, b, c)

    def neg(self, a: Scalar) -> Scalar:
        if info(a.dtype).is_float:
            return Scalar(a.dtype, self.emit(f"fneg {self.type(a.dtype)} {a.ir}"))
        return self.sub(self.const(0, a.dtype), a)

    def abs(self, a: Scalar) -> Scalar:
        """|a|; the smallest signed integer is unchanged."""
        i = info(a.dtype)
        if i.kind in "bu":
            return a
        if i.kind == "i":
            return self.intrinsic("abs", a, extra=(("i1", "false"),))
        return self._exact("fabs", a)

    def _exact(self, name: str, *xs: Scalar) -> Scalar:
        """A float intrinsic whose result is representable whenever its operands are."""
        element = info(xs[0].dtype).compute
        t = self.vector(element)
        ir = self.call(f"llvm.{name}.{self._suffix(element)}", t, [(t, x.ir) for x in xs])
        return Scalar(xs[0].dtype, ir)

    def floor(self, a: Scalar) -> Scalar:
        return self._exact("floor", a)

    def ceil(self, a: Scalar) -> Scalar:
        return self._exact("ceil", a)

    def trunc(self, a: Scalar) -> Scalar:
        return self._exact("trunc", a)

    def roundeven(self, a: Scalar) -> Scalar:
        return self._exact("roundeven", a)

    def copysign(self, magnitude: Scalar, sign: Scalar) -> Scalar:
        return self._exact("copysign", magnitude, sign)

    def sqrt(self, a: Scalar) -> Scalar:
        return self.intrinsic("sqrt", a)

    def maximum(self, a: Scalar, b: Scalar) -> Scalar:
        """The larger; NaN if either is NaN; 0.0 is larger than -0.0."""
        if info(a.dtype).is_float:
            return self._exact("maximum", a, b)
        return self.select(self.compare("gt", b, a), b, a)

    def minimum(self, a: Scalar, b: Scalar) -> Scalar:
        """The smaller; NaN if either is NaN; -0.0 is smaller than 0.0."""
        if info(a.dtype).is_float:
            return self._exact("minimum", a, b)
        return self.select(self.compare("lt", b, a), b, a)

    def extremum(self, order: str, a: Scalar, b: Scalar) -> Scalar:
        """The larger ("gt") or smaller ("lt") float, NaN if either is NaN, either of two zeros: one instruction."""
        better = self.select(self.compare(order, b, a), b, a)
        return self.select(self.is_nan(b), b, better)

    def extremum_without_branches(self, order: str, a: Scalar, b: Scalar) -> Scalar:
        """Like maximum ("gt") or minimum ("lt") of float32 or float64, for one lane with unpredictable comparisons.

        Equal numbers with different bits are zeros: the larger zero has the common bits of both, the smaller all bits
        of either.
        """
        integer = np.dtype(f"i{info(a.dtype).bits // 8}")
        bits = (self.and_ if order == "gt" else self.or_)(self.bitcast(a, integer), self.bitcast(b, integer))
        return self.select(self.compare("eq", a, b), self.bitcast(bits, a.dtype), self.extremum(order, a, b))

    def key_of_extremum(self, order: str, a: Scalar) -> Scalar:
        """An int32 that sorts like the float32; the key of NaN is the largest ("gt") or the smallest ("lt")."""
        nan = self.const(0x7FC00000 if order == "gt" else 0x7FC00000 - (1 << 31) ^ 0x7FFFFFFF, INT32)
        return self.select(self.is_nan(a), nan, self._with_order_turned(self.bitcast(a, INT32)))

    def of_key(self, key: Scalar) -> Scalar:
        """The float32 with this key. A denormal becomes zero if the processor flushes denormals."""
        return self._exact("canonicalize", self.bitcast(self._with_order_turned(key), np.dtype(np.float32)))

    def _with_order_turned(self, bits: Scalar) -> Scalar:
        """Inverts all bits but the sign of negative numbers, because their bits count down."""
        rest = self.const(0x7FFFFFFF, INT32)
        return self.xor(bits, self.and_(self.ashr(bits, self.const(31, INT32)), rest))

    # ---- bits and logic

    def and_(self, a: Scalar, b: Scalar) -> Scalar:
        return Scalar(a.dtype, self.emit(f"and {self.type(a.dtype)} {a.ir}, {b.ir}"))

    def or_(self, a: Scalar, b: Scalar) -> Scalar:
        return Scalar(a.dtype, self.emit(f"or {self.type(a.dtype)} {a.ir}, {b.ir}"))

    def xor(self, a: Scalar, b: Scalar) -> Scalar:
        return Scalar(a.dtype, self.emit(f"xor {self.type(a.dtype)} {a.ir}, {b.ir}"))

    def not_(self, a: Scalar) -> Scalar:
        return self.xor(a, self.const(-1, a.dtype))

    def shl(self, a: Scalar, b: Scalar) -> Scalar:
        """Shift; the result is undefined for counts of the width or more."""
        return self.op("shl", a, b)

    def lshr(self, a: Scalar, b: Scalar) -> Scalar:
        return self.op("lshr", a, b)

    def ashr(self, a: Scalar, b: Scalar) -> Scalar:
        return self.op("ashr", a, b)

    # ---- compare, select

    def icmp(self, predicate: str, a: Scalar, b: Scalar) -> Scalar:
        """LLVM's icmp (predicates eq, slt, ult, ...)."""
        return Scalar(BOOL, self.emit(f"icmp {predicate} {self.type(a.dtype)} {a.ir}, {b.ir}"))

    def fcmp(self, predicate: str, a: Scalar, b: Scalar) -> Scalar:
        """LLVM's fcmp (predicates oeq, olt, uno, ...)."""
        return Scalar(BOOL, self.emit(f"fcmp {predicate} {self.type(a.dtype)} {a.ir}, {b.ir}"))

    def compare(self, name: str, a: Scalar, b: Scalar) -> Scalar:
        """eq ne lt le gt ge in the dtype's order; with NaN only `ne` is true."""
        i = info(a.dtype)
        if i.is_float:
            return self.fcmp(_FLOAT_PREDICATES[name], a, b)
        return self.icmp((_SIGNED_PREDICATES if i.kind == "i" else _UNSIGNED_PREDICATES)[name], a, b)

    def is_nan(self, a: Scalar) -> Scalar:
        return self.fcmp("uno", a, a)

    def select(self, condition: Scalar, a: Scalar, b: Scalar) -> Scalar:
        """a where condition (bool) else b."""
        t = self.type(a.dtype)
        ir = self.emit(f"select {self.vector('i1')} {condition.ir}, {t} {a.ir}, {t} {b.ir}")
        return Scalar(a.dtype, ir, None if a.imag is None else self.select(condition, a.imag, imag_part(b)))

    def select_last(self, count: int, a: Scalar, b: Scalar) -> Scalar:
        """a in the last `count` lanes, else b."""
        lanes = ", ".join(f"i1 {'true' if k >= self.lanes - count else 'false'}" for k in range(self.lanes))
        return self.select(Scalar(np.dtype(bool), f"<{lanes}>"), a, b)

    # ---- types

    def unpacked(self, bits: str, dtype: np.dtype) -> str:
        """Converts storage bits of a narrow float to the float value (operand texts)."""
        return narrow.unpack(self, bits, dtype)

    def packed(self, x: Scalar) -> str:
        """Storage bits (operand text) of a float already rounded to the narrow dtype of x."""
        return narrow.pack(self, x)

    def cast(self, opcode: str, x: Scalar, dtype) -> Scalar:
        """One LLVM cast instruction between compute types."""
        dtype = np.dtype(dtype)
        return Scalar(dtype, self.emit(f"{opcode} {self.type(x.dtype)} {x.ir} to {self.type(dtype)}"))

    def bitcast(self, x: Scalar, dtype) -> Scalar:
        """Reinterprets the stored bits as another type of equal width; bool counts as a byte 0 or 1."""
        dtype = np.dtype(dtype)
        if dtype == x.dtype:
            return x
        source, target = info(x.dtype), info(dtype)
        if source.kind == "c" or target.kind == "c":
            raise TypeError("bitcast takes real values")
        if source.kind not in "bn" and target.kind not in "bn":
            same = source.compute == target.compute
            return Scalar(dtype, x.ir) if same else self.cast("bitcast", x, dtype)
        stored = self._storage(x)
        if source.storage != target.storage:
            stored = self.emit(
                f"bitcast {self.vector(source.storage)} {stored} to {self.vector(target.storage)}")
        return Scalar(dtype, self._widen(stored, dtype))

    def convert(self, x: Scalar, dtype) -> Scalar:
        """`convert_element_type`, see mpijax.scalar.convert."""
        return convert(self, x, np.dtype(dtype))

    # ---- across lanes

    def reduce(self, combine, x: Scalar) -> Scalar:
        """Combines all lanes into one, by halves: ((x0 . x4) . (x2 . x6)) . ...; `combine` as in combine()."""
        lanes, b = self.lanes, self
        while lanes > 1:
            lanes //= 2
            half = b.with_lanes(lanes)
            low, high = b.part(x, 0, lanes), b.part(x, lanes, lanes)
            x = half.combine(combine, low, high)
            b = half
        return x

    def any_lane(self, x: Scalar) -> str:
        """Whether a bool is true in any lane, as an i1."""
        if self.lanes == 1:
            return x.ir
        bits = self.emit(f"bitcast {self.type(x.dtype)} {x.ir} to i{self.lanes}")
        return self.emit(f"icmp ne i{self.lanes} {bits}, 0")

    def part(self, x: Scalar, start: int, lanes: int) -> Scalar:
        """Lanes start .. start+lanes as a value of that width."""
        if lanes == 1:
            return self.lane(x, start)
        imag = None if x.imag is None else self.part(x.imag, start, lanes)
        t, mask = self.type(x.dtype), ", ".join(f"i32 {start + i}" for i in range(lanes))
        ir = self.emit(f"shufflevector {t} {x.ir}, {t} poison, <{lanes} x i32> <{mask}>")
        return Scalar(x.dtype, ir, imag)

    def every_second(self, a: Scalar, b: Scalar, start: int) -> Scalar:
        """Lanes start, start + 2, ... of `a`, then those of `b`."""
        imag = None if a.imag is None else self.every_second(a.imag, imag_part(b), start)
        t, mask = self.type(a.dtype), ", ".join(f"i32 {i}" for i in range(start, 2 * self.lanes, 2))
        ir = self.emit(f"shufflevector {t} {a.ir}, {t} {b.ir}, <{self.lanes} x i32> <{mask}>")
        return Scalar(a.dtype, ir, imag)

    def interleaved(self, xs: list[Scalar]) -> list[Scalar]:
        """Interleaves values: in order, the results hold the first lanes of all values, then the second lanes, ..."""
        parts = [x.imag for x in xs if x.imag is not None]
        imag = self.interleaved(parts) if parts else []
        t, lanes, count = self.type(xs[0].dtype), self.lanes, len(xs)
        out = []
        for k in range(count):
            sources = [divmod(k * lanes + i, count) for i in range(lanes)]
            ir = "poison"
            have: list[int | None] = [None] * lanes
            for number, x in enumerate(xs):
                have = [lanes + lane if source == number else at
                        for (lane, source), at in zip(sources, have, strict=True)]
                mask = ", ".join("i32 poison" if at is None else f"i32 {at}" for at in have)
                ir = self.emit(f"shufflevector {t} {ir}, {t} {x.ir}, <{lanes} x i32> <{mask}>")
                have = [None if at is None else i for i, at in enumerate(have)]
            out.append(Scalar(xs[0].dtype, ir, imag[k] if imag else None))
        return out

    def gathered(self, xs: list[Scalar]) -> Scalar:
        """Combines one-lane values into the lanes of one value."""
        parts = [x.imag for x in xs if x.imag is not None]
        imag = self.gathered(parts) if parts else None
        t, element = self.type(xs[0].dtype), info(xs[0].dtype).compute
        ir = "poison"
        for lane, x in enumerate(xs):
            ir = self.emit(f"insertelement {t} {ir}, {element} {x.ir}, i64 {lane}")
        return Scalar(xs[0].dtype, ir, imag)

    def combine(self, combine, a: Scalar, b: Scalar) -> Scalar:
        """One step of a reduction: add mul max min and or xor by name, or any rule(builder, a, b)."""
        if isinstance(combine, str):
            combine = RULES[combine]
        return combine(self, a, b)
