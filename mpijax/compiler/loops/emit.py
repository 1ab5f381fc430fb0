"""From a kernel to LLVM IR: loops as text around the scalar layer's vector instructions.

One loop is vectorized: W elements at a time, then the rest one by one. Which one decides the strategy, a function of
the context that all share (`Nest`), the part of the kernel at hand, and the region of code that it is written in:
- `across`: a kept axis; reductions run serially inside, one per lane. Plain maps are the case without reductions.
- `along`: a reduced axis; lanes hold partial results, combined at the end of the row.
- `rows`: a reduced axis too, for a block of rows at once.
- `tiled`: a kept axis with long reductions; partial results of a tile of it stay in a small array.
- `blocked`: a map that reads an operand across its rows; in tiles.

Values that do not change in a loop are computed before it (`evaluate.hoist`).
"""

from __future__ import annotations

from collections.abc import Iterable

from mpijax.compiler.fusion.expr import Expr
from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.loops import cumulative
from mpijax.compiler.loops.across import across
from mpijax.compiler.loops.along import along
from mpijax.compiler.loops.blocked import blocked
from mpijax.compiler.loops.evaluate import hoist
from mpijax.compiler.loops.nest import Nest
from mpijax.compiler.loops.rows import rows
from mpijax.compiler.loops.scope import Scope
from mpijax.compiler.loops.tiled import tiled
from mpijax.core.primitive import Primitive

_STRATEGIES = {"across": across, "along": along, "rows": rows, "tiled": tiled, "blocked": blocked}
_RUNNING = {"across": cumulative.across, "along": cumulative.along, "tiled": cumulative.tiled}


def emit(kernel: Kernel, arguments: Iterable[Expr], called: frozenset[Primitive]) -> Nest:
    """The kernel, written. arguments: constants that it is passed when it runs. called: operations that are calls."""
    nest = Nest(kernel, arguments, called)
    _outer_loops(nest, nest.kernel, 0, Scope(None, {}))
    return nest


def _outer_loops(nest: Nest, kernel: Kernel, depth: int, scope: Scope) -> None:
    loops, strategies = nest.schedule.outer, _STRATEGIES if kernel.cumulate is None else _RUNNING
    if depth == len(loops):
        strategies[nest.schedule.strategy](nest, kernel, scope, depth == 0)
        return
    v = loops[depth][-1]
    for part, lo, hi, _ in nest.parts(kernel, loops[depth], *nest.range(loops[depth], depth == 0)):
        hoist(nest, part.roots, part.stores, scope, nest.schedule.vector, nest.schedule.lanes)

        def body(i: str, part: Kernel = part) -> None:
            inner = scope.at(v, i)
            if v is part.chunks:
                nest.enter_chunk(i, inner)
            _outer_loops(nest, part, depth + 1, inner)

        nest.function.each(lo, hi, 1, body)
