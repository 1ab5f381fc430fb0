"""How a kernel's loops are ordered, which one is vectorized and how wide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpijax.compiler.fusion.expr import children, dynamic_parts, loop_vars, mentions_inner
from mpijax.compiler.fusion.kernel import Kernel, Reduce, collapsed
from mpijax.compiler.fusion.pieces import by_rows, largest, split_variables
from mpijax.compiler.loops.blocked import TILE, crossing_loads, stages_all
from mpijax.core.index import Lin, LoopVar
from mpijax.scalar.types import info

VECTOR_BYTES = 32
# A row of at most this many bytes that a later pass reads again is kept on the stack.
ROW_BYTES = 1 << 17
# Cheaper values are computed again instead.
ROW_ABOVE = 6
# Serial loops of at most this many turns are written out, if their bodies are small.
UNROLL_UP_TO = 16
UNROLL_EXPRESSIONS = 12
# Rows of at most so many elements that several passes read are turned (see `compiler.loops.turned`), their loops
# written out.
TURN_UP_TO = 32
# Rows of whole vectors are turned only if there are many in the loop that is vectorized then.
MANY_ROWS = 64
# Elements at most so many apart are picked out of whole registers.
NEAR = 4
# Rows of at most so many elements are reduced several at once.
SHORT_ROW = 512
# Short loops are written out inside of the vectorized one up to so many times, if that is not too much to compile.
WRITTEN_UP_TO = 9
WRITTEN_EXPRESSIONS = 160
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
# Loops of at most this many turns, and reductions over at most so many that are no whole vectors, are vectorized
# only if there is no longer loop.
TOO_SHORT = 3
TOO_SHORT_SUM = 24
# What a position that is visited once a row counts beside those visited for every element.
ONCE_A_ROW = 1 / 16
# What an operand of fewer axes counts beside one that has all: it is read anew in few of the turns.
SHARED = 0.25
# Of the reduced loops the outermost of at least so many turns is divided into chunks.
DIVIDED = 64
# Chunks of the vectorized loop are whole vectors: multiples of this many elements.
CHUNK_UNIT = 64
# Reductions shorter than this run serially inside the vectorized kept axis.
SERIAL_BELOW = 96


class Schedule:
    """The loop structure of a kernel.

    source: the kernel whose loops are split. kernel: that of the part where most elements lie, which is measured.
    strategy: `across`, `along`, `rows`, `tiled` or `blocked` (see `compiler.loops.emit`). loops: all loops, each a list
    of joined loop variables. outer: those around everything; inner: the reduced ones; vector_loop: the vectorized
    kept one. split: whether there are loops whose parts are emitted one by one. columns: whether the vectorized loop is
    across short rows, of which whole ones are read. chunked: which of the reduced loops is divided into chunks of
    `chunk_length` turns; the loop over the chunks is then the outermost one.
    """

    def __init__(self, kernel: Kernel):
        self.kernel = largest(kernel)
        self.chunked: int | None = None
        self.chunk_length = 0
        axes = set(kernel.axes)
        kept = [v for a, v in enumerate(kernel.variables) if a not in axes]
        reduced = [v for a, v in enumerate(kernel.variables) if a in axes]
        best = _last_variable(kernel) if kernel.ordered else self._best_variable(split_variables(kernel))
        kernel = self.source = by_rows(kernel, [v for v in kept if v is not best])
        self.kernel = largest(kernel)
        apart = split_variables(kernel)
        self.split = bool(apart)
        self.reduced_size = 1
        for v in reduced:
            self.reduced_size *= v.size
        if best is not None and best in reduced and self.reduced_size > 1:
            reduced.remove(best)
            reduced.append(best)
            self.strategy = "along"
            order_kept, order_reduced = kept, reduced
        else:
            order_kept = [v for v in kept if v is not best] + ([best] if best is not None and best in kept else [])
            order_reduced = reduced
            long = self.reduced_size >= SERIAL_BELOW and best is not None and not self._is_product()
            tiles = kernel.reduces and long and best in kept and not self._fits_registers(best.size)
            self.strategy = "tiled" if tiles else "across"
        kept_loops = collapsed(kernel, order_kept, apart)
        self.inner = collapsed(kernel, order_reduced, apart)
        self.loops = kept_loops + self.inner
        self.vector_loop: list[LoopVar] | None = None
        self.vector_id: int | None
        if self.strategy == "along":
            self.outer = kept_loops
            self.vector_id = id(self.inner[-1][-1])
            size = _size(self.inner[-1])
        else:
            self.vector_loop = kept_loops[-1] if kept_loops else None
            self.outer = kept_loops[:-1]
            self.vector_id = id(self.vector_loop[-1]) if self.vector_loop else None
            size = _size(self.vector_loop) if self.vector_loop else 1
        self.vector_size = size
        self.lanes = 1 if kernel.ordered and not self._writes_rows() else self._lanes(size)
        self.tile_loop: list[LoopVar] | None = None
        self.staged: list = []
        if self.strategy == "across" and not kernel.reduces and self.lanes > 1 and not apart:
            self._use_tiles()
        self.columns = self._reads_columns()
        if self.columns:
            self.lanes = min(self.lanes, 2 * self._native())
        self.written = self._written_inside()
        if self.written:
            self.outer = self.outer[: -len(self.written)]
            self.lanes = min(self.lanes, self._native())
        self.whole = self.vector_loop is None or id(self.vector_loop[0]) not in apart
        if self.strategy == "across" and self.vector_loop is None:
            self.lanes = 1
        if self.strategy == "along" and not apart and self._in_blocks():
            self._use_blocks()
        # Elements per turn whose reductions run side by side; what follows them is done `lanes` at a time.
        self.turn = self._turn() if self.lanes > 1 else 1
        self.widths = list(dict.fromkeys([self.turn, self.lanes, 1]))
        if kernel.chunks is not None:
            self._divide(kernel.chunks)

    def _divide(self, chunks: LoopVar) -> None:
        """Put the loop over chunks around everything."""
        self.chunked = divided_loop(self.inner)
        loop = self.inner[self.chunked]
        self.outer = [[chunks], *self.outer]
        self.loops = [[chunks], *self.loops]
        if self.source.chunk_length:
            self.chunk_length = self.source.chunk_length
            return
        unit = CHUNK_UNIT if loop[-1] is self.inner[-1][-1] and self.strategy in ("along", "rows") else 1
        self.chunk_length = -(-_size(loop) // (chunks.size * unit)) * unit

    def _fits_registers(self, size: int) -> bool:
        """Whether the partial results of so many columns are a few whole registers: then they need no array."""
        return size <= 4 * self._native() and size & (size - 1) == 0

    def _writes_rows(self) -> bool:
        """Whether a scatter's vectorized loop is along its window: then neighbours are written, under one guard."""
        if self.vector_loop is None:
            return False
        inner, last = {id(v) for v in self.vector_loop}, self.vector_loop[-1]
        for s in self.kernel.inner:
            run_time = dynamic_parts(s.position) + ([] if s.guard is None else [s.guard])
            others = Lin(0, [(atom, c) for atom, c in s.position.terms if type(atom) is not LoopVar])
            steps = [c for atom, c in s.position.terms if atom is last]
            if steps != [1] or loop_vars(others) & inner or any(mentions_inner(e, inner) for e in run_time):
                return False
        return True

    def _use_tiles(self) -> None:
        """Take the `blocked` strategy where an operand lies across the vectorized loop."""
        assert self.vector_loop is not None  # there are several lanes
        vector = self.vector_loop[-1]
        var, loads = crossing_loads(self.kernel, vector)
        loop = next((x for x in self.outer if var is not None and x[-1] is var), None)
        if loop is None or _size(self.vector_loop) < TILE:
            return
        self.strategy = "blocked"
        self.tile_loop = loop
        self.staged = loads
        self.outer = [x for x in self.outer if x is not loop]

    def _written_inside(self) -> list[list[LoopVar]]:
        """Short loops inside of the vectorized one in memory, such as the coordinates of points.

        Written out in each of its turns they share what is read, and all of a point is written at once.
        """
        kernel = self.kernel
        if self.strategy != "across" or self.lanes == 1 or kernel.ordered or (kernel.reduces and kernel.inner):
            return []
        if any(len(self.inner) > 1 or not self.unrolled(depth) for depth in range(len(self.inner))):
            return []
        if self.vector_id is None:
            return []
        order = {id(v): at for at, v in enumerate(kernel.variables)}
        found: list[list[LoopVar]] = []
        copies = 1
        for loop in reversed(self.outer):
            copies *= _size(loop)
            inside = order[id(loop[-1])] > order[self.vector_id]
            if not inside or copies > WRITTEN_UP_TO or copies * len(kernel.expressions()) > WRITTEN_EXPRESSIONS:
                break
            found.insert(0, loop)
        return found

    def _reads_columns(self) -> bool:
        """See `columns`."""
        if self.strategy != "across" or self.split or self.kernel.ordered or len(self.inner) != 1 or self.lanes == 1:
            return False
        along, across = id(self.inner[0][-1]), self.vector_id
        if across is None:
            return False
        loads = [{id(a): c for a, c in e.attr[1].terms} for e in self.kernel.expressions() if e.op == "load"]
        return any(steps.get(along) == 1 and abs(steps.get(across, 0)) > NEAR for steps in loads)

    def _in_blocks(self) -> bool:
        """Whether several rows are reduced at once: where they share an operand, or much is done with the result."""
        kernel = self.kernel
        if kernel.phases != 1 or kernel.inner or len(self.inner) != 1 or not self.outer or _size(self.outer[-1]) < 8:
            return False
        if len(kernel.reduces) > 2:
            return False
        return self._is_product() or _size(self.inner[0]) <= SHORT_ROW

    def _use_blocks(self) -> None:
        """Take the `rows` strategy: one register holds the results of a block."""
        widest = max(_compute_bytes(r.dtype) for r in self.kernel.reduces)
        self.strategy = "rows"
        self.vector_loop = self.outer.pop()
        self.lanes = VECTOR_BYTES // widest

    @property
    def extent(self) -> int:
        """Turns of the outermost loop, over which threads may split the kernel."""
        if self.outer:
            return _size(self.outer[0])
        if self.tile_loop is not None:
            return _size(self.tile_loop)
        return _size(self.vector_loop) if self.vector_loop else 1

    def size(self, loop: list[LoopVar]) -> int:
        """Turns of a loop."""
        return _size(loop)

    def whole_vectors(self) -> bool:
        """Whether the vectorized loop is a few whole vectors, to be written out without a loop."""
        turns, rest = divmod(self.vector_size, self.turn)
        if not self.whole:
            return False
        return rest == 0 and turns <= WRITE_OUT and (turns == 1 or len(self.kernel.expressions()) <= UNROLL_EXPRESSIONS)

    def written_out(self, part: Kernel, size: int) -> bool:
        """Whether the part of a split loop is so short that its turns are written out one by one."""
        if self.whole or size > UNROLL_UP_TO // 2:
            return False
        return size == 1 or size * len(part.expressions()) <= 2 * UNROLL_EXPRESSIONS

    def widths_of(self, size: int, *, row: bool) -> list[int]:
        """Elements per turn of the loops that run through `size` elements, or through less of them.

        row: whether they run once for each row: then what is left at the end of each is worth vectors of its own.
        """
        if self.whole:
            native = self._native()
            narrower = (row or size < FEW_TURNS) and self.lanes > native
            return list(dict.fromkeys([*self.widths[:-1], native, 1])) if narrower else self.widths
        wide = self.turn
        while wide > size:
            wide //= 2
        return [w for w in dict.fromkeys([wide, min(wide, self.lanes), 1]) if w >= 4 or w == 1]

    def unrolled(self, depth: int) -> bool:
        """Whether to write the body of the innermost serial loop out, turn by turn."""
        most = TURN_UP_TO if self.columns else UNROLL_UP_TO
        short = depth == len(self.inner) - 1 and depth != self.chunked and _size(self.inner[depth]) <= most
        return short and len(self.kernel.expressions()) <= UNROLL_EXPRESSIONS

    def rows(self) -> list:
        """Members to keep, between the passes over a row, in an array on the stack, with its length."""
        if self.strategy != "along" or len(self.inner) != 1:
            return []
        length = _size(self.inner[0])
        kept = []
        room = ROW_BYTES
        for member in self.kernel.read_again():
            nbytes = length * member.value.element.itemsize
            if id(member.value) not in self.kernel.saved and member.expr.cost > ROW_ABOVE and nbytes <= room:
                kept.append((member, length))
                room -= nbytes
        return kept

    def _is_product(self) -> bool:
        return any(_sums_products(r) for r in self.kernel.reduces)

    def is_fused_product(self, r: Reduce) -> bool:
        """Whether a sum of products of single or double floats is taken with fused multiply-adds."""
        multiplies = isinstance(r.expr.attr, tuple) and len(r.expr.attr) == 3 and r.expr.attr[0].name == "mul"
        return multiplies and r.dtype in (np.float32, np.float64) and _sums_products(r)

    def _best_variable(self, apart: set[int]) -> LoopVar | None:
        """The loop along which most memory is read and written in steps of one; the last of equals."""
        scores: dict[int, float] = {}
        candidates = [v for v in self.kernel.variables if v.size > 1]
        if not candidates:
            return None
        if not self.kernel.reduces and not self.kernel.ordered and not apart:
            # Reading across rows costs little in tiles; writing across them has none.
            for v in reversed(candidates):
                if stages_all(self.kernel, v):
                    return v
        for v in candidates:
            scores[id(v)] = 0.0
        often = self.kernel.positions_inside()
        everywhere = {p.key for p in self.kernel.positions() if {id(v) for v in candidates} <= loop_vars(p)}
        for position in self.kernel.positions():
            weight = 1.0 if not often or position.key in often else ONCE_A_ROW
            if often & everywhere and position.key not in everywhere:
                weight *= SHARED
            for atom, c in position.terms:
                if type(atom) is LoopVar and id(atom) in scores:
                    scores[id(atom)] += weight * (1.0 if abs(c) == 1 else -0.25)
        best = max(reversed(candidates), key=lambda v: (scores[id(v)], 0))
        # Short loops waste the vector's lanes: prefer a long one that is not worse by much.
        joined = collapsed(self.kernel, self.kernel.variables, apart)
        turns = _size(next(loop for loop in joined if best in loop))
        summed = best in [self.kernel.variables[a] for a in self.kernel.axes]
        turned = self._turns_up_to(apart)
        whole = best.size % (2 * self._native()) == 0
        most = turned if whole else max(turned, TOO_SHORT_SUM)
        short = best.size <= max(most if summed else 0, TOO_SHORT)
        if turns < 8 or (short and turns == best.size):
            enough = -np.inf if short else scores[id(best)] - 1.0
            longer = [v for v in candidates if v.size >= 8 and scores[id(v)] >= enough and not (short and v is best)]
            other = max(reversed(longer), key=lambda v: scores[id(v)]) if longer else best
            best = best if whole and other.size < MANY_ROWS else other
        return best

    def _turns_up_to(self, apart: set[int]) -> int:
        """Up to which length rows are turned. Several passes share what is read; large bodies take long to compile."""
        kernel = self.kernel
        if apart or len(kernel.axes) != 1 or max(e.cost for e in kernel.roots()) > LIGHT:
            return 0
        if any(e.dtype.kind == "c" for e in kernel.expressions() if e.op == "load"):
            return 0
        return TURN_UP_TO if kernel.phases > 1 else UNROLL_UP_TO

    def _lanes(self, size: int) -> int:
        """Lanes of the whole kernel."""
        stored = [s.value.element for s in self.kernel.inner + self.kernel.outer]
        return self._width(self.kernel.expressions(), stored, size)

    def _turn(self) -> int:
        """Running sums are chains of dependent operations: enough of them side by side keep the units busy."""
        kernel = self.kernel
        if self.strategy != "across" or kernel.phases != 1 or not kernel.reduces or kernel.inner or not self.inner:
            return self.lanes
        lanes = self.pass_lanes(0)
        if self.columns:
            return min(lanes, 2 * self._native())
        if self._is_product() and 2 * lanes <= self.vector_size:
            lanes *= 2
        return max(lanes, self.lanes)

    def pass_lanes(self, phase: int) -> int:
        """Lanes of one pass over a row: what a pass computes decides, not what the others do."""
        kernel = self.kernel
        kept = {id(m.value): m for m, _ in self.rows()}
        roots = [r.expr for r in kernel.reduces if r.phase == phase]
        roots += [s.expr for s in kernel.inner if s.phase == phase] + [
            m.expr for m in kept.values() if m.phase == phase
        ]
        seen: dict[int, Any] = {}
        stack = list(roots)
        while stack:
            e = stack.pop()
            if id(e) in seen:
                continue
            seen[id(e)] = e
            again = e.op == "inner" and e.attr.phase < phase and id(e.attr.value) in kept
            stack.extend(() if again or e.op == "acc" else children(e))
        stored = [s.value.element for s in kernel.inner if s.phase == phase]
        return self._width(list(seen.values()), stored, self.vector_size)

    def _native(self) -> int:
        """Elements of one vector register."""
        dtypes = [e.dtype for e in self.kernel.expressions() if e.op in ("load", "acc")]
        dtypes += [s.value.element for s in self.kernel.inner + self.kernel.outer]
        return VECTOR_BYTES // max([4, *map(_compute_bytes, dtypes)])

    def _width(self, expressions: list, stored: list, size: int) -> int:
        """Elements per turn: one vector register for heavy bodies, several for light ones."""
        widest = 4
        cost = 0
        hashes = False
        for e in expressions:
            if e.op == "load" or e.op == "acc":
                widest = max(widest, _compute_bytes(e.dtype))
            if e.op not in ("const", "load", "acc", "inner", "choose"):
                cost += max(e.attr[0].lower.cost, 1) if isinstance(e.attr, tuple) and len(e.attr) == 3 else 1
            hashes = hashes or e.op == "threefry2x32"
        for dtype in stored:
            widest = max(widest, _compute_bytes(dtype))
        native = VECTOR_BYTES // widest
        long = math.prod(v.size for v in self.kernel.variables) >= SHORTER
        moderate = MODERATE if long else MODERATE_IN_SHORTER
        # One long chain of dependent integer operations leaves room for a second one beside it.
        lanes = native * (4 if cost <= LIGHT else 2 if cost <= moderate or hashes else 1)
        while lanes > 1 and lanes > size:
            lanes //= 2
        return lanes if lanes >= min(native, 4) else 1


def divided_loop(reduced: list[list[LoopVar]]) -> int:
    """Which of the reduced loops is divided into chunks."""
    long = [k for k, loop in enumerate(reduced) if _size(loop) >= DIVIDED]
    return long[0] if long else max(range(len(reduced)), key=lambda k: _size(reduced[k]))


def _last_variable(kernel: Kernel) -> LoopVar | None:
    return next((v for v in reversed(kernel.variables) if v.size > 1), None)


def _sums_products(r: Reduce) -> bool:
    return r.member.value.producer.primitive.name == "dot_general"  # type: ignore[attr-defined]


def _compute_bytes(dtype) -> int:
    i = info(dtype)
    return 4 if i.kind == "n" else max(i.bits // 8, 1)


def _size(loop: list[LoopVar]) -> int:
    n = 1
    for v in loop:
        n *= v.size
    return n
