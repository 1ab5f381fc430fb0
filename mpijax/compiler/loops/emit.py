"""Emits LLVM IR for a kernel: loops as text around the scalar layer's vector instructions.

One loop is vectorized: W elements at a time, then the rest in a vector that repeats elements, or one by one. The choice
of that loop decides the `Strategy`. Each strategy has a function of the shared context (`LoopNest`), the current part
of the kernel, and the scope to emit into.

Loop-invariant values are computed before the loop (`evaluate.hoist`).
"""

from __future__ import annotations

from collections.abc import Iterable

from mpijax.compiler.fusion.expr import KnownNumber
from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.loops import cumulative
from mpijax.compiler.loops.across import across
from mpijax.compiler.loops.along import along
from mpijax.compiler.loops.blocked import blocked
from mpijax.compiler.loops.evaluate import hoist
from mpijax.compiler.loops.nest import LoopNest
from mpijax.compiler.loops.rows import rows
from mpijax.compiler.loops.schedule import Strategy
from mpijax.compiler.loops.scope import Scope
from mpijax.compiler.loops.tiled import tiled
from mpijax.core.rules.primitive import Primitive

_STRATEGIES = {
    Strategy.ACROSS: across,
    Strategy.ALONG: along,
    Strategy.ROWS: rows,
    Strategy.TILED: tiled,
    Strategy.BLOCKED: blocked,
}
_RUNNING = {
    Strategy.ACROSS: cumulative.across,
    Strategy.ALONG: cumulative.along,
    Strategy.TILED: cumulative.tiled,
}


def emit(kernel: Kernel, arguments: Iterable[KnownNumber], called: frozenset[Primitive]) -> LoopNest:
    """Emit a kernel. arguments: constants passed at run time. called: operations emitted as function calls."""
    nest = LoopNest(kernel, arguments, called)
    _outer_loops(nest, nest.kernel, 0, Scope(None, {}))
    return nest


def _outer_loops(nest: LoopNest, kernel: Kernel, depth: int, scope: Scope) -> None:
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
