"""Holds the LLVM IR of one function: its basic blocks, operands and parameters.

The function is `void name(ptr buffers, ptr params, i64 begin, i64 end)`. `buffers` holds a pointer per operand.
`params` holds sizes and strides, so one function serves all sizes. `[begin, end)` is the part of the outermost loop to
run, so threads can share a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mpijax.compiler.fusion.expr import KnownNumber
from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.loops.alike import as_integer
from mpijax.scalar.builder import Builder, FunctionText
from mpijax.scalar.types import Scalar, imag_part, info


class Function:
    """A function under construction.

    text: names, declarations and helpers. operands: the arrays it is passed, with offsets. params: the integers it is
    passed. arguments: for each constant that differs between calls, its index in `params`. flag: the stack slot that
    records whether a search has a hit; "" without a search.
    """

    def __init__(self, passed: Iterable[KnownNumber]) -> None:
        self.text = FunctionText()
        self.operands: list[tuple[Value, int]] = []
        self.params: list[int] = []
        self.arguments: dict[KnownNumber, int] = {}
        self.passed = frozenset(passed)
        self.flag = ""
        # The code, the code of the entry block, and the names of values computed there.
        self._lines: list[str] = []
        self._entry: list[str] = []
        self._names: dict[Any, str] = {}
        self._block, self._labels = "entry", 0
        self._builders: dict[int, Builder] = {}

    def definition(self, name: str) -> str:
        """The function's IR; the declarations and helpers it needs are in `text`."""
        if "nontemporal" in self.text.helpers:
            self.builder(1).fence()
        body = [
            f"define void @{name}(ptr %buffers, ptr %params, i64 %begin, i64 %end) {{", "entry:", *self._entry,
            "  br label %start", "start:", *self._lines, "  ret void", "}",
        ]  # fmt: skip
        return "\n".join(body).replace("%entry ]", "%start ]") + "\n"

    def builder(self, lanes: int) -> Builder:
        """The builder of instructions on `lanes` lanes."""
        found = self._builders.get(lanes)
        if found is None:
            found = self._builders[lanes] = Builder(lanes, self.text, self._lines)
        return found

    # ------------------------------------------------------------ parameters

    def _slot(self, value: int) -> int:
        self.params.append(value)
        return len(self.params) - 1

    def param(self, value: int) -> str:
        """The IR operand of a run-time integer, loaded once in the entry block."""
        name = self._names.get(value)
        if name is None:
            slot = self._slot(value)
            name = self._names[value] = f"%p{slot}"
            self._entry.append(f"  %pp{slot} = getelementptr i64, ptr %params, i64 {slot}")
            self._entry.append(f"  {name} = load i64, ptr %pp{slot}, align 8")
        return name

    def argument(self, e: KnownNumber, lanes: int) -> Scalar:
        """A constant passed as an argument; loaded, and broadcast to all lanes, in the entry block."""
        element, bits = info(e.dtype).compute, 8 * e.dtype.itemsize
        slot = self.arguments.get(e)
        if slot is None:
            slot = self.arguments[e] = self._slot(as_integer(e))
            self._entry.append(f"  %cp{slot} = getelementptr i64, ptr %params, i64 {slot}")
            self._entry.append(f"  %ci{slot} = load i{bits}, ptr %cp{slot}, align 8")
            self._entry.append(f"  %c{slot} = bitcast i{bits} %ci{slot} to {element}")
        if lanes == 1:
            return Scalar(e.dtype, f"%c{slot}")
        name, vector = f"%c{slot}x{lanes}", f"<{lanes} x {element}>"
        if (e, lanes) not in self._names:
            self._names[e, lanes] = name
            self._entry.append(f"  {name}a = insertelement {vector} poison, {element} %c{slot}, i64 0")
            zeros = f"<{lanes} x i32> zeroinitializer"
            self._entry.append(f"  {name} = shufflevector {vector} {name}a, {vector} poison, {zeros}")
        return Scalar(e.dtype, name)

    def operand(self, value: Value, offset: int) -> str:
        """The pointer to an element of a value's array."""
        name = self._names.get((value, offset))
        if name is None:
            slot = len(self.operands)
            name = self._names[value, offset] = f"%b{slot}"
            self.operands.append((value, offset))
            self._entry.append(f"  %bp{slot} = getelementptr ptr, ptr %buffers, i64 {slot}")
            self._entry.append(f"  {name} = load ptr, ptr %bp{slot}, align 8")
        return name

    def array(self, dtype, length: int | str) -> str:
        """The pointer to an array on the stack."""
        name = self.text.fresh()
        self._entry.append(f"  {name} = alloca {self.builder(1)._element(dtype)}, i64 {length}, align 64")
        return name

    def take_flag(self) -> str:
        """The pointer to the flag, which is false at the start of a call."""
        if not self.flag:
            self.flag = self.text.fresh()
            self._entry += [f"  {self.flag} = alloca i1", f"  store i1 false, ptr {self.flag}"]
        return self.flag

    def element(self, pointer: str, dtype, index: str | int) -> str:
        """The pointer to the element `index` elements after `pointer`."""
        b = self.builder(1)
        return b.emit(f"getelementptr {b._element(dtype)}, ptr {pointer}, i64 {index}")

    # ------------------------------------------------------------ blocks

    def label(self, hint: str) -> str:
        """A new label of a basic block."""
        self._labels += 1
        return f"{hint}{self._labels}"

    def start(self, label: str) -> None:
        """Start a basic block with this label."""
        self._lines.append(f"{label}:")
        self._block = label

    def loop(
        self,
        lo: str,
        hi: str,
        step: int,
        carried: list[Scalar],
        lanes_of: list[int],
        body: Callable[[str, list[Scalar]], list[Scalar]],
        until: Callable[[], str] | None = None,
    ) -> list[Scalar]:
        """`for i in range(lo, hi, step)` with values carried between iterations; returns their last values.

        until: called after the body; returns an i1 that ends the loop.
        """
        head, exit_, before = self.label("loop"), self.label("done"), self._block
        b = self.builder(1)
        enter = b.emit(f"icmp slt i64 {lo}, {hi}")
        b.effect(f"br i1 {enter}, label %{head}, label %{exit_}")
        self.start(head)
        index = self.text.fresh()
        inside = [self._like(c) for c in carried]
        at = len(self._lines)
        after = body(index, inside)
        nxt = b.emit(f"add nsw i64 {index}, {step}")
        again = b.emit(f"icmp slt i64 {nxt}, {hi}")
        if until is not None:
            again = b.emit(f"select i1 {until()}, i1 false, i1 {again}")
        b.effect(f"br i1 {again}, label %{head}, label %{exit_}")
        latch = self._block
        self._lines[at:at] = [f"  {index} = phi i64 [ {lo}, %{before} ], [ {nxt}, %{latch} ]"]
        at += 1
        for c, phi, a, w in zip(carried, inside, after, lanes_of, strict=True):
            lines = self._phi(phi, c, before, a, latch, w)
            self._lines[at:at] = lines
            at += len(lines)
        self.start(exit_)
        results = []
        for c, a, w in zip(carried, after, lanes_of, strict=True):
            results.append(self._like(c))
            self._lines += self._phi(results[-1], c, before, a, latch, w)
        return results

    def _like(self, c: Scalar) -> Scalar:
        """New names for a value of the same type."""
        name, imag = self.text.fresh(), self.text.fresh()
        return Scalar(c.dtype, name, None if c.imag is None else Scalar(c.imag.dtype, imag))

    def _phi(self, phi: Scalar, first: Scalar, before: str, later: Scalar, latch: str, lanes: int) -> list[str]:
        t = self.builder(lanes).type(first.dtype)
        lines = [f"  {phi.ir} = phi {t} [ {first.ir}, %{before} ], [ {later.ir}, %{latch} ]"]
        if first.imag is not None:
            imag = imag_part(phi).ir
            lines.append(f"  {imag} = phi {t} [ {first.imag.ir}, %{before} ], [ {imag_part(later).ir}, %{latch} ]")
        return lines

    def each(self, lo: str, hi: str, step: int, body: Callable[[str], None]) -> None:
        """`for i in range(lo, hi, step)`."""

        def iteration(i: str, _) -> list[Scalar]:
            body(i)
            return []

        self.loop(lo, hi, step, [], [], iteration)

    def in_widths(self, lo: str, hi: str, widths: Iterable[int], body: Callable[..., None], rest: int = 0) -> None:
        """Loops over [lo, hi) one after the other, each with the next width, as far as whole steps of it go.

        rest: in place of the last loop, one more vector repeats elements of the one before. `body` receives `rest`, the
        number of its new elements, as its third argument. `rest` elements are left after whole vectors, or none.
        """
        last = 1
        for width in widths:
            if width == 1 and rest:
                break
            end = hi if width == 1 else self.vectors_end(lo, hi, width)

            def iteration(i: str, width: int = width) -> None:
                body(i, width)

            self.each(lo, end, width, iteration)
            lo, last = end, width
        if rest:
            begin = self.builder(1).emit(f"sub i64 {hi}, {last}")
            self.each(lo, hi, last, lambda _: body(begin, last, rest))

    def in_tiles(self, lo: str, hi: str, size: int, body: Callable[[str, str], None]) -> None:
        """A loop over tiles of [lo, hi) with `size` elements; the last one may be shorter."""
        self.each(lo, hi, size, lambda start: body(start, self.tile_end(start, size, hi)))

    def tile_end(self, start: str, size: int, hi: str) -> str:
        """The end of a tile of `size` elements, at most `hi`."""
        b = self.builder(1)
        stop = b.emit(f"add i64 {start}, {size}")
        low = b.emit(f"icmp slt i64 {stop}, {hi}")
        return b.emit(f"select i1 {low}, i64 {stop}, i64 {hi}")

    def vectors_end(self, lo: str, hi: str, lanes: int) -> str:
        """The end of the whole vectors of [lo, hi)."""
        b = self.builder(1)
        n = b.emit(f"sub i64 {hi}, {lo}")
        rest = b.emit(f"and i64 {n}, {lanes - 1}")
        return b.emit(f"sub i64 {hi}, {rest}")
