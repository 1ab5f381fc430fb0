"""From a graph to steps: kernels, library calls, loops, and memory for every value."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from mpijax.compiler.fusion import updates
from mpijax.compiler.fusion.gemm import matrix_operand, product_operand, strided_view
from mpijax.compiler.fusion.groups import grouped, kernel_of
from mpijax.compiler.fusion.kernel import Begin, Kernel
from mpijax.compiler.graph.nodes import Graph, Node, Value
from mpijax.compiler.graph.products import dims_of, sizes_of
from mpijax.compiler.loops.alike import Alike, Written
from mpijax.compiler.loops.chunks import grain_of, in_chunks, running_in_chunks
from mpijax.compiler.loops.emit import emit
from mpijax.compiler.steps.arena import Room, Span, aligned
from mpijax.compiler.steps.combine import combine
from mpijax.compiler.steps.host import PrimitiveCall
from mpijax.compiler.steps.instructions import (
    Communicate,
    Copy,
    Finish,
    GemmCall,
    KernelCall,
    NativeCall,
    Operand,
    Output,
    Place,
    PythonCall,
    Temp,
)
from mpijax.compiler.steps.overlap import Overlap
from mpijax.compiler.steps.plan import KernelCode, Plan
from mpijax.compiler.steps.posting import Posting
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
from mpijax.core import config
from mpijax.core.avals import ShapedArray
from mpijax.core.errors import BrokenForm
from mpijax.core.lowering import Communication, Library, Native


class Planner:
    """What of one graph runs in which order, and where each value lives.

    Whole programs and bodies of loops and branches differ in where arguments and results are; loops and branches
    are left to `compiler.steps.control`.
    """

    def __init__(self, graph: Graph, plan: Plan, donated: tuple[bool, ...] = ()):
        self.graph = graph
        self.plan = plan
        self.roots, self.grouper = grouped(graph, donated)
        self.arguments = set(map(id, graph.inputs))
        # Entries of the buffer table that this graph needs, and the bytes of those that lie in the arena.
        self.table: list[Any] = []
        self.arena = 0
        self.buffer_of: dict[int, int] = {}
        self.last_use: dict[int, int] = {}
        self.first_def: dict[int, int] = {}
        # Whose memory a value takes over, and which values take over each one's.
        self.shares: dict[int, int] = {}
        self.takers: dict[int, list[int]] = {}
        # The operand whose memory each value has, also where that has it from a result.
        self.giver_of: dict[int, int] = {}
        self.donated: tuple[bool, ...] = (False,) * len(graph.inputs)
        # Results in whose memory something else lives until they are made.
        self.occupied: set[int] = set()
        self.steps: list[Step] = []
        self.emitted: list[Any] = []
        self._lower_units()

    # ------------------------------------------------------------ lowering

    def _lower_units(self) -> None:
        for unit in self.grouper.units:
            if unit.group is not None:
                kernel = kernel_of(unit.group)
                if kernel.inner or kernel.outer:
                    for part in in_chunks(kernel):
                        self.steps.append(KernelStep(part))
                continue
            node = unit.node
            assert node is not None  # a unit without a group is an operation
            if node.regions:
                self.steps.append(self.plan_control(node))
            elif node.kind == "update":
                for piece in updates.lower(node, self.roots):
                    if isinstance(piece, Begin):
                        self.steps.append(BeginStep(piece))
                    else:
                        self.steps += map(KernelStep, running_in_chunks(piece))
            else:
                self.steps.append(NodeStep(node, self._operands(node)))
        if not self.graph.unequal:
            self.steps = combine(self.steps)
        if config.values.mpijax_overlap:
            for rearranged in (Overlap, Posting):
                self.steps = rearranged(self.steps).steps()
        if config.values.jax_enable_checks:
            self.verify()

    def _operands(self, node: Node) -> list[Value]:
        """What an operation that is one instruction reads from memory."""
        if isinstance(node.primitive.lower, Library):
            return [self._matrix(node, k).base for k in (0, 1)]
        return list(node.inputs)

    def _matrix(self, node: Node, k: int):
        found = product_operand(node, node.inputs[k], lambda v: id(v) in self.roots.ids)
        if k == 1 and node.inputs[0] is node.inputs[1]:
            found = _right_operand(node, lambda v: id(v) in self.roots.ids)
        assert found is not None, node
        return found

    def verify(self) -> None:
        """Check the order of the steps. Raises BrokenForm where one reads what no step before it has made."""
        made = {id(v) for step in self.steps for v in step.writes}
        for step in self.steps:
            late = [v for v in step.reads if id(v) in made and v not in step.writes]
            if late:
                raise BrokenForm(f"a step reads what is made before it: {step} reads {late}")
            made -= set(map(id, step.writes))

    # ------------------------------------------------------------ memory

    def _assign_memory(self) -> None:
        """Liveness over steps, then arena offsets by first fit; results get memory of their own."""
        for t, step in enumerate(self.steps):
            for v in step.writes:
                self.first_def.setdefault(id(v), t)
                self.last_use[id(v)] = max(self.last_use.get(id(v), t), t)
            for v in step.reads:
                if v.scalar is None:
                    self.last_use[id(v)] = t
        self._ends()
        self._share({id(v) for v in self.graph.outputs} | {id(v) for v in self.roots.aliases.values()})
        room = Room(self._lasting())
        for t, step in enumerate(self.steps):
            room.leave(t - 1)
            for v in step.writes:
                if id(v) in self.buffer_of or self.first_def[id(v)] != t:
                    continue
                shared = self.shares.get(id(v))
                if shared is not None and shared in self.buffer_of:
                    self.buffer_of[id(v)] = self.buffer_of[shared]
                    continue
                end_t = self._group_last(id(v))
                offset = room.place(v.nbytes, end_t)
                self.arena = max(self.arena, aligned(offset + v.nbytes))
                self._enter(v, Temp(offset, v.nbytes, v))

    def _ends(self) -> None:
        """Enter the arguments and results into the table."""
        raise NotImplementedError

    def _lasting(self) -> list[Span]:
        """Where the temporaries entered so far are; those of `_ends` last from the first step to the last."""
        return [(b.offset, b.offset + b.nbytes, len(self.steps)) for b in self.table if isinstance(b, Temp)]

    def _enter(self, v: Value, buffer: Any) -> None:
        self.buffer_of[id(v)] = len(self.table)
        self.table.append(buffer)

    def _group_last(self, key: int) -> int:
        """Last use of a value and of those that take over its memory."""
        last = self.last_use[key]
        stack = [key]
        while stack:
            for taker in self.takers.get(stack.pop(), ()):
                last = max(last, self.last_use[taker])
                stack.append(taker)
        return last

    def _share(self, outputs: set[int]) -> None:
        """Let results take over the memory of operands that die where they are made."""
        taken: set[int] = set()
        for t, step in enumerate(self.steps):
            for v in step.writes:
                if self.first_def[id(v)] == t:
                    dying = (u for u in step.replaceable(v) if id(u) not in taken and self._dies(u, t, outputs))
                    same_size = (u for u in dying if u.nbytes == v.nbytes)
                    taken |= next((found for u in same_size if (found := self._gives(u, v, step, outputs))), set())

    def _dies(self, u: Value, t: int, outputs: set[int]) -> bool:
        """Whether a value is needed for the last time at step `t`."""
        return self.last_use.get(id(u), -1) == t and id(u) not in outputs and u.kind not in ("const", "literal")

    def _gives(self, u: Value, v: Value, step: Step, outputs: set[int]) -> set[int]:
        """Let `v` lie in the memory of `u`, which dies; the values whose memory is decided then: none, if it cannot."""
        if id(u) in self.arguments:
            chain = self._updated(v, outputs) if isinstance(step, BeginStep) else [v]
            if len(chain) > 1 and self._starts_in(u, chain[-1]):
                self.buffer_of.update((id(w), self.buffer_of[id(chain[-1])]) for w in chain)
                return {id(u), *map(id, chain)}
            has_place = id(v) in self.buffer_of
            return {id(u)} if has_place and self._takes_over(u, self.buffer_of[id(v)]) else set()
        if id(v) in self.occupied:
            return set()
        if id(v) in self.buffer_of:
            return {id(u)} if self._lives_in(u, v) else set()
        self.shares[id(v)] = id(u)
        self.takers.setdefault(id(u), []).append(id(v))
        self.giver_of[id(v)] = id(u)
        return {id(u)}

    def _lives_in(self, u: Value, v: Value) -> bool:
        """Let the memory that `v`, a result, has of its own be that of `u` from the start, if `u` has none yet."""
        root = id(u)
        while root in self.giver_of:
            root = self.giver_of[root]
        if root in self.shares or root in self.buffer_of:
            return False
        self.buffer_of.update(dict.fromkeys((root, *self.takers.get(root, ())), self.buffer_of[id(v)]))
        self.giver_of[id(v)] = id(u)
        return True

    def _updated(self, v: Value, outputs: set[int]) -> list[Value]:
        """A value and what it becomes by updates, as long as nothing else reads it."""
        begun = [(t, s.begin) for t, s in enumerate(self.steps) if isinstance(s, BeginStep)]
        begins = {id(b.base): (t, b.target) for t, b in begun if b.base is not None}
        chain = [v]
        while id(chain[-1]) in begins and id(chain[-1]) not in outputs:
            t, target = begins[id(chain[-1])]
            if self.last_use[id(chain[-1])] != t:
                break
            chain.append(target)
        return chain

    def _starts_in(self, argument: Value, result: Value) -> bool:
        """Whether a result is to lie in the memory of an argument, which may be overwritten; makes it so if it can."""
        entry = self.buffer_of.get(id(result))
        if entry is None or entry == self.buffer_of.get(id(argument)):
            return entry is not None
        return self._takes_over(argument, entry)

    def _takes_over(self, argument: Value, entry: int) -> bool:
        """Let the memory of a donated argument be that of a result, if none is yet; whether that is done."""
        buffer = self.table[entry]
        if not self.donated[argument.position] or not isinstance(buffer, Output) or buffer.donor >= 0:
            return False
        self.table[entry] = replace(buffer, donor=argument.position)
        return True

    # ------------------------------------------------------------ instructions

    def ref(self, v: Value, element_offset: int = 0) -> Place:
        """Where a value lies."""
        place = self.place(v)
        return Place(place.buffer, place.offset + element_offset * v.element.itemsize)

    def place(self, v: Value) -> Place:
        """Where a value's memory begins."""
        raise NotImplementedError

    def _emit_steps(self) -> None:
        kernels = [step for step in self.steps if isinstance(step, KernelStep)]
        for nest in kernels:
            nest.kernel = nest.kernel.streaming(self.streamed(nest.kernel))
        self.alike = Alike([nest.kernel for nest in kernels])
        for step in self.steps:
            self._emit(step)

    def _emit(self, step: Step) -> None:
        if isinstance(step, KernelStep):
            self._emit_kernel(step.kernel)
        elif isinstance(step, BeginStep):
            base, target = step.begin.base, step.begin.target
            self.emitted += [] if base is None else self.started(base, target, self.ref(target))
        elif isinstance(step, CombinedStep):
            self._emit_combined(step)
        elif isinstance(step, (StartStep, FinishStep)):
            self._emit_half(step)
        elif isinstance(step, ControlStep):
            self.emitted += self.emit_control(step)
        else:
            assert isinstance(step, NodeStep)
            self._emit_node(step)

    def plan_control(self, node: Node) -> Any:
        """The step of a loop or branch, its bodies planned."""
        raise NotImplementedError

    def emit_control(self, step: Any) -> list[Any]:
        """The steps of a loop or branch, all memory being known."""
        raise NotImplementedError

    def started(self, base: Value, target: Value, to: Place) -> list[Copy]:
        """What makes the memory at `to` start as a copy of `base`: nothing, if `target` took over its memory."""
        origin = self.ref_or_const(base)
        if origin == to or (self._donates(base, target) and to == self.ref(target)):
            return []
        return [Copy(to, origin, target.nbytes)]

    def _emit_half(self, half: StartStep | FinishStep) -> None:
        """Start an exchange, or wait for it."""
        first = len(self.emitted)
        self._emit(half.whole)
        [at] = [i for i, s in enumerate(self.emitted) if i >= first and isinstance(s, Communicate)]
        message = self.emitted[at]
        if isinstance(half, StartStep):
            self.emitted[at:] = [replace(message, goes_on=True)]
        else:
            self.emitted[first : at + 1] = [Finish(message.label, message.source)]

    def _emit_combined(self, step: CombinedStep) -> None:
        """Pack, reduce once, unpack."""
        packs, unpacks = [], []
        at = 0
        for v, w in zip(step.reads, step.unpacked, strict=True):
            packs.append(Copy(self.ref(step.packed, at), self.ref_or_const(v), v.nbytes))
            unpacks.append(Copy(self.ref(w), self.ref(step.reduced, at), w.nbytes))
            at += v.size
        first = step.nodes[0]
        source, target = self.operand(step.packed), self.operand(step.reduced)
        label = f"{first.primitive.name} x {len(step.nodes)}"
        why = "; ".join(dict.fromkeys(n.why for n in step.nodes if n.why))
        message = Communicate(first.primitive.lower, first.params, (source,), (target,), first.source, label, why=why)
        self.emitted += [*packs, message, *unpacks]

    def _donates(self, base: Value, target: Value) -> bool:
        buffer = self.table[self.buffer_of[id(target)]]
        return isinstance(buffer, Output) and base.kind == "input" and buffer.donor == base.position

    def _emit_kernel(self, kernel: Kernel) -> None:
        if any(v.size == 0 for v in kernel.variables) and not kernel.axes:
            return
        written = self.alike.written_like(kernel)
        if written is None:
            written = self._write_kernel(kernel)
        arrays, params = self.alike.passed(kernel, written)
        ptrs = tuple(self.ref(v, offset) for v, offset in arrays)
        self.emitted.append(
            KernelCall(written.name, ptrs, tuple(params), written.extent, written.grain, kernel.source, kernel.name)
        )

    def _write_kernel(self, kernel: Kernel) -> Written:
        """The text of a kernel, and how it is called."""
        nest = emit(kernel, self.alike.arguments.get(kernel, ()))
        function = nest.function
        text = function.definition("KERNEL_NAME")
        name = "k" + hashlib.sha256(text.encode()).hexdigest()[:24]
        if name not in self.plan.kernels:
            self.plan.kernels[name] = KernelCode(
                text.replace("KERNEL_NAME", name), frozenset(function.text.declares), dict(function.text.helpers)
            )
            self.plan.nests.append(kernel)
        extent, grain = nest.schedule.extent, grain_of(kernel, nest.schedule)
        return self.alike.remember(
            kernel, Written(name, function.operands, function.params, function.arguments, extent, grain)
        )

    def streamed(self, kernel: Kernel) -> frozenset[int]:
        """The results of a kernel that may be stored past the caches."""
        return frozenset()

    def _emit_node(self, step: NodeStep) -> None:
        node = step.node
        lower = node.primitive.lower
        if isinstance(lower, Library):
            self._emit_gemm(node)
            return
        inputs = [self.operand(v) for v in node.inputs]
        outputs = [self.operand(v) for v in node.outputs if id(v) in self.buffer_of]
        where = node.source, node.primitive.name
        if isinstance(lower, Communication):
            self.emitted.append(
                Communicate(
                    lower, node.params, tuple(inputs), tuple(outputs), *where, posted=step.posted, why=node.why
                )
            )
            return
        if isinstance(lower, Native):
            self._emit_native(node, inputs, outputs)
            return
        call = PrimitiveCall(node.primitive, node.params)
        self.emitted.append(PythonCall(call, tuple(inputs), tuple(outputs), *where))

    def _emit_native(self, node: Node, inputs: list[Operand], outputs: list[Operand]) -> None:
        """The user's machine code; a result that begins with an operand's bytes is passed in its place."""
        lower = node.primitive.lower
        types = [[ShapedArray(v.shape, v.element) for v in values] for values in (node.inputs, node.outputs[:-1])]
        code = lower.code(*types, **node.params)
        for i, o in lower.aliased(node.params):
            self.emitted += self.started(node.inputs[i], node.outputs[o], outputs[o].place)
            inputs[i] = outputs[o]
        *results, status = outputs
        self.emitted.append(
            NativeCall(code, tuple(inputs), tuple(results), status, node.source, code.label, lower.foreign)
        )

    def ref_or_const(self, v: Value) -> Place:
        """Where an operand is; a literal becomes a constant."""
        return self.ref(v) if v.scalar is None else self.literal(v)

    def operand(self, v: Value) -> Operand:
        """A value as an operand or result of an instruction."""
        return Operand(self.ref_or_const(v), v.shape, v.element)

    def literal(self, v: Value) -> Place:
        """Where the constant made of a literal is."""
        raise NotImplementedError

    def _emit_gemm(self, node: Node) -> None:
        d = dims_of(node)
        _, m, n, k = sizes_of(node)
        a, b = self._matrix(node, 0), self._matrix(node, 1)
        out = node.outputs[0]
        batch = tuple(node.inputs[0].shape[x] for x in d.lhs_batch)
        c_strides = []
        step = m * n
        for size in reversed(batch):
            c_strides.append(step)
            step *= size
        self.emitted.append(
            GemmCall(
                out.element, "NT"[a.transposed], "NT"[b.transposed], m, n, k, self.ref(a.base, a.offset), a.ld,
                self.ref(b.base, b.offset), b.ld, self.ref(out), n, batch, a.batch_strides, b.batch_strides,
                tuple(reversed(c_strides)), node.source,
            )  # fmt: skip
        )


def _right_operand(node: Node, stored):
    d = dims_of(node)
    view = strided_view(node.inputs[1], stored)
    assert view is not None, node
    return matrix_operand(view, node.inputs[1].shape, d.rhs_batch, d.rhs_contract, d.rhs_free)
