"""How a kernel's loops are ordered, which one is vectorized and how wide: the decisions."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from mpijax.compiler.fusion.expr import Load, dynamic_parts, loop_vars, mentions_inner, reachable
from mpijax.compiler.fusion.kernel import Kernel, collapsed
from mpijax.compiler.fusion.pieces import by_rows, largest, split_variables
from mpijax.compiler.loops.caches import has_wide_registers
from mpijax.compiler.loops.crossing import TILE, crossing_loads, stages_all
from mpijax.compiler.loops.schedule import (
    LIGHT,
    NEAR,
    TURN_UP_TO,
    UNROLL_UP_TO,
    VECTOR_BYTES,
    WIDE_BYTES,
    Loop,
    Schedule,
    Strategy,
    compute_bytes,
    is_product,
    iterations_of,
    lanes_for,
    native_lanes,
    verify,
    weight,
)
from mpijax.core.base import config
from mpijax.core.shapes.index import Lin, LoopVar

# Rows of at most so many elements are reduced several at once.
SHORT_ROW = 512
# Short loops are written out inside of the vectorized one up to so many times, if that is not too much to compile.
WRITTEN_UP_TO = 9
WRITTEN_EXPRESSIONS = 160
# Of the reduced loops the outermost of at least so many iterations is divided into chunks.
DIVIDED = 64
# Chunks of the vectorized loop are whole vectors: multiples of this many elements.
CHUNK_UNIT = 64
# Reductions shorter than this run serially inside the vectorized kept axis.
SERIAL_BELOW = 96
# Loops of at most this many iterations, and reductions over at most so many that are no whole vectors, are vectorized
# only if there is no longer loop.
TOO_SHORT = 3
TOO_SHORT_SUM = 24
# What a position that is visited once a row counts beside those visited for every element.
ONCE_A_ROW = 1 / 16
# What an operand of fewer axes counts beside one that has all: it is read anew in few of the iterations.
SHARED = 0.25
# What a step that is not one counts beside one that is.
OTHER_STEP = -0.25
# Rows of whole vectors are turned only if there are many in the loop that is vectorized then.
MANY_ROWS = 64
# Loops of so many iterations are long enough to be vectorized.
ENOUGH = 8


def scheduled(kernel: Kernel) -> Schedule:
    """The schedule of a kernel: the order of its loops, which each of the decisions below refines."""
    apart, measured = split_variables(kernel), largest(kernel)
    best = _last_variable(kernel) if kernel.ordered else _best_variable(measured, apart)
    source = by_rows(kernel, [v for v in kernel.kept if v is not best])
    if source is not kernel:
        apart, measured = split_variables(source), largest(source)
    schedule = _in_order(source, measured, best, frozenset(apart))
    refinements = (
        _with_lanes, _in_tiles, _reading_columns, _writing_out, _in_blocks, _side_by_side, _in_chunks,
        _in_wide_registers,
    )  # fmt: skip
    for refined in refinements:
        schedule = refined(schedule)
    if config.values.jax_enable_checks:
        verify(schedule)
    return schedule


def _last_variable(kernel: Kernel) -> LoopVar | None:
    return next((v for v in reversed(kernel.variables) if v.size > 1), None)


# -- the vectorized loop --------------------------------------------------------------------------------------


def _best_variable(kernel: Kernel, apart: Set[LoopVar]) -> LoopVar | None:
    """The loop along which most memory is read and written in steps of one; the last of equals.

    apart: the variables along which there are parts.
    """
    candidates = [v for v in kernel.variables if v.size > 1]
    if not candidates:
        return None
    if not kernel.reduces and not kernel.ordered and not apart:
        # Reading across rows costs little in tiles; writing across them has none.
        in_tiles = next((v for v in reversed(candidates) if stages_all(kernel, v)), None)
        if in_tiles is not None:
            return in_tiles
    scores = _scores(kernel, candidates)
    best = max(reversed(candidates), key=scores.__getitem__)
    return _long_enough(kernel, apart, best, scores)


def _scores(kernel: Kernel, candidates: list[LoopVar]) -> dict[LoopVar, float]:
    """How much memory is read and written in steps of one along each loop; other steps count against it.

    Where an index that is read says the position, steps along the loops of the index are such others. Operands that
    lack some of the loops count less, because they are small beside those that have them all.
    """
    scores = dict.fromkeys(candidates, 0.0)
    often = {p.key for p in kernel.inside.positions} if kernel.reduces else set()
    indexed = {p.key: _index_variables(p) for p in kernel.positions}
    everywhere = {p.key for p in kernel.positions if scores.keys() <= loop_vars(p) | indexed[p.key]}
    large = bool(often & everywhere if kernel.reduces else everywhere)
    for position in kernel.positions:
        weight = 1.0 if not often or position.key in often else ONCE_A_ROW
        if large and position.key not in everywhere:
            weight *= SHARED
        for atom, c in position.terms:
            if type(atom) is LoopVar and atom in scores:
                scores[atom] += weight * (1.0 if abs(c) == 1 else OTHER_STEP)
        for v in indexed[position.key] & scores.keys():
            scores[v] += weight * OTHER_STEP
    return scores


def _index_variables(position: Lin) -> set[LoopVar]:
    """The loops of the indices that a position needs at run time."""
    found = [e.position for e in reachable(dynamic_parts(position))]
    return set().union(*(loop_vars(p) for p in found if p is not None))


def _long_enough(kernel: Kernel, apart: Set[LoopVar], best: LoopVar, scores: dict[LoopVar, float]) -> LoopVar:
    """The best loop, or where it wastes the vector's lanes, because it is short, a long one not worse by much."""
    joined = collapsed(kernel, kernel.variables, apart)
    iterations = iterations_of(next(loop for loop in joined if best in loop))
    whole = best.size % (2 * native_lanes(kernel)) == 0
    short = best.size <= max(_short_sum(kernel, apart, whole) if best in kernel.reduced else 0, TOO_SHORT)
    if iterations >= ENOUGH and not (short and iterations == best.size):
        return best
    enough = float("-inf") if short else scores[best] - 1.0
    longer = [v for v in scores if v.size >= ENOUGH and scores[v] >= enough and not (short and v is best)]
    other = max(reversed(longer), key=scores.__getitem__) if longer else best
    return best if whole and other.size < MANY_ROWS else other


