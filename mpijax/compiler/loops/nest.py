"""The shared context for emitting a loop nest: kernel, schedule, and the IR so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mpijax.compiler.fusion.depth import Shallow
from mpijax.compiler.fusion.expr import Expr, KnownNumber
from mpijax.compiler.fusion.kernel import Kernel, Member
from mpijax.compiler.fusion.pieces import split
from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.loops.evaluate import evaluated
from mpijax.compiler.loops.function import Function
from mpijax.compiler.loops.repeated import Calls
from mpijax.compiler.loops.schedule import Loop, Schedule, iterations_of
from mpijax.compiler.loops.scheduling import scheduled
from mpijax.compiler.loops.scope import Dependencies, Needs, Scope
from mpijax.core.rules.primitive import Primitive
from mpijax.scalar.types import Scalar


class LoopNest:
    """A loop nest under construction. Three attributes grow; one module changes each.

    function: the IR so far. calls: operations emitted as calls. kernel, schedule: the input. needs: dependencies of
    expressions. rows: members with a row kept on the stack between two passes, and its pointer. anchors: offsets of
    shared base pointers (see `compiler.loops.addresses`). any_zero: whether the sign of zero matters (see
    `compiler.loops.evaluate`).
    """

    def __init__(self, kernel: Kernel, arguments: Iterable[KnownNumber], called: frozenset[Primitive]) -> None:
        self.function = Function(arguments)
        self.schedule: Schedule = scheduled(kernel)
        self.kernel = self.schedule.source
        self.needs = Dependencies(self.schedule)
        self.calls = Calls(called, self.schedule.lanes, self.schedule.register)
        self.anchors: dict[tuple, list[int]] = {}
        self.any_zero: dict[Member, bool] = {}
        self.rows: dict[Value, tuple[Member, str]] = {}
        for member, length in self.schedule.rows:
            array = self.function.array(member.value.element, self.function.param(length))
            self.rows[member.value] = member, array
        self._evaluated = Shallow(lambda e, scope: evaluated(self, e, scope))

    def eval(self, e: Expr, scope: Scope) -> Scalar:
        """The value of an expression: a vector if it varies along the vectorized loop, else a scalar."""
        found = scope.lookup(e)
        if found is None:
            return self._evaluated(e, scope)
        if type(found) is not Scalar:
            found = scope.known[e] = found(scope)
        return found

    def vector(self, e: Expr, scope: Scope, lanes: int) -> Scalar:
        """The value of an expression in `lanes` lanes."""
        x = self.eval(e, scope)
        if lanes == 1 or self.varies(self.needs.of(e), scope):
            return x
        if isinstance(e, KnownNumber) and e in self.function.passed:
            return self.function.argument(e, lanes)
        found = scope.lookup((e, lanes))
        if found is None:
            found = scope.known[e, lanes] = self.function.builder(lanes).splat(x)
        return found

    def varies(self, needs: Needs, scope: Scope) -> bool:
        """Whether a value with these dependencies differs between lanes."""
        return scope.vector is not None and scope.vector in needs

    # ------------------------------------------------------------ loops

    def extent(self, loop: Loop) -> str:
        """The number of iterations of a loop, as a run-time integer."""
        return self.function.param(iterations_of(loop))

    def range(self, loop: Loop, outermost: bool) -> tuple[str, str]:
        """The range of iterations to run; the outermost loop's is passed to the function."""
        return ("%begin", "%end") if outermost else ("0", self.extent(loop))

    def iterations(self, depth: int, scope: Scope) -> tuple[str, str]:
        """The range of iterations of a reduced loop: all, or those of the chunk."""
        if depth == self.schedule.chunked:
            return scope.lookup("chunk")
        return "0", self.extent(self.schedule.inner[depth])

    def enter_chunk(self, number: str, scope: Scope) -> None:
        """In this scope, reduce the iterations of one chunk only."""
        assert self.schedule.chunked is not None
        b = self.function.builder(1)
        length = self.function.param(self.schedule.chunk_length)
        size = self.extent(self.schedule.inner[self.schedule.chunked])

        def bounded(at: str) -> str:
            inside = b.emit(f"icmp slt i64 {at}, {size}")
            return b.emit(f"select i1 {inside}, i64 {at}, i64 {size}")

        first = b.emit(f"mul i64 {number}, {length}")
        scope.known["chunk"] = bounded(first), bounded(b.emit(f"add i64 {first}, {length}"))

    def parts(self, kernel: Kernel, loop: Loop, lo: str, hi: str) -> Iterator[tuple[Kernel, str, str, int]]:
        """The parts of a loop over [lo, hi) in which the same alternatives hold.

        Yields for each part the kernel with the alternatives selected, its bounds and maximum size.
        """
        found, step, start = split(kernel, loop[0]), iterations_of(loop[1:]), lo
        for part in found:
            end = hi if part is found[-1] else self._cut(part.end * step, start, lo, hi)
            yield part.kernel, start, end, (part.end - part.begin) * step
            start = end

    def _cut(self, at: int, start: str, lo: str, hi: str) -> str:
        """A constant, clipped to [start, hi) if the function runs only a share of the loop."""
        cut = self.function.param(at)
        if lo == "0":
            return cut
        b = self.function.builder(1)
        early = b.emit(f"icmp slt i64 {cut}, {start}")
        cut = b.emit(f"select i1 {early}, i64 {start}, i64 {cut}")
        late = b.emit(f"icmp slt i64 {hi}, {cut}")
        return b.emit(f"select i1 {late}, i64 {hi}, i64 {cut}")
