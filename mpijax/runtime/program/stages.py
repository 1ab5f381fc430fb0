"""Ahead-of-time stages: lowered and compiled programs, to inspect and to call."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax._ext.dispatch import JitBase
from mpijax.compiler.backend import llvm
from mpijax.compiler.backend.baseline import final
from mpijax.compiler.loops.show import nest_text
from mpijax.compiler.sharding.build_shards import others_sharding
from mpijax.compiler.steps.instructions import Communicate, GemmCall, KernelCall, walk
from mpijax.compiler.steps.plan import ProgramPlan, module_text
from mpijax.compiler.steps.planner import plan_program
from mpijax.core.base import config
from mpijax.core.sharding.abstract_mesh import AbstractMesh
from mpijax.core.sharding.context import context_mesh
from mpijax.core.sharding.format import Format, row_by_row
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.shardings import SingleDeviceSharding
from mpijax.core.tracing.requested import named_sharding
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.types.abstract import AbstractValue
from mpijax.core.types.typeof import typeof
from mpijax.runtime.arrays.default_sharding import default_sharding
from mpijax.runtime.arrays.devices import devices, local_devices
from mpijax.runtime.machine.executable import Program
from mpijax.runtime.machine.limits import check_gathers
from mpijax.runtime.program import code
from mpijax.runtime.program.constants import check_constants
from mpijax.runtime.program.engine import physical, program_of, shardings_of
from mpijax.runtime.program.explain import explained
from mpijax.runtime.program.loader import communicates, load_plan, simulation_of
from mpijax.runtime.program.program_page import ProgramPage
from mpijax.runtime.program.traffic import bytes_sent
from mpijax.transforms import ref_state, reports
from mpijax.transforms.compiler_options import check_compiler_options
from mpijax.transforms.high_stages import delivered, is_changing, lower_traced, with_parts
from mpijax.transforms.traced import Stage, check_structure

__all__ = ["Compiled", "Lowered", "lower"]


# JAX's names of program texts; mpijax shows loop nests for them.
_DIALECTS = (None, "stablehlo", "hlo", "mhlo")


class _PlannedStage(Stage):
    """The state that the stages after tracing share."""

    __slots__ = ("_traced", "_plan", "_names")

    def __init__(self, traced, plan: ProgramPlan, names: Sequence[str]):
        self._traced = traced
        self._plan = plan
        self._names = names  # of the arguments; the function may be deleted before an error needs them

    in_tree = property(lambda self: self._traced.in_tree)
    out_tree = property(lambda self: self._traced.out_tree)
    args_info = property(lambda self: self._traced.args_info)
    out_info = property(lambda self: self._traced.out_info)

    def cost_analysis(self) -> dict[str, float]:
        """Operations, bytes touched and bytes sent in one run; numbers of kernels, library calls and exchanges."""
        return cost_analysis(self._plan)


class Lowered(_PlannedStage):
    """A traced function lowered to loop nests and instructions.

    >>> mpijax.jit(jnp.sin).lower(jnp.ones(3)).out_info.shape
    (3,)
    """

    # The program over meshes without devices, if `compile` takes the devices.
    __slots__ = ("_without_devices",)

    def __init__(self, traced, plan: ProgramPlan, names: Sequence[str], without_devices: Any = None):
        super().__init__(traced, plan, names)
        self._without_devices = without_devices

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The loop nests; with dialect 'jaxpr' the Jaxpr, with 'llvm' the LLVM IR of the kernels.

        debug_info: whether to add the instructions, with the user's lines. Raises ValueError for an unknown dialect.
        """
        if dialect == "jaxpr":
            return str(self._traced.jaxpr)
        if dialect == "llvm":
            return final(module_text(list(self._plan.kernels.values())))
        if dialect not in _DIALECTS:
            raise ValueError(f"unknown dialect: {dialect}. Use 'jaxpr' or 'llvm', or none for the loop nests")
        text = "\n\n".join(nest_text(k) for k in self._plan.nests) + "\n"
        return f"{text}\n{self._plan.text()}\n" if debug_info else text

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The Jaxpr for 'jaxpr', else the plan: buffers, instructions and loop nests."""
        return self._traced.jaxpr if dialect == "jaxpr" else self._plan

    def compile(self, compiler_options: dict[str, Any] | None = None, *, device_assignment: Any = None) -> Compiled:
        """Compile to machine code. The options are XLA's; they are checked and have no effect.

        device_assignment: a sequence of devices. A program whose shardings are over meshes without devices needs it:
        RuntimeError without. For other programs it must be the devices of the shardings: ValueError if it differs.
        """
        check_compiler_options(compiler_options)
        if self._without_devices is not None:
            if device_assignment is None:
                raise RuntimeError(
                    "device_assignment cannot be `None` during compilation: the shardings are over meshes without "
                    "devices. Pass a tuple of devices to `.compile(device_assignment=)`."
                )
            return lower(_on_devices(self._without_devices, device_assignment)).compile()
        if device_assignment is not None:
            self._check_devices([d.id for d in device_assignment])
        return Compiled(self._traced, self._plan, self._names)

    def _check_devices(self, ids: list[int]) -> None:
        results = (r.sharding for r in self._plan.results)
        found = next((s for s in (*self._traced.shardings, *results) if s is not None), None) or _here()
        known = [d.id for d in found._device_assignment]
        if ids != known:
            raise ValueError(
                "device_assignment passed to `.compile` must match the device_assignment calculated from array "
                f"shardings and out_shardings. Got device ids passed to compile {ids} and device ids calculated from "
                f"array shardings and out_shardings {known}"
            )


class MemoryAnalysis:
    """Bytes of a program: arguments, results (the part in donated arguments, too), temporaries, machine code."""

    def __init__(self, plan: ProgramPlan):
        m = plan.memory()
        self.argument_size_in_bytes = m["argument"]
        self.output_size_in_bytes = m["output"]
        self.alias_size_in_bytes = m["alias"]
        self.temp_size_in_bytes = m["temp"]
        self.generated_code_size_in_bytes = 0
        self.peak_memory_in_bytes = m["argument"] + m["output"] - m["alias"] + m["temp"]

    def __repr__(self) -> str:
        return f"MemoryAnalysis({', '.join(f'{k}={v}' for k, v in vars(self).items())})"


class _KnownCalls(JitBase):
    """The calls of a compiled program whose types were checked before: they go straight to the program."""

    def __init__(self) -> None:
        self._plain = True
        self._set_typeof(typeof)

    def _slow_call(self, _args: tuple, _kwargs: dict[str, Any]) -> Any:
        return NotImplemented


class Compiled(_PlannedStage):
    """A compiled program.

    >>> compiled = mpijax.jit(lambda x: x * x).lower(jnp.arange(3)).compile()
    >>> type(compiled).__name__, compiled(jnp.arange(3))
    ('Compiled', Array([0, 1, 4], dtype=int32))
    """

    __slots__ = ("_loaded", "_simulation", "_known")

    def __init__(self, traced, plan: ProgramPlan, names: Sequence[str]):
        super().__init__(traced, plan, names)
        self._loaded: Program | None = None
        self._known = _KnownCalls()
        self._simulation = simulation_of(plan, tuple(traced.shardings))
        if self._simulation is not None:
            check_gathers(plan, traced.name)
        elif communicates(plan) and threading.current_thread() is not threading.main_thread():
            code.addresses(plan.kernels)  # communicators are made at the first call: ranks run threads in any order
        else:
            self._loaded = load_plan(plan, traced.name)

    @property
    def _program(self) -> Program:
        if self._loaded is None:
            self._loaded = load_plan(self._plan, self._traced.name)
        return self._loaded

    def __call__(self, *args, **kwargs):
        """Run it. Raises TypeError for arguments of other types than it was compiled for, and for traced values.

        Raises RuntimeError for a program of simulated ranks.
        """
        out = self._known(*args, **kwargs)
        return self._checked_call(args, kwargs) if out is NotImplemented else out

    def _checked_call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        if self._simulation is not None:
            self._simulation.refuse(f"jit({self._traced.name})")
        leaves, structure = tree.tree_flatten((args, kwargs))
        in_parts = AbstractValue.any_high and structure != self.in_tree
        if in_parts:
            leaves, structure = tree.tree_flatten(with_parts((args, kwargs)))
        check_structure(structure, self.in_tree, "compiled")
        traced = self._traced
        if traced.uses_refs:
            outs = ref_state.call(lambda operands, _: self._run(operands)[1], traced.moved, leaves, traced.written)
            return tree.tree_unflatten(self.out_tree, outs)
        program, outs = self._run(leaves)
        out = tree.tree_unflatten(self.out_tree, outs)
        if in_parts or is_changing(out):
            return delivered(out, (args, kwargs))
        self._known._remember(self._known._key(args, kwargs), program, self.out_tree, traced.jaxpr.in_avals, physical)
        return out

    def _run(self, leaves: list[Any]) -> tuple[Program, list[Any]]:
        """The program for the arguments, and its results."""
        avals = self._traced.jaxpr.in_avals
        self._check_types(leaves, avals)
        compiled_for = _shardings(self._traced)
        shardings = _as_compiled(shardings_of(leaves) or (), compiled_for)
        self._check_shardings(leaves, shardings, avals)
        if shardings != compiled_for:
            donated = self._traced.donated if any(self._traced.donated) else ()
            program = program_of(self._traced.jaxpr, self._traced.name, donated, shardings, config.trace_key())
        else:
            program = self._program
        return program, program.run([physical(x, a) for x, a in zip(leaves, avals, strict=True)])

    def _check_shardings(self, leaves, shardings: tuple[Any, ...], avals) -> None:
        """Raise ValueError for arguments with other shardings than the program was compiled for."""
        known = (None,) * len(self._traced.moved) + tuple(self._traced.shardings)
        wrong = [
            f"Argument {self._name(i)} with shape {aval.str_short(False)}:\n  Passed sharding: {given}\n"
            f"  Required sharding: {expected or _here()}"
            for i, (given, expected, aval) in enumerate(zip(shardings, known, avals, strict=False))
            if given is not None and not _fits(given, expected or _here(), aval.ndim)
        ]
        if wrong:
            raise ValueError(
                "Computation was compiled for input shardings that disagree with the shardings of arguments passed to "
                f"it. Here are the {len(wrong)} mismatches:\n" + "\n".join(wrong)
                + f"\nLay them out with jax.device_put, or call {self._traced.name} itself, which compiles again."
            )  # fmt: skip

    def _check_types(self, leaves, avals) -> None:
        wrong = []
        for i, (x, expected) in enumerate(zip(leaves, avals, strict=True)):
            if isinstance(x, Tracer):
                raise TypeError(
                    "Cannot apply JAX transformations to a function lowered and compiled for a particular signature. "
                    f"Detected argument of Tracer type {type(x)}: call the function under jit instead."
                )
            given = typeof(x)
            if (given.shape, given.dtype) != (expected.shape, expected.dtype):
                wrong.append(f"Argument '{self._name(i)}' compiled with {expected.str_short(False)} and called with "
                             f"{given.str_short(False)}")  # fmt: skip
        if wrong:
            raise TypeError(
                "Argument types differ from the types for which this computation was compiled. The mismatches are:\n"
                + "\n".join(wrong) + f"\nCall the jitted function {self._traced.name} itself, which compiles for new "
                "types, or convert the arguments."
            )  # fmt: skip

    def _name(self, i: int) -> str:
        i -= len(self._traced.moved)
        return self._names[i] if i < len(self._names) else str(i)

    @property
    def input_shardings(self) -> Any:
        """The shardings of the arguments, as a tree ``(args, kwargs)``."""
        shardings = self._traced.shardings
        return tree.tree_unflatten(self.in_tree, [s or others_sharding(shardings) or _here() for s in shardings])

    @property
    def output_shardings(self) -> Any:
        """The shardings of the results, as a tree."""
        shardings = [r.sharding if r.sharding is not None else _here() for r in self._plan.results]
        return tree.tree_unflatten(self.out_tree, shardings)

    @property
    def input_formats(self) -> Any:
        """The memory layouts and shardings of the arguments, as a tree ``(args, kwargs)``."""
        return tree.tree_map(lambda x, s: Format(row_by_row(len(x.shape)), s), self.args_info, self.input_shardings)

    @property
    def output_formats(self) -> Any:
        """The memory layouts and shardings of the results, as a tree."""
        return tree.tree_map(lambda x: Format(row_by_row(len(x.shape)), x.sharding), self.out_info)

    @property
    def out_info(self) -> Any:
        """Shapes, dtypes and shardings of the result, as a tree."""
        return tree.tree_map(lambda x, s: x.update(sharding=s), self._traced.out_info, self.output_shardings)

    def runtime_executable(self) -> Any:
        """The executor's program."""
        return self._program

    def as_text(self, assembly: bool = False) -> str:
        """The instructions; with `assembly`, also the machine code of the kernels."""
        text = self._plan.text() + "\n"
        if assembly and self._plan.kernels:
            text += llvm.to_assembly(final(module_text(list(self._plan.kernels.values()))))
        return text

    def explain(self) -> str:
        """A table of the messages of this rank in one run, by the user's lines, and of gathered arrays.

        >>> print(mpijax.jit(lambda x: x * x).lower(jnp.arange(3)).compile().explain())
        sends nothing
        sent by this rank: 0 bytes; memory: 24 bytes
        <BLANKLINE>
        """
        return explained(self._plan)

    def show(self) -> ProgramPage:
        """The program as an HTML page: the user's lines, kernels with their loops, messages, buffers, array shardings.

        A notebook displays it. ``show().save("program.html")`` writes it to a file.
        """
        return ProgramPage(self._plan, self._traced.name)

    def memory_analysis(self) -> MemoryAnalysis:
        """Bytes of arguments, results and temporaries."""
        return MemoryAnalysis(self._plan)