def _short_sum(kernel: Kernel, apart: Set[LoopVar], whole: bool) -> int:
    """Up to how many iterations a reduction is short. whole: whether it has whole vectors."""
    turned = _turned_up_to(kernel, apart)
    return turned if whole else max(turned, TOO_SHORT_SUM)


def _turned_up_to(kernel: Kernel, apart: Set[LoopVar]) -> int:
    """Up to which length rows are turned. Several passes share what is read; large bodies take long to compile."""
    if apart or len(kernel.axes) != 1 or max(e.cost for e in kernel.roots) > LIGHT:
        return 0
    if any(e.dtype.kind == "c" for e in kernel.expressions if isinstance(e, Load)):
        return 0
    if any(map(dynamic_parts, kernel.positions)):
        return 0  # rows that begin where an index says are not turned
    return TURN_UP_TO if kernel.phases > 1 else UNROLL_UP_TO


# -- the decisions ------------------------------------------------------------------------------------------------


def _in_order(source: Kernel, measured: Kernel, best: LoopVar | None, apart: frozenset[LoopVar]) -> Schedule:
    """The loops, the one to be vectorized as the innermost of its kind."""
    kept, reduced = source.kept, source.reduced
    if best in reduced and iterations_of(reduced) > 1:
        reduced = [*(v for v in reduced if v is not best), best]
        strategy = Strategy.ALONG
    else:
        if best in kept:
            kept = [*(v for v in kept if v is not best), best]
        long = iterations_of(reduced) >= SERIAL_BELOW and not is_product(measured)
        tiles = source.reduces and long and best in kept and not _fits_registers(measured, best.size)
        strategy = Strategy.TILED if tiles else Strategy.ACROSS
    kept_loops, inner = (tuple(map(tuple, collapsed(source, order, apart))) for order in (kept, reduced))
    if strategy is Strategy.ALONG:
        outer, vector_loop, vectorized = kept_loops, None, inner[-1]
    else:
        outer, vector_loop = kept_loops[:-1], kept_loops[-1] if kept_loops else None
        vectorized = vector_loop or ()
    vector = vectorized[-1] if vectorized else None
    size = iterations_of(vectorized)
    return Schedule(source, measured, strategy, kept_loops + inner, outer, inner, vector_loop, vector, size, apart)


def _fits_registers(kernel: Kernel, size: int) -> bool:
    """Whether the partial results of so many columns are a few whole registers: then they need no array."""
    return size <= 4 * native_lanes(kernel) and size & (size - 1) == 0


def _with_lanes(s: Schedule) -> Schedule:
    """The width of the whole kernel."""
    if s.source.ordered and not _writes_rows(s):
        return s
    stored = [store.value.element for store in s.kernel.stores]
    return replace(s, lanes=lanes_for(s.kernel, s.kernel.expressions, stored, s.vector_size))


def _in_wide_registers(s: Schedule) -> Schedule:
    """Twice as many lanes for long computations, if the processor has registers for them.

    Reductions keep their lanes: the order of additions, and so their bits, do not depend on the processor.
    """
    kernel = s.kernel
    alone = s.strategy is Strategy.ACROSS and not s.split and not s.columns and not s.written
    if not alone or s.lanes == 1 or kernel.reduces or kernel.cumulate is not None or s.source.ordered:
        return s
    _, long = weight(kernel, kernel.expressions)
    if not long or 2 * s.lanes > s.vector_size or not has_wide_registers():
        return s
    return replace(s, lanes=2 * s.lanes, step=2 * s.lanes, register=WIDE_BYTES)


def _writes_rows(s: Schedule) -> bool:
    """Whether a scatter's vectorized loop is along its window: then neighbours are written, under one guard."""
    if s.vector_loop is None:
        return False
    inside = set(s.vector_loop)
    for store in s.kernel.inner:
        run_time = dynamic_parts(store.position) + ([] if store.guard is None else [store.guard])
        others = Lin(0, [(atom, c) for atom, c in store.position.terms if type(atom) is not LoopVar])
        steps = [c for atom, c in store.position.terms if atom is s.vector]
        if steps != [1] or loop_vars(others) & inside or any(mentions_inner(e, inside) for e in run_time):
            return False
    return True


