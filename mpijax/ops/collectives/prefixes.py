"""Combines what the ranks before this one have, in about log2 of their number rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.ops.collectives.permutations import ppermute

Names = tuple[Any, ...]


def before(x: Any, names: Names, place: int, parts: int, combine: Callable[[Any, Any], Any], reverse: bool) -> Any:
    """The values `x` of the ranks before this one, combined in their order; None for the first rank.

    An exclusive scan by doubling: in each round a rank sends the combination of twice as many values, twice as far.
    Every rank must call it.

    names, place, parts: the mesh axes, this rank's number along them, and the number of ranks.
    combine: an associative function of an earlier and a later value. reverse: the last rank is the first.
    """
    at = parts - 1 - place if reverse else place
    total, found = x, None
    width = 1
    while width < parts:
        pairs = [(i, i + width) for i in range(parts - width)]
        if reverse:
            pairs = [(parts - 1 - a, parts - 1 - b) for a, b in pairs]
        received = ppermute(total, names, pairs)
        if at >= width:
            found = received if found is None else combine(received, found)
            total = combine(received, total)
        width *= 2
    return found
