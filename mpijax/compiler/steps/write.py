"""The instructions of steps, all memory being known: calls of kernels, library calls, exchanges, copies."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.graph.nodes import Node, Value
from mpijax.compiler.graph.products import StridedView, dims_of, sizes_of
from mpijax.compiler.loops.alike import Alike, Written
from mpijax.compiler.loops.chunks import grain_of
from mpijax.compiler.loops.emit import emit
from mpijax.compiler.loops.strided import arguments, strided
from mpijax.compiler.steps.host import PrimitiveCall
from mpijax.compiler.steps.instructions import (
    STRIDED,
    Communicate,
    Copy,
    Finish,
    GemmCall,
    KernelCall,
    NativeCall,
    Operand,
    Place,
    PythonCall,
)
from mpijax.compiler.steps.lower import matrix_of
from mpijax.compiler.steps.memory import BufferAssignment
from mpijax.compiler.steps.plan import KernelCode, PlanBuilder
from mpijax.compiler.steps.step import (
    BeginStep,
    CombinedStep,
    ControlStep,
    FinishStep,
    KernelStep,
    NodeStep,
    StartStep,
    Step,
)
from mpijax.core.rules.lowering import Communication, Library, Native
from mpijax.core.types.avals import ShapedArray


class Places(Protocol):
    """Where the values of a graph lie."""

    def place(self, v: Value) -> Place:
        """Where a value's memory begins."""

    def literal(self, v: Value) -> Place:
        """Where the constant made of a literal is."""

    def streamed(self, kernel: Kernel) -> frozenset[int]:
        """The results of a kernel that may be stored past the caches, by id."""


