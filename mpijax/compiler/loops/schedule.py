"""How a kernel's loops are ordered, which one is vectorized and how wide: the form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cached_property
from itertools import chain

import numpy as np

from mpijax.compiler.fusion.expr import Applied, Expr, IndexValue, Load, MemberValue, ReducedValue, children, reachable
from mpijax.compiler.fusion.kernel import Kernel, Member, Reduce
from mpijax.compiler.graph.nodes import operation_of
from mpijax.core.base.errors import require
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import Library, Meaning
from mpijax.core.shapes.index import LoopVar
from mpijax.scalar.types import info

# Loop variables that are stepped through as one, the outermost first.
Loop = tuple[LoopVar, ...]

# A vector register; and a wide one, which some processors also have.
VECTOR_BYTES, WIDE_BYTES = 32, 64
# A row of at most this many bytes that a later pass reads again is kept on the stack.
ROW_BYTES = 1 << 17
# Cheaper values are computed again instead.
ROW_ABOVE = 6
# Serial loops of at most this many iterations are written out, if their bodies are small.
UNROLL_UP_TO = 16
UNROLL_EXPRESSIONS = 12
# Rows of at most so many elements that several passes read are turned (see `compiler.loops.turned`), their loops
# written out.
TURN_UP_TO = 32
# Elements at most so many apart are picked out of whole registers.
NEAR = 4
# Vectorized loops of at most this many whole vectors are written out.
WRITE_OUT = 4
# Bodies of at most this cost use four vector registers at a time.
LIGHT = 6
# Bodies of at most this cost use two: one register's chain of dependent operations leaves the processor waiting.
MODERATE = 120
# In kernels of fewer elements only lighter ones do: machine code for two takes longer to compile than it saves.
SHORTER = 1 << 18
MODERATE_IN_SHORTER = 24
# In loops that are shorter, what fills no vectors is worth narrower ones.
FEW_TURNS = 256


class Strategy(StrEnum):
    """Which loop is vectorized, and how.

    ACROSS: a kept loop; each lane runs the reductions serially. ALONG: a reduced loop; lanes hold partial results.
    ROWS: a reduced loop, for a block of rows at once. TILED: a kept loop with long reductions, whose partial results
    are in a small array. BLOCKED: a kept loop of a map that reads an operand across its rows, in tiles.
    """

    ACROSS = "across"
    ALONG = "along"
    ROWS = "rows"
    TILED = "tiled"
    BLOCKED = "blocked"


@dataclass(frozen=True, eq=False)
class Schedule:
    """The loop structure of a kernel.

    source: the kernel whose loops are split. kernel: that of the part where most elements lie, which is measured.
    loops: all loops.
    outer: those around everything; inner: the reduced ones; vector_loop: the kept one that is vectorized, or gone
    through in blocks of rows; vector: the variable whose values lanes have, of `vector_size` iterations; tile_loop: the
    other one of tiles, in which the operands `staged` are transposed. written: the loops written out inside of the
    vectorized one. apart: the variables along which parts of loops are emitted one by one. columns: whether the
    vectorized loop is across short rows, of which whole ones are read. lanes: elements per vector; step: those whose
    reductions run side by side, of which what follows is done `lanes` at a time. register: bytes of its vector
    registers. chunked: which of the reduced loops is
    divided into chunks of `chunk_length` iterations; the loop over the chunks is then the outermost one.
    """

    source: Kernel
    kernel: Kernel
    strategy: Strategy
    loops: tuple[Loop, ...]
    outer: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    vector_loop: Loop | None
    vector: LoopVar | None
    vector_size: int
    apart: frozenset[LoopVar]
    lanes: int = 1
    step: int = 1
    register: int = VECTOR_BYTES
    tile_loop: Loop | None = None
    staged: tuple[Load, ...] = ()
    written: tuple[Loop, ...] = ()
    columns: bool = False
    chunked: int | None = None
    chunk_length: int = 0

    @property
    def split(self) -> bool:
        """Whether there are loops whose parts are emitted one by one."""
        return bool(self.apart)

    @property
    def whole(self) -> bool:
        """Whether the vectorized loop is emitted as one."""
        return self.vector_loop is None or self.vector_loop[0] not in self.apart

    @property
    def widths(self) -> list[int]:
        """Elements per iteration of the loops that run through the vectorized one."""
        return list(dict.fromkeys([self.step, self.lanes, 1]))

    @property
    def extent(self) -> int:
        """The iterations of the outermost loop, over which threads may split the kernel."""
        return iterations_of(self.outer[0] if self.outer else self.tile_loop or self.vector_loop or ())

    def whole_vectors(self) -> bool:
        """Whether the vectorized loop is a few whole vectors, to be written out without a loop."""
        iterations, rest = divmod(self.vector_size, self.step)
        if not self.whole:
            return False
        few = iterations == 1 or len(self.kernel.expressions) <= UNROLL_EXPRESSIONS
        return rest == 0 and iterations <= WRITE_OUT and few

    def written_out(self, part: Kernel, size: int) -> bool:
        """Whether the part of a split loop is so short that its iterations are written out one by one."""
        if self.whole or size > UNROLL_UP_TO // 2:
            return False
        return size == 1 or size * len(part.expressions) <= 2 * UNROLL_EXPRESSIONS

    def widths_of(self, size: int, *, row: bool) -> list[int]:
        """Elements per iteration of the loops that run through `size` elements, or through less of them.

        row: whether they run once for each row: then what is left at the end of each is worth vectors of its own.
        """
        if self.whole:
            native = native_lanes(self.kernel) * self.register // VECTOR_BYTES
            narrower = (row or size < FEW_TURNS) and self.lanes > native
            return list(dict.fromkeys([*self.widths[:-1], native, 1])) if narrower else self.widths
        wide = self.step
        while wide > size:
            wide //= 2
        return [w for w in dict.fromkeys([wide, min(wide, self.lanes), 1]) if w >= 4 or w == 1]

    def unrolled(self, depth: int) -> bool:
        """Whether to write the body of the innermost serial loop out, iteration by iteration."""
        most = TURN_UP_TO if self.columns else UNROLL_UP_TO
        short = depth == len(self.inner) - 1 and depth != self.chunked and iterations_of(self.inner[depth]) <= most
        return short and len(self.kernel.expressions) <= UNROLL_EXPRESSIONS

    @cached_property
    def rows(self) -> list[tuple[Member, int]]:
        """Members to keep, between the passes over a row, in an array on the stack, with its length."""
        if self.strategy is not Strategy.ALONG or len(self.inner) != 1:
            return []
        length = iterations_of(self.inner[0])
        kept = []
        room = ROW_BYTES
        for member in self.kernel.read_again():
            nbytes = length * member.value.element.itemsize
            if member.value not in self.kernel.saved and member.expr.cost > ROW_ABOVE and nbytes <= room:
                kept.append((member, length))
                room -= nbytes
        return kept

    def pass_lanes(self, phase: int) -> int:
        """Lanes of one pass over a row: what a pass computes decides, not what the others do."""
        reduces, stores = self.kernel.of_phase(phase)
        kept = [m for m, _ in self.rows]
        roots = [r.expr for r in reduces] + [s.expr for s in stores] + [m.expr for m in kept if m.phase == phase]

        def is_known(e: Expr) -> bool:
            if isinstance(e, MemberValue):
                return e.member.phase < phase and e.member in kept
            return isinstance(e, ReducedValue)

        met = reachable(roots, lambda e: () if is_known(e) else children(e))
        return lanes_for(self.kernel, met, [s.value.element for s in stores], self.vector_size)

    def is_fused_product(self, r: Reduce) -> bool:
        """Whether a sum of products of single or double floats is taken with fused multiply-adds."""
        multiplies = isinstance(r.expr, Applied) and r.expr.meaning is Meaning.PRODUCT
        return multiplies and r.dtype in (np.float32, np.float64) and _sums_products(r)


def verify(s: Schedule) -> None:
    """Check the rules of a schedule.

    Raises:
      BrokenForm: a rule does not hold; the message names it.
    """
    require(_rules(s), f"the schedule of the kernel {s.source.name} of {s.source.source}")


def _rules(s: Schedule) -> Iterator[tuple[bool, str]]:
    """The rules of a schedule, and whether they hold; later ones rely on those before."""
    source, along = s.source, s.strategy in (Strategy.ALONG, Strategy.ROWS)
    chunks = [] if source.chunks is None else [source.chunks]
    wanted = {v for v in source.variables if v.size != 1} | set(chunks)
    yield Counter(chain(*s.loops)) == Counter(wanted), "each variable of the kernel is in one loop"
    others = [loop for loop in (s.vector_loop, s.tile_loop) if loop is not None]
    yield Counter([*s.outer, *s.written, *others, *s.inner]) == Counter(s.loops), "each loop appears once"
    yield set(chain(*s.inner)) <= set(source.reduced), "inner loops are reduced loops"
    yield set(chain(*s.outer, *s.written, *others)) <= {*source.kept, *chunks}, "all other loops are kept loops"
    reduces, blocked = along or s.strategy is Strategy.TILED, s.strategy is Strategy.BLOCKED
    yield bool(s.inner) or not reduces, f"`{s.strategy}` has a reduced loop"
    yield s.strategy is not Strategy.ROWS or s.vector_loop is not None, "`rows` has a loop over rows"
    yield blocked == (s.tile_loop is not None), "`blocked`, and no other strategy, has a tile loop"
    yield set(s.staged) <= set(s.kernel.expressions), "the kernel reads each staged array"
    vectorized = s.inner[-1] if along else s.vector_loop
    yield s.vector is (vectorized[-1] if vectorized else None), "lanes are along the innermost variable of their loop"
    yield s.vector_size == iterations_of(vectorized or ()), "vector_size is the size of the vectorized loop"
    yield all(n & (n - 1) == 0 < n for n in (s.lanes, s.step)), "numbers of lanes are powers of two"
    yield s.step >= s.lanes, "an iteration has all lanes"
    wide = s.register == WIDE_BYTES
    yield not wide or not source.reduces, "reductions have the same lanes, and so the same bits, on all processors"
    yield s.lanes == 1 or s.vector is not None, "several lanes need a vectorized loop"
    steps = [c for store in source.inner for atom, c in store.position.terms if atom is s.vector]
    in_order = s.lanes == 1 or steps == [1] * len(source.inner)
    keeps_order = not source.ordered or (s.strategy is Strategy.ACROSS and in_order)
    yield keeps_order, "ordered kernels use lanes along consecutive elements, or one lane"
    yield (s.chunked is not None) == bool(chunks), "a kernel with chunks, and no other, has a divided loop"
    if s.chunked is not None:
        yield s.outer[0] == tuple(chunks), "the loop over chunks is the outermost one"
        yield 0 <= s.chunked < len(s.inner), "the divided loop is reduced"
        iterations, covered = iterations_of(s.inner[s.chunked]), iterations_of(chunks) * s.chunk_length
        yield iterations <= covered, f"chunks cover the loop, but cover {covered} of {iterations} iterations"


def iterations_of(loop: Iterable[LoopVar]) -> int:
    """The iterations of a loop, or of several loops inside each other."""
    return math.prod(v.size for v in loop)


def is_product(kernel: Kernel) -> bool:
    """Whether it sums products."""
    return any(map(_sums_products, kernel.reduces))


def _sums_products(r: Reduce) -> bool:
    return isinstance(operation_of(r.member.value).primitive.lower, Library)


def compute_bytes(dtype: np.dtype) -> int:
    """Bytes of a lane in which a type is computed."""
    i = info(dtype)
    return 4 if i.kind == "n" else max(i.bits // 8, 1)


def native_lanes(kernel: Kernel) -> int:
    """Elements of one vector register."""
    dtypes = [e.dtype for e in kernel.expressions if isinstance(e, (Load, ReducedValue))]
    dtypes += [s.value.element for s in kernel.stores]
    return VECTOR_BYTES // max([4, *map(compute_bytes, dtypes)])


def weight(kernel: Kernel, expressions: Iterable[Expr]) -> tuple[int, bool]:
    """How many registers a body takes at a time, 4, 2 or 1; and whether it is long, so that it leaves none waiting."""
    applied = [e for e in expressions if isinstance(e, (Applied, IndexValue))]
    cost = sum(max(e.primitive.lower.cost, 1) if isinstance(e, Applied) else 1 for e in applied)
    moderate = MODERATE if iterations_of(kernel.variables) >= SHORTER else MODERATE_IN_SHORTER
    # One long chain of dependent integer operations leaves room for a second one beside it.
    chained = any(isinstance(e, Applied) and e.meaning is Meaning.CHAIN for e in applied)
    return 4 if cost <= LIGHT else 2 if cost <= moderate or chained else 1, cost > moderate


def lanes_for(kernel: Kernel, expressions: Iterable[Expr], stored: list[np.dtype], size: int) -> int:
    """Elements per iteration: one vector register for heavy bodies, several for light ones."""
    expressions = list(expressions)
    loaded = [compute_bytes(e.dtype) for e in expressions if isinstance(e, (Load, ReducedValue))]
    native = VECTOR_BYTES // max([4, *map(compute_bytes, stored), *loaded])
    lanes = native * weight(kernel, expressions)[0]
    while lanes > 1 and lanes > size:
        lanes //= 2
    return lanes if lanes >= min(native, 4) else 1
