"""A kernel as a program: from the blocks of one position to the same blocks at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from mpijax.core.base import config
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import callable_location
from mpijax.core.programs.jaxpr import ClosedJaxpr, Literal, jaxpr_as_fun
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.tracing.refs import Ref, read
from mpijax.core.tracing.trace import named_axes
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapedArray
from mpijax.experimental.pallas import programs
from mpijax.experimental.pallas.blocks import INDEX, BlockedOperand, Scalars, closed_without_arrays
from mpijax.transforms.flat import debug_info


@dataclass(frozen=True)
class GridKernel:
    """The program that all positions of a grid run.

    closed: `(position, computed sizes of the grid, scalars, buffers) -> buffers`. The buffers are the blocks of the
    operands, those of the results, and the scratch memory.
    """

    closed: ClosedJaxpr
    num_scalars: int
    inputs: tuple[BlockedOperand, ...]
    outputs: tuple[BlockedOperand, ...]

    @cached_property
    def _buffers(self) -> list[Any]:
        """The variables of the buffers on entry."""
        return self.closed.jaxpr.invars[-len(self.closed.jaxpr.outvars) :] if self.closed.jaxpr.outvars else []

    @cached_property
    def reads(self) -> list[bool]:
        """For each buffer, whether its contents on entry affect anything except its own contents on exit."""
        jaxpr = self.closed.jaxpr
        used = {v for e in jaxpr.eqns for v in e.invars if not isinstance(v, Literal)}
        elsewhere = [
            any(out is var for j, out in enumerate(jaxpr.outvars) if j != i) for i, var in enumerate(self._buffers)
        ]
        return [v in used or other for v, other in zip(self._buffers, elsewhere, strict=True)]

    @cached_property
    def writes(self) -> list[bool]:
        """For each buffer, whether its contents change."""
        return [a is not b for a, b in zip(self._buffers, self.closed.jaxpr.outvars, strict=True)]

    def run(self, ids: Sequence[Any], computed_sizes: Sequence[Any], scalars: Sequence[Any], buffers: Sequence[Any]):
        """The buffers after the program at a position."""
        return jaxpr_as_fun(self.closed)(*ids, *computed_sizes, *scalars, *buffers)


def traced(
    fun: Callable,
    name: str | None,
    grid: tuple[int | None, ...],
    names: tuple[Any, ...] | None,
    scalars: Scalars,
    inputs: tuple[BlockedOperand, ...],
    outputs: tuple[BlockedOperand, ...],
    scratch: Sequence[ShapedArray],
    structures: Sequence[Any],
) -> GridKernel:
    """Trace a kernel.

    grid: sizes of the grid, None for a computed size. names: of the axes of the grid, if they have names. structures:
    structures of the operands, the results and the scratch memory, which the function gets in this order.
    """
    buffers = [*(b.block_aval for b in (*inputs, *outputs)), *scratch]
    computed = sum(size is None for size in grid)
    where = f"The kernel function in the pallas_call {name or callable_location(fun)}"

    def program(*args):
        rest = iter(args)
        ids = [next(rest) for _ in grid]
        sizes = [next(rest) if size is None else size for size in grid]
        prefetched = scalars.refs([next(rest) for _ in scalars.avals])
        refs = [Ref.of(x) for x in rest]
        it = iter(refs)
        given = [tree.tree_unflatten(s, [next(it) for _ in range(s.num_leaves)]) for s in structures]
        positional, named = _arguments(given)
        axes = named_axes(dict(zip(names or (), sizes, strict=False)))
        with programs.at(ids, sizes), axes, config.mutable_array_checks(False):
            result = fun(*prefetched, *positional, **named)
        if result is not None:
            raise ValueError(f"{where} should return None. It returns a PyTree: {tree.tree_structure(result)}")
        return [read(r) for r in refs]

    avals = [INDEX] * (len(grid) + computed) + list(scalars.avals) + buffers
    jaxpr, consts = trace_to_jaxpr(program, avals, debug_info("pallas_call kernel", fun, (), {}))
    return GridKernel(closed_without_arrays(jaxpr, consts, where), len(scalars.avals), inputs, outputs)


def _arguments(given: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """What the kernel is called with: operands, results and scratch memory, the last by name if it is a dictionary."""
    positional: list[Any] = []
    for part in given[:2]:
        positional += part if isinstance(part, (tuple, list)) else [part]
    scratch = given[2]
    if isinstance(scratch, dict):
        return positional, scratch
    return [*positional, *scratch], {}
