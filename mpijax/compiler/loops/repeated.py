"""Long operations that the kernels of a program do several times: they become functions, and calls of them.

The code of a sine is 40 instructions. Where there are many, LLVM takes most of its time for copies of the same.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from mpijax.compiler.fusion.kernel import Kernel
from mpijax.core.primitive import Primitive
from mpijax.scalar.builder import Builder, FunctionText
from mpijax.scalar.types import Scalar, info

# What is a long operation (see `core.lowering.Elementwise.cost`), and how many of a kind are several.
LONG, SEVERAL = 10, 2
_NO_OPERATION = frozenset(["load", "const", "index", "acc", "inner", "choose"])


def repeated(kernels: Iterable[Kernel]) -> frozenset[Primitive]:
    """The long operations that several expressions of these kernels are."""
    counts = Counter(e.attr[0] for kernel in kernels for e in kernel.expressions if e.op not in _NO_OPERATION)
    return frozenset(p for p, n in counts.items() if n >= SEVERAL and p.lower.cost >= LONG)


class Calls:
    """Operations in a kernel, of which `primitives` are called."""

    def __init__(self, primitives: frozenset[Primitive]) -> None:
        self.primitives = primitives
        # By what the instructions depend on: the name of the function, and the type of its result.
        self.functions: dict[Any, tuple[str, np.dtype]] = {}

    def apply(self, b: Builder, primitive: Primitive, args: list[Scalar], params: dict[str, Any]) -> Any:
        """What the operation's rule gives, by a call where that has the same instructions."""
        rule = primitive.lower.rule
        # Rules look at constants, which a function does not know.
        if primitive not in self.primitives or not all(_is_called(x) for x in args):
            return rule(b, *args, **params)
        types = tuple(x.dtype for x in args)
        key = (primitive, b.lanes, types, repr(sorted(params.items())))
        if key not in self.functions:
            text = FunctionText()
            inner = Builder(b.lanes, text)
            found = rule(inner, *(Scalar(t, f"%x{k}") for k, t in enumerate(types)), **params)
            formals = ", ".join(f"{b.type(t)} %x{k}" for k, t in enumerate(types))
            body = "\n".join([f"({formals}) {{", *inner.lines, f"  ret {b.type(found.dtype)} {found.ir}", "}"])
            name = f"mpijax.{primitive.name}.{hashlib.sha256(body.encode()).hexdigest()[:24]}"
            for helper, definition in text.helpers.items():
                b.helper(helper, definition)
            b.declares.update(text.declares)
            b.helper(name, f"define internal {b.type(found.dtype)} @{name}{body}")
            self.functions[key] = name, found.dtype
        name, dtype = self.functions[key]
        actual = ", ".join(f"{b.type(x.dtype)} {x.ir}" for x in args)
        return Scalar(dtype, b.emit(f"call {b.type(dtype)} @{name}({actual})"))


def _is_called(x: Scalar) -> bool:
    return info(x.dtype).kind == "f" and not x.is_constant