class InstructionWriter:
    """Writes the instructions of the steps of one graph.

    plan: has the buffers, and gets the kernels. control: the instructions of a loop or branch. kernels: the kernel of
    each call among the instructions, by its place. alone: whether the instructions are not part of a function that LLVM
    compiles, so that functions of mpijax can do the work of kernels.
    """

    def __init__(
        self,
        memory: BufferAssignment,
        places: Places,
        plan: PlanBuilder,
        control: Callable[[InstructionWriter, ControlStep], list[Any]],
        alone: bool,
    ):
        self.memory = memory
        self.places = places
        self.plan = plan
        self.instructions: list[Any] = []
        self.kernels: dict[int, Kernel] = {}
        self._control = control
        self._alone = alone
        self._nests = {
            step: step.kernel.streaming(places.streamed(step.kernel))
            for step in memory.steps if isinstance(step, KernelStep)
        }  # fmt: skip
        self._alike = Alike([*self._nests.values()])

    def written(self) -> list[Any]:
        """The instructions."""
        for step in self.memory.steps:
            self._write(step)
        return self.instructions

    def ref(self, v: Value, element_offset: int = 0) -> Place:
        """Where a value lies."""
        place = self.places.place(v)
        return Place(place.buffer, place.offset + element_offset * v.element.itemsize)

    def _write(self, step: Step) -> None:
        if isinstance(step, KernelStep):
            self._call_kernel(self._nests[step])
        elif isinstance(step, BeginStep):
            base, target = step.begin.base, step.begin.target
            self.instructions += [] if base is None else self.started(base, target, self.ref(target))
        elif isinstance(step, CombinedStep):
            self._write_combined(step)
        elif isinstance(step, (StartStep, FinishStep)):
            self._write_half(step)
        elif isinstance(step, ControlStep):
            self.instructions += self._control(self, step)
        else:
            assert isinstance(step, NodeStep)
            self._write_node(step)

    def started(self, base: Value, target: Value, to: Place) -> list[Copy]:
        """What makes the memory at `to` start as a copy of `base`: nothing, if `target` took over its memory."""
        origin = self.ref_or_const(base)
        if origin == to or (self.memory.donates(base, target) and to == self.ref(target)):
            return []
        return [Copy(to, origin, target.nbytes)]

    def _write_half(self, half: StartStep | FinishStep) -> None:
        """Start an exchange, or wait for it."""
        first = len(self.instructions)
        self._write(half.whole)
        [at] = [i for i, s in enumerate(self.instructions) if i >= first and isinstance(s, Communicate)]
        message = self.instructions[at]
        if isinstance(half, StartStep):
            self.instructions[at:] = [replace(message, goes_on=True)]
        else:
            self.instructions[first : at + 1] = [Finish(message.label, message.source)]

    def _write_combined(self, step: CombinedStep) -> None:
        """Pack, reduce once, unpack."""
        packs, unpacks = [], []
        at = 0
        for v, w in zip(step.reads, step.unpacked, strict=True):
            packs.append(Copy(self.ref(step.packed, at), self.ref_or_const(v), v.nbytes))
            unpacks.append(Copy(self.ref(w), self.ref(step.packed, at), w.nbytes))
            at += v.size
        first = step.nodes[0]
        packed = self.operand(step.packed)
        label = f"{first.primitive.name} x {len(step.nodes)}"
        why = "; ".join(dict.fromkeys(n.why for n in step.nodes if n.why))
        message = Communicate(first.primitive.lower, first.params, (packed,), (packed,), first.source, label, why=why)
        self.instructions += [*packs, message, *unpacks]

    def _call_kernel(self, kernel: Kernel) -> None:
        if any(v.size == 0 for v in kernel.kept):
            return
        moves = strided(kernel) if self._alone else None
        if moves is not None:
            self.plan.nests.append(kernel)
            arrays, params, extent, grain = arguments(moves)
            self._add_call(kernel, STRIDED, [(v, 0) for v in arrays], params, extent, grain)
            return
        written = self._alike.written_like(kernel)
        if written is None:
            written = self._write_kernel(kernel)
        self._add_call(kernel, written.name, *self._alike.passed(kernel, written), written.extent, written.grain)

    def _add_call(
        self,
        kernel: Kernel,
        code: str,
        arrays: Iterable[tuple[Value, int]],
        params: Iterable[int],
        extent: int,
        grain: int,
    ) -> None:
        ptrs = tuple(self.ref(v, offset) for v, offset in arrays)
        self.kernels[len(self.instructions)] = kernel
        self.instructions.append(
            KernelCall(code, ptrs, tuple(params), extent, grain, kernel.source, kernel.name)
        )

    def _write_kernel(self, kernel: Kernel) -> Written:
        """The text of a kernel, and how it is called."""
        nest = emit(kernel, self._alike.arguments.get(kernel, ()), self._alike.called)
        function = nest.function
        text = function.definition("KERNEL_NAME")
        whole = "\n".join([text, *function.text.helpers.values()])  # machine code is found by the name
        name = "k" + hashlib.sha256(whole.encode()).hexdigest()[:24]
        if name not in self.plan.kernels:
            self.plan.kernels[name] = KernelCode(
                text.replace("KERNEL_NAME", name), frozenset(function.text.declares), dict(function.text.helpers)
            )
            self.plan.nests.append(kernel)
        extent, grain = nest.schedule.extent, grain_of(kernel, nest.schedule)
        return self._alike.remember(
            kernel, Written(name, function.operands, function.params, function.arguments, extent, grain)
        )

    def _write_node(self, step: NodeStep) -> None:
        node = step.node
        lower = node.primitive.lower
        if isinstance(lower, Library):
            self._write_gemm(node)
            return
        inputs = [self.operand(v, self.memory.roots.sent_from(node, v)) for v in node.inputs]
        outputs = [self.operand(v) for v in node.outputs if id(v) in self.memory.buffer_of]
        where = node.source, node.primitive.name
        if isinstance(lower, Communication):
            self.instructions.append(
                Communicate(
                    lower, node.params, tuple(inputs), tuple(outputs), *where, posted=step.posted, why=node.why
                )
            )
            return
        if isinstance(lower, Native):
            self._write_native(node, inputs, outputs)
            return
        call = PrimitiveCall(node.primitive, node.params)
        self.instructions.append(PythonCall(call, tuple(inputs), tuple(outputs), *where))

    def _write_native(self, node: Node, inputs: list[Operand], outputs: list[Operand]) -> None:
        """The user's machine code; a result that begins with an operand's bytes is passed in its place."""
        lower = node.primitive.lower
        types = [[ShapedArray(v.shape, v.element) for v in values] for values in (node.inputs, node.outputs[:-1])]
        code = lower.code(*types, **node.params)
        for i, o in lower.aliased(node.params):
            self.instructions += self.started(node.inputs[i], node.outputs[o], outputs[o].place)
            inputs[i] = outputs[o]
        *results, status = outputs
        self.instructions.append(
            NativeCall(code, tuple(inputs), tuple(results), status, node.source, code.label, lower.foreign)
        )

    def ref_or_const(self, v: Value) -> Place:
        """Where an operand is; a literal becomes a constant."""
        return self.ref(v) if v.scalar is None else self.places.literal(v)

    def operand(self, v: Value, view: StridedView | None = None) -> Operand:
        """A value as an operand or result of an instruction. view: the part of an array that it is."""
        return Operand(self.ref_or_const(v) if view is None else self.ref(view.base, view.offset), v.shape, v.element)

    def _write_gemm(self, node: Node) -> None:
        d = dims_of(node)
        _, m, n, k = sizes_of(node)
        a, b = (matrix_of(node, i, self.memory.roots) for i in (0, 1))
        out = node.outputs[0]
        batch = tuple(node.inputs[0].shape[x] for x in d.lhs_batch)
        c_strides = []
        step = m * n
        for size in reversed(batch):
            c_strides.append(step)
            step *= size
        self.instructions.append(
            GemmCall(
                out.element, "NT"[a.transposed], "NT"[b.transposed], m, n, k, self.ref(a.base, a.offset), a.ld,
                self.ref(b.base, b.offset), b.ld, self.ref(out), n, batch, a.batch_strides, b.batch_strides,
                tuple(reversed(c_strides)), node.source,
            )  # fmt: skip
        )

