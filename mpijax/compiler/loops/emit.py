"""From a kernel to LLVM IR: loops as text around the scalar layer's vector instructions.

The function is `void name(ptr buffers, ptr params, i64 begin, i64 end)`: `buffers` holds a pointer per
operand, `params` the sizes and strides, so that one function serves all sizes; `[begin, end)` is the part
of the outermost loop to run, so that threads can share a kernel.

One loop is vectorized: W elements at a time, then the rest one by one. Which one decides the
strategy:
- `across`: a kept axis; reductions run serially inside, one per lane. Plain maps are the case without reductions.
- `along`: a reduced axis; lanes hold partial results, combined at the end of the row.
- `rows`: a reduced axis too, for a block of rows at once (see `compiler.loops.rows`).
- `tiled`: a kept axis with long reductions; partial results of a tile of it stay in a small array.
- `blocked`: a map that reads an operand across its rows; in tiles (see `compiler.loops.blocked`).

Values that do not change in a loop are computed before it (`Evaluator.hoist`).
"""

from __future__ import annotations

from mpijax.compiler.loops.addresses import Scope
from mpijax.compiler.loops.tiles import Tiles
from mpijax.core.index import LoopVar


class Emitter(Tiles):
    """Emits one kernel."""

    def function(self) -> str:
        """The text of the function; declarations and helpers it needs are in `self.text`."""
        top = Scope(None, {})
        self._outer_loops(self.schedule.outer, 0, top)
        if "nontemporal" in self.text.helpers:
            self.builder(1).fence()
        body = [
            f"define void @{self.name}(ptr %buffers, ptr %params, i64 %begin, i64 %end) {{", "entry:", *self.entry,
            "  br label %start", "start:", *self.lines, "  ret void", "}",
        ]  # fmt: skip
        return "\n".join(body).replace("%entry ]", "%start ]") + "\n"

    def _outer_loops(self, loops: list[list[LoopVar]], depth: int, scope: Scope) -> None:
        if depth == len(loops):
            getattr(self, "_" + self.schedule.strategy)(scope, depth == 0)
            return
        lo, hi = self._range(loops[depth], depth == 0)

        def body(i: str, _):
            inner = Scope(scope, {id(loops[depth][-1]): i})
            if loops[depth][-1] is self.kernel.chunks:
                self.enter_chunk(i)
            self._outer_loops(loops, depth + 1, inner)
            return []

        for start, end, _ in self.parts(loops[depth], lo, hi):
            stores = self.kernel.inner + self.kernel.outer
            self.hoist(self.kernel.roots(), stores, scope, self.schedule.vector_id, self.schedule.lanes)
            self.loop(start, end, 1, [], [], body)
