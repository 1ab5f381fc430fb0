"""Emits long operations as functions, and calls of them.

A sine takes about 30 instructions. If the kernels of a program contain many sines, LLVM spends most of its time on the
copies. A special function takes hundreds of instructions. A vectorized kernel then contains it once, instead of once
for each width of its loops.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from mpijax.compiler.fusion.expr import Applied
from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.loops.schedule import compute_bytes
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.primitive import Primitive
from mpijax.scalar.builder import Builder, FunctionText
from mpijax.scalar.types import Scalar, info

# Minimum cost of a long operation (see `core.rules.lowering.Elementwise`); its minimum uses; and the cost above which a
# call's overhead is negligible.
LONG, SEVERAL, VERY_LONG = 10, 2, 100


def repeated(kernels: Iterable[Kernel]) -> frozenset[Primitive]:
    """The long operations that occur in several expressions of these kernels."""
    counts = Counter(e.primitive for kernel in kernels for e in kernel.expressions if isinstance(e, Applied))
    return frozenset(p for p, n in counts.items() if n >= SEVERAL and p.lower.cost >= LONG)


class Calls:
    """Applies operations in a kernel; `primitives` become calls on one vector register at a time, in all loops.

    lanes: the width of the kernel's vectors. Very long operations are called with this width, if it is above one.
    register: bytes of a vector register.
    """

    def __init__(self, primitives: frozenset[Primitive], lanes: int, register: int) -> None:
        self.primitives = primitives
        self.lanes = lanes
        self.register = register

    def apply(self, b: Builder, primitive: Primitive, args: list[Scalar], params: dict[str, Any]) -> Any:
        """The result of an operation's rule, through a call if that computes the same with fewer instructions."""
        # Rules inspect constants, whose values a function does not know.
        lanes = self._lanes(primitive, args) if all(map(_may_be_passed, args)) else 0
        if lanes:
            wide = b.with_lanes(lanes)
            found = _function(primitive, lanes, tuple(x.dtype for x in args), _Params(params))
            if found is not None:
                b.function.add(found.text)
                registers = zip(*(_registers(b, x, wide) for x in args), strict=True)
                return _gathered(b, [_call(wide, found, part) for part in registers], wide)
        return primitive.lower.rule(b, *args, **params)

    def _lanes(self, primitive: Primitive, args: list[Scalar]) -> int:
        """The number of lanes of a call; 0 for no call."""
        register = self.register // max(compute_bytes(x.dtype) for x in args)
        if primitive in self.primitives:
            return register
        return min(register, self.lanes) if self.lanes > 1 and primitive.lower.cost >= VERY_LONG else 0


class _Params(dict[str, Any]):
    """Parameters of an operation; equal if their texts are equal."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(sorted(self.items())))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Params) and repr(sorted(self.items())) == repr(sorted(other.items()))


@dataclass(frozen=True)
class _OperationFunction:
    """The function of an operation, the type of its result, and its text with the declarations it needs."""

    name: str
    dtype: np.dtype
    text: FunctionText


@cache
def _function(
    primitive: Primitive, lanes: int, types: tuple[np.dtype, ...], params: _Params
) -> _OperationFunction | None:
    """The function of an operation on `lanes` lanes of these types; None if calls would save nothing."""
    text = FunctionText()
    b = Builder(lanes, text)
    found = primitive.lower.rule(b, *(Scalar(t, f"%x{k}") for k, t in enumerate(types)), **params)
    if type(found) is not Scalar or found.imag is not None:
        return None
    formals = ", ".join(f"{b.type(t)} %x{k}" for k, t in enumerate(types))
    body = "\n".join([f"({formals}) {{", *b.lines, f"  ret {b.type(found.dtype)} {found.ir}", "}"])
    name = f"mpijax.{primitive.name}.{hashlib.sha256(body.encode()).hexdigest()[:24]}"
    text.helpers[name] = f"define internal {b.type(found.dtype)} @{name}{body}"
    return _OperationFunction(name, found.dtype, text)


def _may_be_passed(x: Scalar) -> bool:
    return info(x.dtype).is_float and not x.is_constant


def _call(b: Builder, found: _OperationFunction, args: tuple[Scalar, ...]) -> Scalar:
    actual = ", ".join(f"{b.type(x.dtype)} {x.ir}" for x in args)
    return Scalar(found.dtype, b.emit(f"call {b.type(found.dtype)} @{found.name}({actual})"))


def _registers(b: Builder, x: Scalar, wide: Builder) -> list[Scalar]:
    """A value of `b` as registers of `wide`; if it fills less than one, its lanes are repeated."""
    if b.lanes == wide.lanes:
        return [x]
    if b.lanes == 1:
        return [wide.splat(x)]
    if b.lanes > wide.lanes:
        return [b.part(x, at, wide.lanes) for at in range(0, b.lanes, wide.lanes)]
    return [_shuffled(b, x, x, wide.lanes)]


def _gathered(b: Builder, xs: list[Scalar], wide: Builder) -> Scalar:
    """A value of `b`, from registers of `wide`."""
    if len(xs) == 1:
        return xs[0] if b.lanes == wide.lanes else wide.part(xs[0], 0, b.lanes)
    while len(xs) > 1:
        half = b.with_lanes(b.lanes // len(xs))
        xs = [_shuffled(half, low, high, 2 * half.lanes) for low, high in zip(xs[::2], xs[1::2], strict=True)]
    return xs[0]


def _shuffled(b: Builder, low: Scalar, high: Scalar, lanes: int) -> Scalar:
    """`lanes` lanes taken from two values in sequence, starting over at the end."""
    t, mask = b.type(low.dtype), ", ".join(f"i32 {i % (2 * b.lanes)}" for i in range(lanes))
    return Scalar(low.dtype, b.emit(f"shufflevector {t} {low.ir}, {t} {high.ir}, <{lanes} x i32> <{mask}>"))
