"""Which loop of a kernel is vectorized."""

from __future__ import annotations

from collections.abc import Set

from mpijax.compiler.fusion.expr import loop_vars
from mpijax.compiler.fusion.kernel import Kernel, collapsed
from mpijax.compiler.loops.crossing import stages_all
from mpijax.compiler.loops.schedule import LIGHT, TURN_UP_TO, UNROLL_UP_TO, native_lanes, turns_of
from mpijax.core.index import LoopVar

# Loops of at most this many turns, and reductions over at most so many that are no whole vectors, are vectorized
# only if there is no longer loop.
TOO_SHORT = 3
TOO_SHORT_SUM = 24
# What a position that is visited once a row counts beside those visited for every element.
ONCE_A_ROW = 1 / 16
# What an operand of fewer axes counts beside one that has all: it is read anew in few of the turns.
SHARED = 0.25
# Rows of whole vectors are turned only if there are many in the loop that is vectorized then.
MANY_ROWS = 64
# Loops of so many turns are long enough to be vectorized.
ENOUGH = 8


def best_variable(kernel: Kernel, apart: Set[LoopVar]) -> LoopVar | None:
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
    """How much memory is read and written in steps of one along each loop; other steps count against it."""
    scores = dict.fromkeys(candidates, 0.0)
    often = {p.key for p in kernel.inside.positions} if kernel.reduces else set()
    everywhere = {p.key for p in kernel.positions if scores.keys() <= loop_vars(p)}
    for position in kernel.positions:
        weight = 1.0 if not often or position.key in often else ONCE_A_ROW
        if often & everywhere and position.key not in everywhere:
            weight *= SHARED
        for atom, c in position.terms:
            if type(atom) is LoopVar and atom in scores:
                scores[atom] += weight * (1.0 if abs(c) == 1 else -0.25)
    return scores


def _long_enough(kernel: Kernel, apart: Set[LoopVar], best: LoopVar, scores: dict[LoopVar, float]) -> LoopVar:
    """The best loop, or where it wastes the vector's lanes, because it is short, a long one not worse by much."""
    joined = collapsed(kernel, kernel.variables, apart)
    turns = turns_of(next(loop for loop in joined if best in loop))
    whole = best.size % (2 * native_lanes(kernel)) == 0
    short = best.size <= max(_short_sum(kernel, apart, whole) if best in kernel.reduced else 0, TOO_SHORT)
    if turns >= ENOUGH and not (short and turns == best.size):
        return best
    enough = float("-inf") if short else scores[best] - 1.0
    longer = [v for v in scores if v.size >= ENOUGH and scores[v] >= enough and not (short and v is best)]
    other = max(reversed(longer), key=scores.__getitem__) if longer else best
    return best if whole and other.size < MANY_ROWS else other


def _short_sum(kernel: Kernel, apart: Set[LoopVar], whole: bool) -> int:
    """Up to how many turns a reduction is short. whole: whether it has whole vectors."""
    turned = _turned_up_to(kernel, apart)
    return turned if whole else max(turned, TOO_SHORT_SUM)


def _turned_up_to(kernel: Kernel, apart: Set[LoopVar]) -> int:
    """Up to which length rows are turned. Several passes share what is read; large bodies take long to compile."""
    if apart or len(kernel.axes) != 1 or max(e.cost for e in kernel.roots) > LIGHT:
        return 0
    if any(e.dtype.kind == "c" for e in kernel.expressions if e.op == "load"):
        return 0
    return TURN_UP_TO if kernel.phases > 1 else UNROLL_UP_TO
