"""Sharding rules of windows along split axes whose start is known only at run time.

A window that is no longer than any rank's part is in at most two parts. To read it, each rank puts its elements of the
window into zeros, and the ranks add these: that sends about twice the window instead of the array. To write it, each
rank writes the elements inside its part, and nothing is sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core.rules import shape_rules
from mpijax.core.rules.registry import registry
from mpijax.core.rules.sharding_rules import Operation, Plan, share
from mpijax.core.sharding.cuts import Cut, Cuts, mesh_axes, uncut
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.reductions import psum
from mpijax.ops.elementwise import binary
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.elementwise.select import select
from mpijax.ops.indexing.one_owner import bits, of_bits
from mpijax.ops.rules import const_like
from mpijax.ops.shapes.creation import full
from mpijax.ops.shapes.padding import pad


def dynamic_slice(s: Operation) -> Plan | None:
    """The plan of `dynamic_slice` for short windows."""
    [shape, *starts], sizes, cuts = s.shapes, s.params["slice_sizes"], s.cuts[0]
    across = _across(shape, sizes, cuts)
    if not across or not s.numeric:
        return None
    plain = shape_rules.dynamic_slice(s)
    assert plain is not None
    if 2 * share(s, sizes, plain.results[0]) >= math.prod(shape):
        return plain
    over = mesh_axes(tuple(cuts[d] for d in across))
    local = s.local(sizes, plain.results[0])

    def program(x: Any, *at: Any) -> Any:
        places = _WindowPosition(s, across, sizes, at)
        found = registry["dynamic_slice"].bind(x, *places.starts, slice_sizes=local)
        for d in across:
            found = places.shifted(found, d, 1)
        return of_bits(psum(bits(found), over), typeof(x).dtype)

    return Plan([cuts, *map(uncut, starts)], plain.results, s.params, program=program)


def dynamic_update_slice(s: Operation) -> Plan | None:
    """The plan of `dynamic_update_slice` for short windows."""
    [shape, window, *starts], cuts = s.shapes, s.cuts[0]
    across = _across(shape, window, cuts)
    if not across or not s.numeric:
        return None
    of_window = tuple(None if window[d] != n else c for d, (n, c) in enumerate(zip(shape, cuts, strict=True)))
    local = s.local(window, of_window)

    def program(x: Any, new: Any, *at: Any) -> Any:
        places = _WindowPosition(s, across, window, at)
        mine = full(local, True, np.dtype(bool))
        for d in across:
            new, mine = places.shifted(new, d, -1), places.shifted(mine, d, -1)
        old = registry["dynamic_slice"].bind(x, *places.starts, slice_sizes=local)
        return registry["dynamic_update_slice"].bind(x, select(mine, new, old), *places.starts)

    return Plan([cuts, of_window, *map(uncut, starts)], [cuts], s.params, program=program)


def _across(shape: Sequence[int], sizes: Sequence[int], cuts: Cuts) -> list[int]:
    """The axes that are split and not taken whole; none if a part is shorter than the window."""
    found = [d for d, n in enumerate(shape) if cuts[d] is not None and sizes[d] != n]
    return found if all(_shortest(cuts[d]) >= sizes[d] > 0 for d in found) else []


def _shortest(cut: Cut | None) -> int:
    assert cut is not None
    return cut.narrowest


class _WindowPosition:
    """The position of a window in this rank's part.

    starts: where this rank accesses a block of the window's size: at the window if possible, else at the nearest
    border.
    """

    def __init__(self, s: Operation, across: list[int], sizes: Sequence[int], at: Sequence[Any]):
        self.sizes = sizes
        self.starts = list(at)
        # The distance from `starts` to the start of the window.
        self.behind: dict[int, Any] = {}
        for d in across:
            cut, n, size = s.cuts[0][d], s.shapes[0][d], sizes[d]
            assert cut is not None
            low, high = s.span(cut)
            whole = np.dtype(np.int64) if n >= 2**31 else np.dtype(np.int32)
            wanted = _between(convert_element_type(at[d], whole), 0, n - size)
            here = binary.sub(wanted, const_like(wanted, low))
            self.starts[d] = _between(here, 0, high - low - size)
            self.behind[d] = _between(binary.sub(here, self.starts[d]), -size, size)

    def shifted(self, x: Any, d: int, sign: int) -> Any:
        """`x` shifted along an axis by the distance from `starts` to the window (or back), filled with zeros."""
        size, shape = self.sizes[d], typeof(x).shape
        sides = [(size if k == d else 0,) * 2 + (0,) for k in range(len(shape))]
        zero = np.zeros((), typeof(x).dtype)
        middle = const_like(self.behind[d], size)
        begin = binary.add(middle, self.behind[d]) if sign > 0 else binary.sub(middle, self.behind[d])
        at: list[Any] = [const_like(begin, 0)] * len(shape)
        at[d] = begin
        return registry["dynamic_slice"].bind(pad(x, zero[()], sides), *at, slice_sizes=shape)


def _between(x: Any, low: int, high: int) -> Any:
    return binary.min(binary.max(x, const_like(x, low)), const_like(x, high))