def _in_tiles(s: Schedule) -> Schedule:
    """Take the `blocked` strategy where an operand lies across the vectorized loop."""
    if s.strategy is not Strategy.ACROSS or s.source.reduces or s.lanes == 1 or s.split or s.vector_size < TILE:
        return s
    assert s.vector is not None  # there are several lanes
    var, loads = crossing_loads(s.kernel, s.vector)
    loop = next((x for x in s.outer if x[-1] is var), None)
    if loop is None:
        return s
    outer = tuple(x for x in s.outer if x is not loop)
    return replace(s, strategy=Strategy.BLOCKED, tile_loop=loop, staged=tuple(loads), outer=outer)


def _reading_columns(s: Schedule) -> Schedule:
    """Read whole rows where the vectorized loop is across short ones."""
    if s.strategy is not Strategy.ACROSS or s.split or s.kernel.ordered or len(s.inner) != 1 or s.lanes == 1:
        return s
    along = s.inner[0][-1]
    loads = [dict(e.position.terms) for e in s.kernel.expressions if isinstance(e, Load)]
    if not any(steps.get(along) == 1 and abs(steps.get(s.vector, 0)) > NEAR for steps in loads):
        return s
    return replace(s, columns=True, lanes=min(s.lanes, 2 * native_lanes(s.kernel)))


def _writing_out(s: Schedule) -> Schedule:
    """Write short loops inside of the vectorized one in memory out, such as the coordinates of points.

    Written out in each of its iterations they share what is read, and all of a point is written at once.
    """
    kernel = s.kernel
    if s.strategy is not Strategy.ACROSS or s.lanes == 1 or kernel.ordered or (kernel.reduces and kernel.inner):
        return s
    if any(len(s.inner) > 1 or not s.unrolled(depth) for depth in range(len(s.inner))):
        return s
    assert s.vector is not None  # there are several lanes
    count, copies, order = 0, 1, list(kernel.variables)
    for loop in reversed(s.outer):
        copies *= iterations_of(loop)
        inside = order.index(loop[-1]) > order.index(s.vector)
        if not inside or copies > WRITTEN_UP_TO or copies * len(kernel.expressions) > WRITTEN_EXPRESSIONS:
            break
        count += 1
    if not count:
        return s
    lanes = min(s.lanes, native_lanes(kernel))
    return replace(s, written=s.outer[-count:], outer=s.outer[:-count], lanes=lanes)


def _in_blocks(s: Schedule) -> Schedule:
    """Take the `rows` strategy where rows share an operand, or much is done with the result.

    One register holds the results of a block.
    """
    kernel = s.kernel
    if s.strategy is not Strategy.ALONG or s.split or kernel.phases != 1 or kernel.inner or len(kernel.reduces) > 2:
        return s
    if len(s.inner) != 1 or not s.outer or iterations_of(s.outer[-1]) < 8:
        return s
    if not is_product(kernel) and iterations_of(s.inner[0]) > SHORT_ROW:
        return s
    lanes = VECTOR_BYTES // max(compute_bytes(r.dtype) for r in kernel.reduces)
    return replace(s, strategy=Strategy.ROWS, vector_loop=s.outer[-1], outer=s.outer[:-1], lanes=lanes)


def _side_by_side(s: Schedule) -> Schedule:
    """Running sums are chains of dependent operations: enough of them side by side keep the units busy."""
    kernel = s.kernel
    alone = s.lanes == 1 or s.strategy is not Strategy.ACROSS or not s.inner
    if alone or kernel.phases != 1 or not kernel.reduces or kernel.inner:
        return replace(s, step=s.lanes)
    lanes = s.pass_lanes(0)
    if s.columns:
        return replace(s, step=min(lanes, 2 * native_lanes(kernel)))
    if is_product(kernel) and 2 * lanes <= s.vector_size:
        lanes *= 2
    return replace(s, step=max(lanes, s.lanes))


def _in_chunks(s: Schedule) -> Schedule:
    """Put the loop over chunks around everything."""
    if s.source.chunks is None:
        return s
    chunks, chunked, length = (s.source.chunks,), divided_loop(s.inner), s.source.chunk_length
    if not length:
        loop = s.inner[chunked]
        unit = CHUNK_UNIT if chunked == len(s.inner) - 1 and s.strategy in (Strategy.ALONG, Strategy.ROWS) else 1
        length = -(-iterations_of(loop) // (s.source.chunks.size * unit)) * unit
    return replace(s, chunked=chunked, chunk_length=length, outer=(chunks, *s.outer), loops=(chunks, *s.loops))


def divided_loop(reduced: Sequence[Loop]) -> int:
    """Which of the reduced loops is divided into chunks."""
    long = [k for k, loop in enumerate(reduced) if iterations_of(loop) >= DIVIDED]
    return long[0] if long else max(range(len(reduced)), key=lambda k: iterations_of(reduced[k]))