def cost_analysis(plan: ProgramPlan) -> dict[str, float]:
    """Counts for one run of a program on this rank. In the bytes sent, a `while` loop counts as one iteration."""
    flops = sum(2.0 * s.m * s.n * s.k * _batch(s) for s in walk(plan.instructions) if isinstance(s, GemmCall))
    flops += sum(float(k.flops()) for k in plan.nests)
    return {
        "flops": flops,
        "bytes accessed": float(sum(b.nbytes for b in plan.buffers)),
        "kernels": float(sum(isinstance(s, KernelCall) for s in walk(plan.instructions))),
        "library calls": float(sum(isinstance(s, GemmCall) for s in walk(plan.instructions))),
        "communications": float(sum(isinstance(s, Communicate) for s in walk(plan.instructions))),
        "bytes sent": float(bytes_sent(plan)),
    }


def _batch(s: GemmCall) -> int:
    n = 1
    for d in s.batch:
        n *= d
    return n


def _as_compiled(given: tuple[Any, ...], expected: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shardings of arguments. One that is not committed goes to the device that the program was compiled for."""
    if not any(isinstance(s, SingleDeviceSharding) for s in expected):
        return given
    pairs = zip(given or (None,) * len(expected), expected, strict=True)
    return tuple(e if g is None and isinstance(e, SingleDeviceSharding) else g for g, e in pairs)


def _fits(given: Any, expected: Any, ndim: int) -> bool:
    """Whether an array has the sharding that a program expects; the program's mesh may be abstract."""
    mesh = getattr(expected, "mesh", None)
    if mesh is not None and mesh is mesh.abstract_mesh:
        return getattr(given, "mesh", None) is not None and given.mesh.abstract_mesh.shape_tuple == mesh.shape_tuple
    return given.is_equivalent_to(expected, ndim)


def _here() -> Any:
    """The sharding of arrays on this rank's device."""
    return SingleDeviceSharding(local_devices()[0])


def lower(traced, devices_later: bool = False) -> Lowered:
    """Plan a traced program. devices_later: whether `compile` may take the devices of meshes that have none.

    Raises ValueError for arguments over an abstract mesh without devices in context, unless `devices_later`, and
    RuntimeError for constants with shards on other processes.
    """
    check_constants(traced.jaxpr)
    if devices_later and context_mesh() is None and any(map(_lacks_devices, traced.shardings)):
        size = next(s.mesh.size for s in traced.shardings if _lacks_devices(s))
        planned = lower(_on_devices(traced, devices()[:size]))
        return Lowered(planned._traced, planned._plan, planned._names, traced)
    traced = traced.of_shardings(tuple(_over_devices(s) for s in traced.shardings))
    if traced.jaxpr.is_high:
        traced = lower_traced(traced)
    donated = traced.donated if any(traced.donated) else ()
    if donated:
        reports.unused_donations(traced.jaxpr.in_avals, donated, traced.jaxpr.out_avals)
    known = traced.jaxpr.jaxpr.debug_info  # None for a deserialized program
    paths = tree.tree_leaves_with_path(traced.args_info)
    names = [tree.keystr(path) for path, _ in paths] if known is None else list(known.arg_names or ())
    plan = plan_program(traced.jaxpr, donated, _shardings(traced), default_sharding())
    return Lowered(traced, plan.worded(_shardings(traced), traced.asked), names)


def _lacks_devices(sharding: Any) -> bool:
    return isinstance(getattr(sharding, "mesh", None), AbstractMesh)


def _on_devices(traced, over: Sequence[Any]) -> Any:
    """The program with the meshes of its arguments that lack devices over these. ValueError for a wrong number."""

    def placed(sharding: Any) -> Any:
        if not _lacks_devices(sharding):
            return sharding
        mesh = sharding.mesh
        if mesh.size != len(over):
            raise ValueError(
                f"Length of device assignment {len(over)} is not equal to the size of the mesh {mesh.size}"
            )
        return sharding.update(mesh=Mesh(np.reshape(over, mesh.axis_sizes), mesh.axis_names, mesh.axis_types))

    return traced.of_shardings(tuple(map(placed, traced.shardings)))


def _over_devices(sharding: Any) -> Any:
    """An argument's sharding, over the mesh in context if its own mesh is abstract."""
    if _lacks_devices(sharding):
        sharding = named_sharding(sharding, "ShapeDtypeStruct", "jit")
        return sharding if sharding.is_followed else None
    return sharding


def _shardings(traced) -> tuple[Any, ...]:
    """The shardings of the Jaxpr's arguments; empty if all are on this rank's device."""
    found = tuple(s if s is not None and s.is_followed else None for s in traced.shardings)
    return (None,) * len(traced.moved) + found if any(found) else ()
