"""Loops and branches whose bodies are kernels become one function, the loop included.

The function calls the kernels, which LLVM then inlines. Small values - carries, temporaries, constants - live on
its stack, where LLVM turns them into registers; so a loop over scalars touches no memory. Larger bodies, of which
threads take parts, and bodies with library calls or communication stay lists of instructions.

Its baseline code leaves for optimised code in the middle of a loop (`frame`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from mpijax.compiler.steps.frame import ResumeFrame, memcpy
from mpijax.compiler.steps.instructions import (
    Advance,
    Buffer,
    Const,
    Copy,
    Input,
    KernelCall,
    Loop,
    Place,
    Point,
    Pointer,
    Swap,
    Switch,
    Temp,
    While,
    bodies,
    bytes_touched,
    walk,
)
from mpijax.compiler.steps.plan import KernelCode, PlanBuilder

_STEPS = (KernelCall, Copy, Loop, While, Switch, Point, Advance, Swap)
# Values of at most this many bytes are kept on the stack.
STACK_UP_TO = 64
# Kernels of at most this many lines are inlined wherever they are called.
INLINE_LINES = 600


def native(steps: list[Any], plan: PlanBuilder, first_private: int) -> list[Any]:
    """The steps as a call of one compiled function, where that is possible; else the steps themselves.

    first_private: buffers from this number on are used by these steps only.
    """
    if not any(bodies(s) for s in steps) or not all(_suits(s) for s in walk(tuple(steps))):
        return steps
    return [_NativeFunction(steps, plan, first_private).call()]


def _suits(step: Any) -> bool:
    if isinstance(step, KernelCall):
        return step.extent < 2 * step.grain
    if isinstance(step, Loop) and step.tiles is not None:
        return False
    return isinstance(step, _STEPS)


class _NativeFunction:
    """The text of the function around the kernels."""

    def __init__(self, steps: list[Any], plan: PlanBuilder, first_private: int):
        self.steps = steps
        self.plan = plan
        self.first_private = first_private
        self.slots: dict[int, int] = {}
        self.params: list[int] = []
        self.allocas: list[str] = []
        self.entry: list[str] = []
        self.start: list[str] = []
        self.exit: list[str] = []
        self.lines: list[str] = []
        self.stack: dict[int, str] = {}
        self.kernels: dict[str, KernelCode] = {}
        self.count = 0
        self.frame = ResumeFrame()
        self.depth = 0
        self._run(steps)

    def call(self) -> KernelCall:
        """The call that takes the place of the steps."""
        called = [s for s in walk(tuple(self.steps)) if isinstance(s, KernelCall)]
        leaves = self.frame.words > 0
        text = self._define(leaves)
        name = "k" + hashlib.sha256(text.encode()).hexdigest()[:24]
        declares = frozenset().union(*(c.declares for c in self.kernels.values()), _DECLARES)
        helpers = {n: h for c in self.kernels.values() for n, h in c.helpers.items()}
        # Functions of one module share a part: it is in the module once.
        helpers |= {_part(n): _as_part(n, c.inner or c.define) for n, c in self.kernels.items()}
        inner = self._define(leaves=False) if leaves else ""
        define, inner = (t.replace("KERNEL_NAME", name) for t in (text, inner))
        self.plan.kernels[name] = KernelCode(define, declares, helpers, optimize=True, inner=inner)
        label = "_".join(["loop", *dict.fromkeys(s.label for s in called)])[:80]
        source = next(s.source for s in self.steps if hasattr(s, "source"))
        refs = tuple(Place(b) for b in self.slots)
        touched = bytes_touched(tuple(self.steps), self.plan.buffers)
        frame = self.frame.words
        return KernelCall(name, refs, tuple(self.params), 1, 1, source, label, frame=frame, touched=touched)

    def _define(self, leaves: bool) -> str:
        """The text. leaves: its loops may be left for better code; where other functions call it they may not."""
        head = "define void @KERNEL_NAME(ptr noalias %buffers, ptr noalias readonly %params, i64 %begin, i64 %end) {"
        slots = []
        for slot in self.slots.values():
            slots.append(f"  %sp{slot} = getelementptr ptr, ptr %buffers, i64 {slot}")
            slots.append(f"  %s{slot} = load ptr, ptr %sp{slot}, align 8")
        parts = [head, "entry:", *slots, *self.allocas, *self.entry]
        if leaves:
            frame = self.frame
            parts += [*frame.entry(len(self.slots)), "start:", *self.start, "  br label %body", "body:"]
            parts += [*frame.body(self.lines), *self.exit, *frame.end(), "  ret void", *frame.leaving()]
        else:
            parts += [*self.start, "  br label %body", "body:", *self.lines, *self.exit, "  ret void"]
        return "\n".join([*parts, "}", ""])

    # ------------------------------------------------------------ operands

    def _fresh(self, hint: str = "t") -> str:
        self.count += 1
        return f"%{hint}{self.count}"

    def _emit(self, text: str) -> None:
        self.lines.append("  " + text)

    def _label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def _start(self, label: str) -> None:
        self._emit(f"br label %{label}")
        self.lines.append(f"{label}:")

    def _param(self, value: int) -> str:
        """A run-time integer, so that other sizes need no other code."""
        name, address = self._fresh("p"), self._fresh("pp")
        self.entry.append(f"  {address} = getelementptr i64, ptr %params, i64 {len(self.params)}")
        self.entry.append(f"  {name} = load i64, ptr {address}, align 8")
        self.params.append(value)
        return name

    def _memory(self, number: int) -> str:
        """The pointer passed for a buffer."""
        return f"%s{self.slots.setdefault(number, len(self.slots))}"

    def _base(self, number: int) -> str:
        """Where a buffer begins."""
        b: Buffer = self.plan.buffers[number]
        if isinstance(b, Pointer) and number >= self.first_private:
            name = self._fresh()
            self._emit(f"{name} = load ptr, ptr {self._pointer(number)}, align 8")
            return name
        if 0 < b.nbytes <= STACK_UP_TO:
            return self._on_stack(number, b)
        return self._memory(number)

    def _pointer(self, number: int) -> str:
        """Where a pointer that this function moves is kept."""
        name = self.stack.get(number)
        if name is None:
            name = self.stack[number] = f"%ptr{number - self.first_private}"
            self.allocas.append(f"  {name} = alloca ptr, align 8")
            self.frame.keep(name, 8)
        return name

    def _on_stack(self, number: int, b: Buffer) -> str:
        """A small value: copied in, and out again if this function may have written it."""
        name = self.stack.get(number)
        if name is None:
            name = self.stack[number] = self._fresh("v")
            self.allocas.append(f"  {name} = alloca [{b.nbytes} x i8], align 64")
            read_only = isinstance(b, (Input, Const))
            if not read_only:
                self.frame.keep(name, b.nbytes)
            if not (isinstance(b, Temp) and number >= self.first_private):
                memory = self._memory(number)
                (self.entry if read_only else self.start).append(f"  {memcpy(name, memory, b.nbytes)}")
                if not read_only:
                    self.exit.append(f"  {memcpy(memory, name, b.nbytes)}")
        return name

    def _place(self, ref: Place) -> str:
        base = self._base(ref.buffer)
        if not ref.offset:
            return base
        name = self._fresh()
        self._emit(f"{name} = getelementptr i8, ptr {base}, i64 {ref.offset}")
        return name

    # ------------------------------------------------------------ steps

    def _run(self, steps: Iterable[Any]) -> None:
        for s in steps:
            _EMITTERS[type(s)](self, s)

    def _inside(self, steps: Iterable[Any]) -> None:
        """Steps of a loop or branch."""
        self.depth += 1
        self._run(steps)
        self.depth -= 1

    def _each_iteration(self, head: str) -> None:
        """The beginning of a loop's iterations, at which the function may be left if no loop or branch is around it."""
        self._start(head)
        if self.depth == 0:
            self.frame.loop(head)

    def _kernel(self, s: KernelCall) -> None:
        name = str(s.code)
        self.kernels[name] = self.plan.kernels[name]
        table = self._fresh("args")
        self.allocas.append(f"  {table} = alloca [{max(len(s.ptrs), 1)} x ptr], align 8")
        for i, ref in enumerate(s.ptrs):
            place, slot = self._place(ref), self._fresh()
            self._emit(f"{slot} = getelementptr ptr, ptr {table}, i64 {i}")
            self._emit(f"store ptr {place}, ptr {slot}, align 8")
        extent = "1" if s.extent == 1 else self._param(s.extent)
        params = self._fresh()
        self._emit(f"{params} = getelementptr i64, ptr %params, i64 {len(self.params)}")
        self.params += s.params
        self._emit(f"call void @{_part(name)}(ptr {table}, ptr {params}, i64 0, i64 {extent})")

    def _copy(self, s: Copy) -> None:
        target, origin = self._place(s.target), self._place(s.origin)
        if s.nbytes <= STACK_UP_TO:
            # Small values have memory of their own, or are the same one: they never overlap in part.
            self._emit(memcpy(target, origin, s.nbytes))
        else:
            size = self._param(s.nbytes)
            self._emit(f"call void @llvm.memmove.p0.p0.i64(ptr {target}, ptr {origin}, i64 {size}, i1 0)")

    def _loop(self, s: Loop) -> None:
        counter, n = self._fresh("c"), self._param(s.count)
        head, body, done = self._label("loop"), self._label("iteration"), self._label("done")
        self.allocas.append(f"  {counter} = alloca i64, align 8")
        self._emit(f"store i64 0, ptr {counter}, align 8")
        if self.depth == 0:
            self.frame.keep(counter, 8)
        self._each_iteration(head)
        i, more = self._fresh(), self._fresh()
        self._emit(f"{i} = load i64, ptr {counter}, align 8")
        self._emit(f"{more} = icmp slt i64 {i}, {n}")
        self._emit(f"br i1 {more}, label %{body}, label %{done}")
        self.lines.append(f"{body}:")
        self._inside(s.body)
        again, following = self._fresh(), self._fresh()
        self._emit(f"{again} = load i64, ptr {counter}, align 8")
        self._emit(f"{following} = add i64 {again}, 1")
        self._emit(f"store i64 {following}, ptr {counter}, align 8")
        self._emit(f"br label %{head}")
        self.lines.append(f"{done}:")

    def _while(self, s: While) -> None:
        head, body, done = self._label("while"), self._label("iteration"), self._label("done")
        self._each_iteration(head)
        self._inside(s.cond)
        flag, more = self._fresh(), self._fresh()
        self._emit(f"{flag} = load i8, ptr {self._place(s.flag)}, align 1")
        self._emit(f"{more} = icmp ne i8 {flag}, 0")
        self._emit(f"br i1 {more}, label %{body}, label %{done}")
        self.lines.append(f"{body}:")
        self._inside(s.body)
        self._emit(f"br label %{head}")
        self.lines.append(f"{done}:")

    def _switch(self, s: Switch) -> None:
        index, low, at = self._fresh(), self._fresh(), self._fresh()
        last = len(s.branches) - 1
        self._emit(f"{index} = load i32, ptr {self._place(s.index)}, align 4")
        self._emit(f"{low} = call i32 @llvm.smax.i32(i32 {index}, i32 0)")
        self._emit(f"{at} = call i32 @llvm.smin.i32(i32 {low}, i32 {last})")
        labels, done = [self._label("case") for _ in s.branches], self._label("done")
        cases = " ".join(f"i32 {i}, label %{label}" for i, label in enumerate(labels[:-1]))
        self._emit(f"switch i32 {at}, label %{labels[-1]} [ {cases} ]")
        for label, branch in zip(labels, s.branches, strict=True):
            self.lines.append(f"{label}:")
            self._inside(branch)
            self._emit(f"br label %{done}")
        self.lines.append(f"{done}:")

    def _point(self, s: Point) -> None:
        place = self._place(s.place)
        self._emit(f"store ptr {place}, ptr {self._pointer(s.pointer)}, align 8")

    def _advance(self, s: Advance) -> None:
        moved, base = self._fresh(), self._base(s.pointer)
        self._emit(f"{moved} = getelementptr i8, ptr {base}, i64 {self._param(s.nbytes)}")
        self._emit(f"store ptr {moved}, ptr {self._pointer(s.pointer)}, align 8")

    def _swap(self, s: Swap) -> None:
        a, b = self._base(s.first), self._base(s.second)
        self._emit(f"store ptr {b}, ptr {self._pointer(s.first)}, align 8")
        self._emit(f"store ptr {a}, ptr {self._pointer(s.second)}, align 8")


def _part(kernel: str) -> str:
    """The name of a kernel as a part. The kernel itself may be in the same module, for other programs to call."""
    return kernel + "_part"


def _as_part(kernel: str, define: str) -> str:
    """A kernel as a function that others of its module call."""
    inline = " alwaysinline" if define.count("\n") <= INLINE_LINES else ""
    head = rf"define (?:internal )?void @{kernel}(\(.*?\))(?: alwaysinline)? \{{"
    return re.sub(head, rf"define internal void @{_part(kernel)}\1{inline} {{", define)


_DECLARES = frozenset({
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    "declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)",
    "declare i32 @llvm.smax.i32(i32, i32)",
    "declare i32 @llvm.smin.i32(i32, i32)",
})  # fmt: skip

_EMITTERS: dict[type, Any] = {
    KernelCall: _NativeFunction._kernel, Copy: _NativeFunction._copy, Loop: _NativeFunction._loop,
    While: _NativeFunction._while, Switch: _NativeFunction._switch, Point: _NativeFunction._point,
    Advance: _NativeFunction._advance, Swap: _NativeFunction._swap,
}  # fmt: skip
