"""Ahead of time: lowered and compiled programs to look at and to call."""

from __future__ import annotations

from typing import Any

from mpijax.compiler import llvm
from mpijax.compiler.plan import CommStep, GemmCall, KernelCall, Plan, module_text, walk
from mpijax.compiler.planner import plan_program
from mpijax.compiler.show import nest_text
from mpijax.core import tree
from mpijax.core.trace import typeof
from mpijax.runtime.engine import dispatch, physical
from mpijax.runtime.loader import load_plan

__all__ = ["Compiled", "Lowered", "dispatch", "lower"]


class Lowered:
    """A traced function lowered to loop nests and instructions."""

    def __init__(self, traced, plan: Plan):
        self._traced = traced
        self._plan = plan
        self.in_tree = traced.in_tree
        self.out_tree = traced.out_tree

    in_avals = property(lambda self: self._traced.in_avals)
    out_info = property(lambda self: self._traced.out_info)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The loop nests; with dialect 'jaxpr' the Jaxpr, with 'llvm' the code of the kernels."""
        if dialect == "jaxpr":
            return str(self._traced.jaxpr)
        if dialect == "llvm":
            return module_text(list(self._plan.kernels.values()))
        return "\n\n".join(nest_text(k) for k in self._plan.nests) + "\n"

    def compile(self, compiler_options: dict[str, Any] | None = None) -> Compiled:
        """Machine code, ready to call."""
        return Compiled(self._traced, self._plan)

    def cost_analysis(self) -> dict[str, float]:
        return cost_analysis(self._plan)


class MemoryAnalysis:
    """Bytes a program needs: arguments, results (of which in donated arguments' memory), temporaries, machine code."""

    def __init__(self, plan: Plan):
        m = plan.memory()
        self.argument_size_in_bytes = m["argument"]
        self.output_size_in_bytes = m["output"]
        self.alias_size_in_bytes = m["alias"]
        self.temp_size_in_bytes = m["temp"]
        self.generated_code_size_in_bytes = 0
        self.peak_memory_in_bytes = m["argument"] + m["output"] - m["alias"] + m["temp"]

    def __repr__(self) -> str:
        return f"MemoryAnalysis({', '.join(f'{k}={v}' for k, v in vars(self).items())})"


class Compiled:
    """A compiled program."""

    def __init__(self, traced, plan: Plan):
        self._traced = traced
        self._plan = plan
        self._program = load_plan(plan, traced.name)
        self.in_tree = traced.in_tree
        self.out_tree = traced.out_tree

    in_avals = property(lambda self: self._traced.in_avals)
    out_info = property(lambda self: self._traced.out_info)

    def __call__(self, *args, **kwargs):
        leaves, in_tree = tree.tree_flatten((args, kwargs))
        if in_tree != self.in_tree:
            raise TypeError(
                f"Function {self._traced.name} was called with arguments of another structure than it was compiled "
                f"for: "
                f"{in_tree} instead of {self.in_tree}"
            )
        avals = self._traced.jaxpr.in_avals
        for x, a in zip(leaves, avals, strict=True):
            got = typeof(x)
            if (got.shape, got.dtype) != (a.shape, a.dtype):
                raise TypeError(
                    f"Argument types differ from the types for which this computation was compiled: compiled for "
                    f"{a.str_short()}, called with {got.str_short()}"
                )
        outs = self._program.run([physical(x, a) for x, a in zip(leaves, avals, strict=True)])
        return tree.tree_unflatten(self.out_tree, outs)

    def as_text(self, assembly: bool = False) -> str:
        """The instructions; with `assembly`, also the machine code of the kernels."""
        text = self._plan.text() + "\n"
        if assembly and self._plan.kernels:
            text += llvm.to_assembly(module_text(list(self._plan.kernels.values())))
        return text

    def cost_analysis(self) -> dict[str, float]:
        """Operations and bytes of one run, and the numbers of kernels, library calls and communications."""
        return cost_analysis(self._plan)

    def memory_analysis(self) -> MemoryAnalysis:
        """Bytes of arguments, results and temporaries."""
        return MemoryAnalysis(self._plan)


def cost_analysis(plan: Plan) -> dict[str, float]:
    """Counts of one run of a program."""
    flops = sum(2.0 * s.m * s.n * s.k * _batch(s) for s in walk(plan.steps) if isinstance(s, GemmCall))
    flops += sum(float(k.flops()) for k in plan.nests)
    return {
        "flops": flops,
        "bytes accessed": float(sum(b.nbytes for b in plan.buffers)),
        "kernels": float(sum(isinstance(s, KernelCall) for s in walk(plan.steps))),
        "library calls": float(sum(isinstance(s, GemmCall) for s in walk(plan.steps))),
        "communications": float(sum(isinstance(s, CommStep) for s in walk(plan.steps))),
    }


def _batch(s: GemmCall) -> int:
    n = 1
    for d in s.batch:
        n *= d
    return n


def lower(traced) -> Lowered:
    """Plan a traced program."""
    return Lowered(traced, plan_program(traced.jaxpr, traced.donated if any(traced.donated) else ()))
