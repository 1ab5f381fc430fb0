"""Loads the compiler's plan as a program of the executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.compiler.steps.instructions import Communicate, KernelCall, NativeCall, bodies, mapped, walk
from mpijax.compiler.steps.plan import ProgramPlan
from mpijax.core.base import config
from mpijax.core.base.simulation import Simulation
from mpijax.runtime.machine.executable import Program, ProgramSpec, load
from mpijax.runtime.machine.limits import check_gathers, check_memory
from mpijax.runtime.matching.guard import before_first_run
from mpijax.runtime.matching.same_values import check_arguments
from mpijax.runtime.mpi.freed import tie
from mpijax.runtime.program import code, tiers
from mpijax.runtime.program.link import linked, uses_lanes
from mpijax.runtime.reports import step_notes

# Called with each plan that is loaded, and its name. Plans then do not come from disk, because those lack loop nests.
watchers: list[Callable[[ProgramPlan, str], None]] = []
# For `mpijax predict`: returns the instructions to run instead of a plan's, without its exchanges.
stand_in: Callable[[ProgramPlan, str], tuple[Any, ...]] | None = None

# With less work than this, in bytes, a program ends before another thread could take the GIL.
RELEASE_ABOVE = 1 << 16


def load_plan(plan: ProgramPlan, name: str, runs: int | None = None) -> Program:
    """The executable program; compiles new kernels.

    runs: the number of runs on baseline code, from `tiers.baseline_runs`; None: use optimized code.

    Raises JaxRuntimeError (RESOURCE_EXHAUSTED) if it cannot fit this rank's memory, and RuntimeError for a program of
    simulated ranks.
    """
    if (simulation := simulation_of(plan)) is not None:
        simulation.refuse(f"jit({name})")
    check_memory(plan, name)
    check_gathers(plan, name)
    for watch in watchers:
        watch(plan, name)
    addresses = code.addresses(plan.kernels, baseline=runs is not None)
    warms_up = runs is not None and addresses.baseline
    talks = communicates(plan)
    instructions = linked(plan.instructions) if talks else plan.instructions
    if stand_in is not None:
        instructions = stand_in(plan, name)
    if config.values.mpijax_profile_kernels:
        instructions = mapped(instructions, step_notes.noted)
    loaded = load(
        ProgramSpec(
            len(plan.in_avals), plan.buffers, instructions, plan.results, plan.arena,
            talks or _takes_long(plan), name, config.values.mpijax_keep_denormals, addresses,
            talks and uses_lanes(instructions), runs or 0, tiers.patience(runs), tiers.tier_up if warms_up else None,
        )  # fmt: skip
    )
    if talks:
        loaded.first = before_first_run(instructions, name, check_arguments)
        tie(loaded, plan.instructions)
    return loaded


def communicates(plan: ProgramPlan) -> bool:
    """Whether other ranks take part in a run of the program, and in loading it where a communicator is new."""
    return stand_in is None and any(isinstance(s, Communicate) for s in walk(plan.instructions))


def _takes_long(plan: ProgramPlan) -> bool:
    """Whether a run may take so long that it should release the GIL."""
    if sum(b.nbytes for b in plan.buffers) > RELEASE_ABOVE:
        return True
    loops = any(isinstance(s, KernelCall) and s.frame for s in plan.instructions)
    return loops or any(isinstance(s, NativeCall) or bodies(s) for s in plan.instructions)


def simulation_of(plan: ProgramPlan, shardings: tuple[Any, ...] = ()) -> Simulation | None:
    """The simulated ranks of a program; None for a program of this job. shardings: of the program's arguments."""
    meshes = [getattr(x, "mesh", None) for x in (*shardings, *(r.sharding for r in plan.results))]
    meshes += [x.params.get("mesh") for x in walk(plan.instructions) if isinstance(x, Communicate)]
    found = (getattr(mesh, "simulation", None) for mesh in meshes)
    return next((s for s in found if s is not None), None)
