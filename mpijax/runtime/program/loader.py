"""From the compiler's plan to a program of the executor."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.compiler.steps.plan import (
    AdvanceStep,
    Buffer,
    CommStep,
    CopyCall,
    GemmCall,
    HostStep,
    KernelCall,
    LoopStep,
    NativeCall,
    Plan,
    PointStep,
    Ref,
    SwapStep,
    SwitchStep,
    WaitStep,
    WhileStep,
    bodies,
    walk,
)
from mpijax.core import config, dtypes
from mpijax.runtime.machine import program
from mpijax.runtime.machine.limits import check_gathers, check_memory
from mpijax.runtime.matching.guard import before_first_run
from mpijax.runtime.mpi.freed import tie
from mpijax.runtime.program import code
from mpijax.runtime.program.comm import instructions_for

# Work below this many bytes is done before another thread could take the GIL.
RELEASE_ABOVE = 1 << 16


def load_plan(plan: Plan, name: str) -> program.Program:
    """The executable program; compiles the kernels that are new.

    Raises JaxRuntimeError (RESOURCE_EXHAUSTED) if it cannot fit this rank's memory.
    """
    check_memory(plan, name)
    check_gathers(plan, name)
    spec = _spec(plan, name)
    loaded = program.load(spec)
    if any(isinstance(s, CommStep) for s in walk(plan.steps)):
        loaded.first = before_first_run(spec.instructions, name)
        tie(loaded, plan.steps)
    return loaded


def _spec(plan: Plan, name: str) -> program.ProgramSpec:
    known = code.addresses(plan.kernels)
    outputs = {r.index: r for r in plan.results if r.kind == "buffer"}
    buffers = [_buffer(plan, i, b, outputs) for i, b in enumerate(plan.buffers)]
    instructions = _all(plan.steps, known)
    results = []
    const_slots = {b.index: i for i, b in enumerate(plan.buffers) if b.kind == "const"}
    for r in plan.results:
        index = const_slots[r.index] if r.kind == "const" else r.index
        results.append(program.Result(r.kind, index, r.aval, r.sharding))
    heavy = sum(b.nbytes for b in plan.buffers) > RELEASE_ABOVE or any(
        isinstance(s, (CommStep, NativeCall)) or bodies(s) for s in walk(plan.steps)
    )
    return program.ProgramSpec(
        len(plan.in_avals), tuple(buffers), instructions, tuple(results), plan.arena, heavy, name,
        config.values.mpijax_keep_denormals,
    )


def _buffer(plan: Plan, i: int, b: Buffer, outputs) -> Any:
    if b.kind == "input":
        return program.Input(b.index, -1 if b.value.aval.dtype == dtypes.float0 else b.nbytes)
    if b.kind == "temp":
        return program.Temp(b.offset)
    if b.kind == "pointer":
        return program.Alias(None)
    if b.kind == "const":
        return program.Const(_constant(plan.consts[b.index], b))
    r = outputs[i]
    return program.Output(b.nbytes, r.aval, b.donor, r.sharding)


def _constant(value: Any, b: Buffer) -> Any:
    if hasattr(value, "_physical"):
        return value
    return np.asarray(value, b.value.element, order="C")


def _ref(r: Ref) -> program.Ref:
    return program.Ref(r.buffer, r.offset)


def _view(item) -> program.View:
    ref, shape, dtype = item
    return program.View(_ref(ref), tuple(shape), dtype)


def _all(steps: list[Any], known: dict[str, int]) -> tuple:
    return tuple([i for s in steps for i in _instructions(s, known)])


def _instructions(step: Any, known: dict[str, int]) -> list[Any]:
    if isinstance(step, KernelCall):
        ptrs = tuple(_ref(r) for r in step.ptrs)
        return [program.Kernel(known[step.name], ptrs, tuple(step.params), step.extent, step.grain)]
    if isinstance(step, GemmCall):
        return [
            program.Gemm(
                step.dtype, "T" if step.trans_a else "N", "T" if step.trans_b else "N", step.m, step.n, step.k,
                _ref(step.a), step.lda, _ref(step.b), step.ldb, _ref(step.c), step.ldc,
                step.batch, step.a_strides, step.b_strides, step.c_strides,
            )  # fmt: skip
        ]
    if isinstance(step, CopyCall):
        return [program.Copy(_ref(step.target), _ref(step.origin), step.nbytes)]
    if isinstance(step, HostStep):
        return [program.HostCall(step.fun, tuple(map(_view, step.inputs)), tuple(map(_view, step.outputs)))]
    if isinstance(step, NativeCall):
        return _native(step)
    if bodies(step) or isinstance(step, (PointStep, AdvanceStep, SwapStep)):
        return [_control(step, known)]
    if isinstance(step, WaitStep):
        return [program.Finish()]

    return instructions_for(step)


def _native(step: NativeCall) -> list[Any]:
    """The call, and what is done where it leaves a status that is not 0."""
    status = _ref(step.status[0])
    places = [item[0] for item in (*step.inputs, *step.outputs, step.status)]
    views = tuple(map(_view, (*step.inputs, step.status)))
    return [
        program.Fill(status, 4, b"\0"),
        program.Kernel(step.code.address(), tuple(map(_ref, places)), tuple(step.code.words), 1, 1, step.foreign),
        program.Switch(status, ((), (program.HostCall(step.code.failed, views, ()),))),
    ]


def _control(step: Any, known: dict[str, int]) -> Any:
    """Loops, branches, and the pointers they move."""
    if isinstance(step, LoopStep):
        return program.Loop(step.count, _all(step.body, known))
    if isinstance(step, WhileStep):
        return program.While(_all(step.cond, known), _ref(step.flag), _all(step.body, known))
    if isinstance(step, SwitchStep):
        return program.Switch(_ref(step.index), tuple(_all(b, known) for b in step.branches))
    if isinstance(step, PointStep):
        return program.Point(step.pointer, _ref(step.ref))
    if isinstance(step, AdvanceStep):
        return program.Advance(step.pointer, step.nbytes)
    return program.Swap(step.first, step.second)
