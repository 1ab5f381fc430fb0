"""Long operations that the kernels of a program do several times: they become functions, and calls of them.

The code of a sine is some 30 instructions. Where there are many, LLVM takes most of its time for copies of the same.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.loops.schedule import VECTOR_BYTES
from mpijax.core.primitive import Primitive
from mpijax.scalar.builder import Builder, FunctionText
from mpijax.scalar.types import Scalar, info

# What is a long operation: its cost (see `core.lowering.Elementwise`), and its instructions, since some do little but
# call the C library in each lane. How many of a kind are several.
LONG, INSTRUCTIONS, SEVERAL = 10, 10, 2
_NO_OPERATION = frozenset(["load", "const", "index", "acc", "inner", "choose"])


def repeated(kernels: Iterable[Kernel]) -> frozenset[Primitive]:
    """The long operations that several expressions of these kernels are."""
    counts = Counter(e.attr[0] for kernel in kernels for e in kernel.expressions if e.op not in _NO_OPERATION)
    return frozenset(p for p, n in counts.items() if n >= SEVERAL and p.lower.cost >= LONG)


class Calls:
    """Operations in a kernel, of which `primitives` are called: on one vector register at a time, in all loops."""

    def __init__(self, primitives: frozenset[Primitive]) -> None:
        self.primitives = primitives
        # By what the instructions depend on: the name of the function and the type of its result, if there is one.
        self.functions: dict[Any, tuple[str, np.dtype] | None] = {}

    def apply(self, b: Builder, primitive: Primitive, args: list[Scalar], params: dict[str, Any]) -> Any:
        """What the operation's rule gives, by calls where these have the same instructions."""
        # Rules look at constants, which a function does not know.
        if primitive in self.primitives and all(map(_may_be_passed, args)):
            wide = b.with_lanes(VECTOR_BYTES // max(x.dtype.itemsize for x in args))
            found = self._function(wide, primitive, tuple(x.dtype for x in args), params)
            if found is not None:
                registers = zip(*(_registers(b, x, wide) for x in args), strict=True)
                return _gathered(b, [_call(wide, *found, part) for part in registers], wide)
        return primitive.lower.rule(b, *args, **params)

    def _function(
        self, b: Builder, primitive: Primitive, types: tuple[np.dtype, ...], params: dict[str, Any]
    ) -> tuple[str, np.dtype] | None:
        key = (primitive, b.lanes, types, repr(sorted(params.items())))
        if key in self.functions:
            return self.functions[key]
        self.functions[key] = None
        text = FunctionText()
        inner = Builder(b.lanes, text)
        found = primitive.lower.rule(inner, *(Scalar(t, f"%x{k}") for k, t in enumerate(types)), **params)
        if type(found) is Scalar and found.imag is None and len(inner.lines) >= INSTRUCTIONS:
            formals = ", ".join(f"{b.type(t)} %x{k}" for k, t in enumerate(types))
            body = "\n".join([f"({formals}) {{", *inner.lines, f"  ret {b.type(found.dtype)} {found.ir}", "}"])
            name = f"mpijax.{primitive.name}.{hashlib.sha256(body.encode()).hexdigest()[:24]}"
            for helper, definition in text.helpers.items():
                b.helper(helper, definition)
            b.declares.update(text.declares)
            b.helper(name, f"define internal {b.type(found.dtype)} @{name}{body}")
            self.functions[key] = name, found.dtype
        return self.functions[key]


def _may_be_passed(x: Scalar) -> bool:
    return info(x.dtype).kind == "f" and not x.is_constant


def _call(b: Builder, name: str, dtype: np.dtype, args: tuple[Scalar, ...]) -> Scalar:
    actual = ", ".join(f"{b.type(x.dtype)} {x.ir}" for x in args)
    return Scalar(dtype, b.emit(f"call {b.type(dtype)} @{name}({actual})"))


def _registers(b: Builder, x: Scalar, wide: Builder) -> list[Scalar]:
    """A value of `b` as registers of `wide`; if it does not fill one, its lanes are repeated."""
    if b.lanes == wide.lanes:
        return [x]
    if b.lanes == 1:
        return [wide.splat(x)]
    if b.lanes > wide.lanes:
        return [b.part(x, at, wide.lanes) for at in range(0, b.lanes, wide.lanes)]
    return [_shuffled(b, x, x, wide.lanes)]


def _gathered(b: Builder, xs: list[Scalar], wide: Builder) -> Scalar:
    """A value of `b`, from such registers."""
    if len(xs) == 1:
        return xs[0] if b.lanes == wide.lanes else wide.part(xs[0], 0, b.lanes)
    while len(xs) > 1:
        half = b.with_lanes(b.lanes // len(xs))
        xs = [_shuffled(half, low, high, 2 * half.lanes) for low, high in zip(xs[::2], xs[1::2], strict=True)]
    return xs[0]


def _shuffled(b: Builder, low: Scalar, high: Scalar, lanes: int) -> Scalar:
    """So many lanes of two values, one after the other, and again from the first."""
    t, mask = b.type(low.dtype), ", ".join(f"i32 {i % (2 * b.lanes)}" for i in range(lanes))
    return Scalar(low.dtype, b.emit(f"shufflevector {t} {low.ir}, {t} {high.ir}, <{lanes} x i32> <{mask}>"))
