"""The rows of each array that a kernel reads and writes, relative to the row that it computes.

The rows of an array are its elements along the first axis. A kernel computes rows one after the other if its outermost
loop runs along the first axis of what it stores.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpijax.compiler.fusion.expr import Load, loop_vars, reachable
from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.fusion.pieces import split
from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.loops.schedule import Loop, iterations_of
from mpijax.compiler.loops.scheduling import scheduled
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.shapes.index import Lin, LoopVar

# The bounds of a window of an array that is not read row by row.
ANY = 1 << 40


@dataclass(frozen=True)
class RowWindow:
    """Rows `low` to `high`, inclusive, relative to the row being computed, of an array of `rows` rows.

    row_bytes: bytes of a row of the array. wraps: the window of the first row reaches the last row, or the other way.
    """

    low: int
    high: int
    rows: int
    row_bytes: int
    writes: bool
    wraps: bool = False

    def joined(self, other: RowWindow) -> RowWindow:
        """The smallest window around two windows of one array."""
        return RowWindow(
            min(self.low, other.low), max(self.high, other.high), self.rows, self.row_bytes,
            self.writes or other.writes, self.wraps or other.wraps,
        )  # fmt: skip


@dataclass(frozen=True)
class Reach:
    """The windows of a kernel, by array. unit: iterations of its outermost loop per row. rows: how many it computes."""

    unit: int
    rows: int
    windows: dict[Value, RowWindow]


@dataclass(frozen=True)
class _Access:
    """An element read or written in the iterations `[begin, end)` of the outermost loop.

    step: elements from turn to turn. low, high: bounds of the element in turn 0.
    """

    value: Value
    begin: int
    end: int
    step: int
    low: int
    high: int
    writes: bool


def reach_of(kernel: Kernel) -> Reach | None:
    """The rows that a kernel reads and writes; None if it does not compute rows one after the other."""
    if kernel.ordered or kernel.cumulate is not None or kernel.chunks is not None:
        return None
    schedule = scheduled(kernel)
    loop = schedule.outer[0] if schedule.outer else schedule.tile_loop or schedule.vector_loop
    if not loop or set(loop) & set(kernel.reduced):
        return None
    accesses = list(_accesses(kernel, loop))
    if any(a is None for a in accesses):
        return None
    found = [a for a in accesses if a is not None]
    units = {_row(a.value) // a.step if a.step > 0 and _row(a.value) % a.step == 0 else 0 for a in found if a.writes}
    unit = next(iter(units), 0)
    if len(units) != 1 or unit == 0 or schedule.extent % unit:
        return None
    windows: dict[Value, RowWindow] = {}
    for a in found:
        window, known = _window(a, unit), windows.get(a.value)
        windows[a.value] = window if known is None else known.joined(window)
    return Reach(unit, schedule.extent // unit, windows)


def _row(v: Value) -> int:
    """Elements of one row."""
    return v.size // v.shape[0] if v.shape and v.shape[0] else 0


def _accesses(kernel: Kernel, loop: Loop) -> Iterator[_Access | None]:
    """What the parts of a kernel read and write; None for an element whose position is not linear in the loop."""
    first, inner = loop[0], iterations_of(loop[1:])
    for part in split(kernel, first):
        begin, end = part.begin * inner, part.end * inner
        loads = [e for e in reachable(part.kernel.roots) if isinstance(e, Load)]
        accesses = [(e.value, e.position, False) for e in loads]
        accesses += [(s.value, s.position, True) for s in part.kernel.stores]
        for v, position, writes in accesses:
            step = _step(position, loop)
            if step is None:
                yield None
            else:
                low, high = Lin(position.offset, [t for t in position.terms if t[0] not in loop]).bounds()
                yield _Access(v, begin, end, step, low, high, writes)


def _step(position: Lin, loop: Loop) -> int | None:
    """Elements from one iteration of a loop to the next; None if they differ from iteration to iteration."""
    steps = {atom: c for atom, c in position.terms if type(atom) is LoopVar}
    if any(loop_vars(Lin(0, [(atom, 1)])) & set(loop) for atom, _ in position.terms if type(atom) is not LoopVar):
        return None
    last = steps.get(loop[-1], 0)
    inner = 1
    for v in reversed(loop):
        if steps.get(v, 0) != last * inner:
            return None
        inner *= v.size
    return last


def _window(a: _Access, unit: int) -> RowWindow:
    """The rows of one access. unit: iterations per row."""
    row, rows = _row(a.value), a.value.shape[0] if a.value.shape else 0
    row_bytes = row * a.value.element.itemsize
    first, last = a.begin // unit, -(-a.end // unit) - 1
    if row and a.step == 0:
        low, high = a.low // row - last, a.high // row - first
    elif row and a.step * unit == row:
        low, high = a.low // row, (a.high + a.step * (unit - 1)) // row
    else:  # any of them
        return RowWindow(-ANY, ANY, rows, row_bytes, a.writes)
    around = rows if 2 * low > rows else -rows if 2 * high < -rows else 0
    return RowWindow(low - around, high - around, rows, row_bytes, a.writes, around != 0)
